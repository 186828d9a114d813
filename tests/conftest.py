"""Servers for all tests: real ones, started when first asked for, one of each kind for a pytest process."""

from collections.abc import Iterator

import pytest

from frontends.servers.ejabberd import Ejabberd
from frontends.servers.redis import RedisServer, redis_binary, valkey_binary


@pytest.fixture(scope="session")
def valkey() -> Iterator[RedisServer]:
    """Give the embedded server."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def redis7() -> Iterator[RedisServer]:
    """Give the distribution's Redis; `make test` installs it, so its absence is a failure."""
    with RedisServer(binary=redis_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def ejabberd() -> Iterator[Ejabberd]:
    """Give an XMPP server."""
    with Ejabberd() as server:
        yield server
