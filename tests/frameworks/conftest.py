"""A service at its HTTP door, for web servers that publish and workers beside them."""

from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from frontends.tools.servers.redis import RedisServer
from tests.doors.frontend import ALICE, HASH
from tests.doors.rest.served import RestFrontend


@pytest.fixture(scope="session")
def door() -> Iterator[RestFrontend]:
    """Provide an HTTP frontend and a Redis."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer())
        yield stack.enter_context(RestFrontend(redis.url, HTTP_PASSWORDS=f"{ALICE}:{HASH}"))
