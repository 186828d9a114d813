"""Cores over a real server, each with a door that only records."""

# ruff: noqa: ANN401  (settings are what their own model says)

import asyncio
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import pytest
import redis.asyncio as aioredis

from broker.model.commands import Command, Stats
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from tests.admitting import ADMITTING
from tests.contract.proxy import LossyNetwork
from tests.operations import as_user, make_user
from tests.waiting import PATIENCE_SECONDS

_OWNER = Jid("alice@x/home")
"""Who creates the nodes in these tests, and so may count their items."""


class Door:
    """A door that records what it is handed; `writes` False is a stream that is down."""

    def __init__(self) -> None:
        """Start with nothing recorded."""
        self.deliveries: list[Delivery] = []
        self.batches: list[Sequence[Delivery]] = []
        self.notices: list[Notice] = []
        self.writes = True
        self.slow = False
        self._changed = asyncio.Event()

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Record deliveries."""
        self.deliveries += batch
        self.batches.append(batch)
        self._changed.set()

    def notify(self, notice: Notice) -> None:
        """Record a notice."""
        self.notices.append(notice)
        self._changed.set()

    def congested(self) -> bool:
        """Return whether much is unwritten: only when a test says so."""
        return self.slow

    def flushed(self) -> bool:
        """Return whether everything is written."""
        return self.writes

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until what was recorded makes this true."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not holds():
                self._changed.clear()
                await self._changed.wait()


class Asked:
    """Submits commands and counts how often each was answered."""

    def __init__(self, core: RedisCore) -> None:
        """Submit to this core."""
        self._core = core
        self.results: list[list[Any]] = []

    def submit(self, *commands: Command) -> None:
        """Submit commands in one loop turn."""
        for command in commands:
            answers: list[Any] = []
            self.results.append(answers)
            self._core.submit(command, answers.append)

    async def settled(self) -> list[Any]:
        """Wait until all are answered; return the answers, and check that each came once."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not all(self.results):  # noqa: ASYNC110  (whoever answers knows no event of ours)
                await asyncio.sleep(0.005)
        # Wait a little, so that a second answer would be seen.
        await asyncio.sleep(0.02)
        assert [len(answers) for answers in self.results] == [1] * len(self.results)
        return [answers[0] for answers in self.results]


async def lose_reply(
    core: RedisCore, network: LossyNetwork, node: str, command: Command, *, about: str, loss: str = "losing"
) -> None:
    """Ask for a command whose reply is lost once Redis has run it; `about` is text that only its call contains.

    Another reply may be lost first, a heartbeat's, or the time be over before Redis has the call: then it is asked again.
    """
    network.about = about.encode()
    network.answered.clear()
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not network.answered.is_set():
            # On a connection that replaces a lost one nothing would reach Redis.
            while isinstance(await core.ask(Stats(node, _OWNER)), Refused):  # noqa: ASYNC110  (asked, not told)
                await asyncio.sleep(0.02)
            setattr(network, loss, True)
            lost = await core.ask(command)
            setattr(network, loss, False)
            assert isinstance(lost, Refused) and lost.problem in {Problem.TIMED_OUT, Problem.UNAVAILABLE}


@dataclass(frozen=True, slots=True)
class Store:
    """A Redis of any kind: its URL for cores, with a user of minimal permissions, and a client that may do everything."""

    url: str
    client: Callable[[], Any]


MakeCore = Callable[..., Awaitable[tuple[RedisCore, Door]]]


@pytest.fixture
def node() -> str:
    """Return a name that no other test uses."""
    return f"jobs-{secrets.token_hex(4)}"


@pytest.fixture
def store(request: pytest.FixtureRequest) -> Store:
    """Provide one server; a test may be parametrized with `cluster` or `sentinels`."""
    match getattr(request, "param", "valkey"):
        case "cluster":
            cluster = request.getfixturevalue("redis_cluster")
            return Store(cluster.url, partial(aioredis.RedisCluster, "127.0.0.1", cluster.nodes[0].port))
        case "sentinels":
            sentinels = request.getfixturevalue("redis_sentinels")
            return Store(sentinels.url, partial(aioredis.Redis.from_url, sentinels.master().url))
        case _:
            valkey = request.getfixturevalue("valkey")
            make_user(valkey.url, "stanzaq")
            return Store(as_user(valkey.url, "stanzaq"), partial(aioredis.Redis.from_url, valkey.url))


EVERYWHERE = pytest.mark.parametrize("store", ["valkey", "cluster", "sentinels"], indirect=True)
"""The test holds on one server, on a cluster, and with sentinels."""

SOMEWHERE = pytest.mark.parametrize(
    "store", ["valkey", "cluster", pytest.param("sentinels", marks=pytest.mark.soak)], indirect=True
)
"""The same, for what no failover changes: behind sentinels a core meets one server, and `make soak` runs it there too."""


@pytest.fixture
async def make_core(store: Store) -> AsyncIterator[MakeCore]:
    """Return a function that starts cores on an empty server; all are stopped at the end."""
    async with store.client() as client:
        # Cores of earlier tests are dead frontends, and would be taken over.
        await client.flushall()
    cores: list[RedisCore] = []

    async def make(url: str = store.url, **more: Any) -> tuple[RedisCore, Door]:
        door = Door()
        given = {"redis_url": url, "xmpp_domain": "queue.localhost", "xmpp_secret": "secret", **more}
        core = RedisCore(Settings(**(ADMITTING | given)), door)
        await core.start()
        cores.append(core)
        return core, door

    yield make
    for core in cores:
        await core.stop()


@pytest.fixture
async def core_and_door(make_core: MakeCore) -> tuple[RedisCore, Door]:
    """Return one core and its door."""
    return await make_core()


@pytest.fixture
def core(core_and_door: tuple[RedisCore, Door]) -> RedisCore:
    """Return the core alone."""
    return core_and_door[0]


@pytest.fixture
def door(core_and_door: tuple[RedisCore, Door]) -> Door:
    """Return the door of `core`."""
    return core_and_door[1]
