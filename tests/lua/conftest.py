"""Partitions for tests of operations: as functions on Valkey, and a sample as scripts on Redis 7."""

import secrets
from collections.abc import Iterator

import pytest
import redis

from broker.model.names import Partition
from broker.settings import Packaging
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import Queue, Runner
from tests.lua.records import Records
from tests.redis_latency import SEED

_SEEN = pytest.StashKey[set[str]]()
"""The files of which a test runs on both servers."""


@pytest.fixture(scope="session")
def runners(valkey: RedisServer, redis7: RedisServer) -> Iterator[dict[str, Runner]]:
    """Return the servers that scripts run on."""
    clients = {name: redis.Redis.from_url(server.url) for name, server in (("valkey", valkey), ("redis7", redis7))}
    packagings = {"valkey": Packaging.FUNCTIONS, "redis7": Packaging.SCRIPTS}
    yield {name: Runner(client, packagings[name], guarded=True) for name, client in clients.items()}
    for client in clients.values():
        client.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run the first test of each file as a script on Redis 7 too, and `make soak` all of them: the text of both is the same."""
    chosen = any("runner" in mark.args[0] for mark in metafunc.definition.iter_markers("parametrize"))
    if "runner" in metafunc.fixturenames and not chosen:
        seen = metafunc.config.stash.setdefault(_SEEN, set())
        sampled = metafunc.module.__name__ not in seen or SEED
        seen.add(metafunc.module.__name__)
        metafunc.parametrize("runner", ["valkey", "redis7"] if sampled else ["valkey"], indirect=True)


@pytest.fixture
def runner(request: pytest.FixtureRequest, runners: dict[str, Runner]) -> Runner:
    """Return a server."""
    return runners[request.param]


@pytest.fixture
def unopened(runner: Runner) -> Queue:
    """Return a partition that is not opened."""
    return Queue(runner, Partition("jobs", secrets.token_hex(4)))


@pytest.fixture
def queue(unopened: Queue) -> Queue:
    """Return an open partition: locks of a minute, twenty deliveries, dead letters."""
    unopened.open()
    return unopened


@pytest.fixture
def parts(runner: Runner) -> tuple[Queue, Queue, Queue]:
    """Return three open partitions of one node, in their order."""
    life = secrets.token_hex(4)
    first, one, two = (Queue(runner, Partition("jobs", life, number)) for number in range(3))
    for queue in (first, one, two):
        queue.open(partitions=3)
    return first, one, two


@pytest.fixture
def records(runner: Runner) -> Records:
    """Return the records of a node or JID of this test only."""
    return Records(runner)
