"""The last hour of a node: samples of the minutes in which something happened, whichever frontend counts."""

from dataclasses import astuple

import pytest

from broker import keys
from broker.model.commands import Declare, Delete, Publish, Retract, ShowHistory, Subscribe, Unsubscribe
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Declared, Done, History, Published, Refused, Retracted, Sample, Subscribed
from broker.redis_core.core import RedisCore
from broker.redis_core.records.store import NodeStore
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store

ALICE, W1 = Jid("alice@x/a"), Jid("w1@x/a")
MINUTE = 60_000


class Clock:
    """Redis's time for samples."""

    def __init__(self, now_ms: int) -> None:
        """Start at a time."""
        self.now_ms = now_ms


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """Let minutes pass when a test wants it; changed nodes are always known."""
    made = Clock(0)

    async def now(directory: NodeStore) -> int:
        seconds, micros = await directory._server.command("TIME")
        return int(seconds) * 1000 + int(micros) // 1000 + made.now_ms

    monkeypatch.setattr(NodeStore, "now_ms", now)
    return made


async def shown(core: RedisCore, node: str) -> tuple[Sample, ...]:
    """Return the samples of a node."""
    found = await core.ask(ShowHistory(node, ALICE))
    assert isinstance(found, History)
    return found.samples


async def sampled(core: RedisCore) -> None:
    """Have a frontend count a node, as it does after a report of a change."""
    core.metrics.keep(set())
    await core.measure()


async def published(core: RedisCore, node: str, count: int) -> None:
    """Publish items."""
    for _ in range(count):
        assert isinstance(await core.ask(Publish(node, ALICE, None, b"payload", 7)), Published)


@SOMEWHERE
async def test_an_hour(clock: Clock, make_core: MakeCore, node: str) -> None:
    """R5: each minute has its last state; idle ones have none; older samples are reduced to one, the start of the hour."""
    core, door = await make_core()
    assert isinstance(await core.ask(Declare(node, ALICE, {})), Declared)
    (made, now) = await shown(core, node)
    assert astuple(made)[1:] == astuple(now)[1:] == (0,) * 6
    for count in (2, 1):
        await published(core, node, count)
        await sampled(core)
    clock.now_ms += 10 * MINUTE
    await worked(core, door, node)
    await sampled(core)
    clock.now_ms += MINUTE
    found = await shown(core, node)
    # At most one sample a minute: of the two of the first minute the last one stays, unless the minute ended between.
    assert [each.published for each in found][-3:] == [3, 3, 3] and 4 <= len(found) <= 5
    assert [(each.waiting, each.finished, each.attempts) for each in found][-2:] == [(2, 1, 2), (2, 1, 2)]
    assert found[-1].at_ms - found[-2].at_ms >= MINUTE
    clock.now_ms += 55 * MINUTE
    later = await shown(core, node)
    # The hour began with three items, and one was done in it.
    assert [(each.published, each.finished) for each in later] == [(3, 0), (3, 1), (3, 1)]
    assert later[0].at_ms < later[-1].at_ms - 60 * MINUTE


async def worked(core: RedisCore, door: Door, node: str) -> None:
    """Acknowledge one item, and release another."""
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    await door.until(lambda: bool(door.deliveries))
    first = door.deliveries[0]
    assert isinstance(await core.ask(Retract(node, W1, first.item_id, first.token)), Retracted)
    await door.until(lambda: len(door.deliveries) > 1)
    await core.ask(Unsubscribe(node, W1, W1, "", release=True))


async def test_another_life(clock: Clock, make_core: MakeCore, node: str) -> None:
    """A deleted node takes its history with it, and what another incarnation left is not shown."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await published(core, node, 2)
    await sampled(core)
    late = await core._store.now_ms()
    assert isinstance(await core.ask(Delete(node, ALICE)), Done)
    refused = await core.ask(ShowHistory(node, ALICE))
    assert isinstance(refused, Refused) and refused.problem is Problem.NODE_NOT_FOUND
    assert await core._server.command("EXISTS", f"sq:{{{node}}}:hour") == 0
    # A frontend that counted it before the deletion writes late.
    await core._server.command("HSET", f"sq:{{{node}}}:hour", 1, f"{late - 1} 2 0 0 2 0 0")
    await core.ask(Declare(node, ALICE, {}))
    assert [each.published for each in await shown(core, node)] == [0, 0]


async def test_an_unreadable_sample(make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 8: a history leaves out samples of another form."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    whole = await shown(core, node)
    async with store.client() as client:
        texts = {"7": "1 2 3 4 5 6 7 8", "8": "1 2", "9": "a b c d e f g"}
        await client.hset(keys.of_node("hour", node), mapping=texts)
    assert len(await shown(core, node)) == len(whole)
