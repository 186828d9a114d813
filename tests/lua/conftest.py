"""Partitions for script tests, each on every server that must run the operations, in either packaging."""

import secrets
from collections.abc import Iterator
from typing import Any

import fakeredis
import pytest
import redis

from broker.model.names import Partition
from broker.settings import Packaging
from frontends.tools.servers.redis import RedisServer
from tests.lua.driver import Queue, Runner
from tests.lua.records import Records


@pytest.fixture(scope="session")
def runners(valkey: RedisServer, redis7: RedisServer) -> Iterator[dict[str, Runner]]:
    """Return the servers that scripts run on."""
    clients = {name: redis.Redis.from_url(server.url) for name, server in (("valkey", valkey), ("redis7", redis7))}
    packagings = {"valkey": Packaging.FUNCTIONS, "redis7": Packaging.SCRIPTS}
    found = {name: Runner(client, packagings[name], guarded=True) for name, client in clients.items()}
    found["fakeredis"] = Runner(_fakeredis(), Packaging.SCRIPTS, plain=True)
    yield found
    for client in clients.values():
        client.close()


class _CompiledOnce:
    """The Lua runtime of a fakeredis, which by itself compiles a text again for each call, in two thirds of the call's time."""

    def __init__(self, runtime: Any) -> None:  # noqa: ANN401  (lupa's)
        """Compile by this runtime."""
        self._runtime = runtime
        self._compiled: dict[bytes | str, Any] = {}

    def execute(self, text: bytes | str) -> Any:  # noqa: ANN401  (what the text returns)
        """Run a text."""
        if text not in self._compiled:
            self._compiled[text] = self._runtime.compile(text)
        return self._compiled[text]()

    def __getattr__(self, name: str) -> Any:  # noqa: ANN401  (whatever it has)
        """Leave the rest to the runtime."""
        return getattr(self._runtime, name)


def _fakeredis() -> fakeredis.FakeRedis:
    server = fakeredis.FakeServer()
    client = fakeredis.FakeRedis(server=server)
    client.eval("return 1", 0)
    server._lua_runtime = _CompiledOnce(server._lua_runtime)  # type: ignore[attr-defined]  # made by the first script
    return client


ON_SERVERS = pytest.mark.parametrize("runner", ["valkey", "redis7"], indirect=True)
"""Tests of thousands of calls skip fakeredis, which takes twenty times as long and which nobody runs in production."""


@pytest.fixture(params=["valkey", "redis7", "fakeredis"])
def runner(request: pytest.FixtureRequest, runners: dict[str, Runner]) -> Runner:
    """Return each server in turn."""
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
    """Return three open partitions of one node; the first is the coordinator."""
    life = secrets.token_hex(4)
    coordinator, one, two = (Queue(runner, Partition("jobs", life, number)) for number in range(3))
    for queue in (coordinator, one, two):
        queue.open(partitions=3)
    return coordinator, one, two


@pytest.fixture
def records(runner: Runner) -> Records:
    """Return the records of a node or JID of this test only."""
    return Records(runner)
