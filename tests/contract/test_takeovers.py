"""A frontend that dies at any moment: all that it was handed arrives, with the same token, some of it twice."""

# ruff: noqa: ANN401  (stands in for the connection to Redis)

import asyncio
import random
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from broker.model.commands import Declare, Publish, Retract, Subscribe
from broker.model.items.items import Delivery
from broker.model.names import Jid, Partition
from broker.model.problems import CoreUnavailable
from broker.model.results import Published, Retracted, Subscribed
from broker.redis_core.commands.internal import Scanned, TakeOver
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sent_until, sweeper
from broker.redis_core.redis_client.client import Line
from broker.redis_core.redis_client.durability import DurableCall
from tests.contract.conftest import Door, MakeCore
from tests.seeds import seeds
from tests.waiting import PATIENCE_SECONDS

ALICE, WORKER = Jid("alice@x"), Jid("w@x/1")


@pytest.fixture
def mortal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a frontend be dead soon after its last heartbeat, and its server read fast."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.05)
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 300)
    monkeypatch.setattr(sent_until, "READ_SECONDS", 0.15)
    # The margins would hide a fault.
    monkeypatch.setattr(sweeper, "CLOCK_SECONDS", 0.0)
    monkeypatch.setattr(sweeper, "LATE_SECONDS", 0.1)


class Stream:
    """What becomes of a core's deliveries: written in order, some late, and read within `READ_SECONDS`."""

    def __init__(self, door: Door, dice: random.Random) -> None:
        """Take the place of the door's `deliver` and `flushed`."""
        self._dice = dice
        self._written = 0.0
        self.read: list[tuple[float, Delivery]] = []
        door.deliver = self.deliver  # type: ignore[method-assign]
        door.flushed = lambda: self._written <= time.monotonic()  # type: ignore[method-assign]

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Write a batch."""
        self._written = max(self._written, time.monotonic() + self._dice.choice((0.0, 0.0, 0.1)))
        at = self._written + self._dice.uniform(0, sent_until.READ_SECONDS)
        self.read += [(at, each) for each in batch]

    def arrived(self, until: float) -> list[Delivery]:
        """Return what was read before the stream broke."""
        return [each for at, each in self.read if at < until]


class Severed:
    """The connection of a dead process to Redis."""

    returns = 0

    async def send(self, _lines: Any, _durable: object = None) -> Any:
        """Fail at once."""
        msg = "dead"
        raise CoreUnavailable(msg)

    async def close(self) -> None:
        """Nothing to close."""


async def kill(core: RedisCore) -> None:
    """End a core between any two of its steps: nothing more of it is sent."""
    link, core._server._link = core._server._link, Severed()  # type: ignore[assignment]
    for task in core._running:
        task.cancel()
    await link.close()


def lock(delivery: Delivery) -> tuple[Partition, int]:
    """Return what names a lock: items of two queues may have one id, and one token."""
    return delivery.partition, delivery.token


@pytest.mark.parametrize("seed", seeds(2))
async def test_killed_under_load(mortal: None, make_core: MakeCore, node: str, seed: int) -> None:
    """Guarantee 4: whenever it dies, what the server has not read comes from another, and nothing comes a third time."""
    dice = random.Random(seed)
    (doomed, door), (other, its_door) = await make_core(), await make_core()
    stream, queues = Stream(door, dice), [f"{node}-{number}" for number in range(3)]
    for queue in queues:
        await other.ask(Declare(queue, ALICE, {}))
        assert isinstance(await other.ask(Subscribe(queue, WORKER, WORKER, 1_000)), Subscribed)
    ends = time.monotonic() + dice.uniform(0.2, 1.2)
    while time.monotonic() < ends:
        for queue in dice.sample(queues, 2):
            doomed.submit(Publish(queue, ALICE, None, b"x", 1), lambda _result: None)
        await asyncio.sleep(dice.uniform(0, 0.01))
    died = time.monotonic()
    await kill(doomed)
    handed_out = {lock(each) for _at, each in stream.read}
    arrived = stream.arrived(died)
    there = {lock(each) for each in arrived}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while doomed.frontend in {*await other._heartbeat.live_frontends(), *other._sweeper._taking_over}:  # noqa: ASYNC110
            await asyncio.sleep(0.02)
        await its_door.until(lambda: handed_out <= {lock(each) for each in [*arrived, *its_door.deliveries]})
    counts = Counter(lock(each) for each in [*arrived, *its_door.deliveries])
    assert max(counts.values()) <= 2
    # Something was still under way, and something had arrived.
    assert there and there != handed_out
    last = its_door.deliveries[-1]
    assert isinstance(await other.ask(Retract(last.partition.node, WORKER, last.item_id, last.token)), Retracted)


async def test_a_late_heartbeat(mortal: None, make_core: MakeCore, node: str) -> None:
    """Guarantee 4: a heartbeat that Redis runs late, or twice, does not say that more is sent than was when it was written."""
    (doomed, door), (other, its_door) = await make_core(), await make_core()
    await other.ask(Declare(node, ALICE, {}))
    await other.ask(Subscribe(node, WORKER, WORKER, 10))
    late: list[Sequence[Line]] = []
    run_all = doomed._server.run_all

    async def held_back(calls: Sequence[Line], durable: DurableCall | None = None) -> list[Any]:
        if calls[0][1] == "heartbeat":
            late.append(calls)
        return await run_all(calls, durable)

    doomed._server.run_all = held_back  # type: ignore[method-assign]
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(late) < 5:  # noqa: ASYNC110  (heartbeats come by themselves)
            await asyncio.sleep(0.02)
    door.writes = False
    published = await doomed.ask(Publish(node, ALICE, None, b"x", 1))
    assert isinstance(published, Published)
    await kill(doomed)
    # It runs on another's connection, as if it had been under way for a while.
    await asyncio.sleep(0.2)
    await other._server.run_all(late[-1])
    await its_door.until(lambda: [each.item_id for each in its_door.deliveries] == [published.item_id])


async def test_a_takeover_that_is_late(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 4: a call that was under way for long looks at too little, so all is looked at again, from further back."""
    core, _ = await make_core()
    asked: list[TakeOver] = []

    async def ask(command: TakeOver) -> Scanned:
        asked.append(command)
        if len(asked) == 2:
            await asyncio.sleep(0.3)
        return Scanned("l7" if len(asked) == 1 else "0", 5)

    monkeypatch.setattr(sweeper, "LATE_SECONDS", 0.2)
    monkeypatch.setattr(core._sweeper, "_ask", ask)
    dead = heartbeat.DeadFrontend("dead", time.monotonic() - 1)
    assert await core._sweeper.take_over_partition(Partition(node, ""), dead)
    assert [(each.scan, each.upto) for each in asked] == [("0", None), ("l7", 5), ("0", 5)]
    assert 3_200 <= asked[0].age_ms <= asked[1].age_ms < asked[2].age_ms - 300


async def test_another_master_is_away(
    mortal: None, make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 4: while some of a dead frontend's partitions cannot be looked at, those of other masters are taken over."""
    (doomed, door), (other, its_door) = await make_core(), await make_core()
    await other.ask(Declare(node, ALICE, {}))
    await other.ask(Subscribe(node, WORKER, WORKER, 10))

    async def away(_partitions: Sequence[Partition], _frontend: str) -> list[Partition]:
        raise CoreUnavailable(node)

    monkeypatch.setattr(other._store, "find_partitions_of", away)
    door.writes = False
    assert isinstance(await doomed.ask(Publish(node, ALICE, None, b"x", 1)), Published)
    await kill(doomed)
    await its_door.until(lambda: len(its_door.deliveries) == 1)
