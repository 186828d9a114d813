"""An AMQP frontend over a real Redis, and logs to read."""

import asyncio
import itertools
from collections.abc import Callable, Iterator, Mapping

import pytest
from proton.utils import BlockingConnection

from broker.model.commands import Declare
from broker.model.names import Jid
from broker.model.results import Declared
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.admitting import ADMITTING
from tests.doors.amqp.served import AmqpFrontend, connected
from tests.doors.frontend import ALICE

_NAMES = itertools.count()

NewLog = Callable[..., str]
"""Makes a log with so many partitions, and options by their wire names."""


def made(url: str, partitions: int = 1, *, queueing: bool = False, **options: str) -> str:
    """Create a node of Alice's; options by their wire names, with `__` for `#`."""
    name = f"log{next(_NAMES)}"
    fields = {"stanzaq#partitions": (str(partitions),), "stanzaq#retention_items": ("1000000",)}
    fields |= {option.replace("__", "#"): (value,) for option, value in options.items()}
    fields["{urn:xmpp:pubsub:queueing:0}enabled"] = ("1" if queueing else "0",)
    asyncio.run(
        _declare(
            CommandSettings(**ADMITTING, redis_url=url, node_quota=100_000, partition_quota=1_000_000), name, fields
        )
    )
    return name


async def _declare(settings: CommandSettings, name: str, fields: Mapping[str, tuple[str, ...]]) -> None:
    # A core by hand: a `stanzaq` command would configure the logs of the process that runs all these tests.
    core = RedisCore(settings, None)
    try:
        assert await core.ask(Declare(name, Jid(ALICE), fields)) == Declared(name)
    finally:
        await core.stop()


@pytest.fixture(scope="session")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="session")
def frontend(redis: RedisServer) -> Iterator[AmqpFrontend]:
    """Provide a frontend with common settings."""
    with AmqpFrontend(redis.url) as server:
        yield server


@pytest.fixture
def alice(frontend: AmqpFrontend) -> Iterator[BlockingConnection]:
    """Return a connection of the owner of the logs."""
    with connected(frontend) as connection:
        yield connection


@pytest.fixture
def new_log(redis: RedisServer) -> NewLog:
    """Return a function that creates nodes."""

    def make(partitions: int = 1, *, queueing: bool = False, **options: str) -> str:
        return made(redis.url, partitions, queueing=queueing, **options)

    return make
