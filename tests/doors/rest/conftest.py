"""An HTTP frontend over a real Redis, and clients of it."""

from collections.abc import Iterator

import httpx
import pytest

from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.doors.frontend import BOB
from tests.doors.rest.served import RestFrontend, client


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone: they list all queues."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def frontend(redis: RedisServer) -> Iterator[RestFrontend]:
    """Provide a frontend with common settings."""
    with RestFrontend(redis.url, TRUSTED_PROXIES="127.0.0.1") as server:
        yield server


@pytest.fixture
def alice(frontend: RestFrontend) -> Iterator[httpx.Client]:
    """Return a client that owns what it creates."""
    with client(frontend) as opened:
        yield opened


@pytest.fixture
def bob(frontend: RestFrontend) -> Iterator[httpx.Client]:
    """Return another client."""
    with client(frontend, BOB) as opened:
        yield opened


@pytest.fixture
def queue(alice: httpx.Client) -> str:
    """Return the path of a new queue."""
    made = alice.post("/queues")
    assert made.status_code == 201
    return made.headers["Location"]
