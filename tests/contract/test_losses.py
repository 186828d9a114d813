"""Lost replies, dead frontends and a Redis that goes away: nothing is lost, and every command is answered."""

import asyncio
import time
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker import keys
from broker.model.commands import (
    Cancel,
    Configure,
    Declare,
    Publish,
    Retract,
    Stats,
    Subscribe,
)
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Cancelled, Counted, Published, Refused, Retracted
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import heartbeat, sent_until, sweeper
from broker.redis_core.redis_client.client import Answer, Line
from broker.redis_core.redis_client.durability import DurableCall
from broker.settings import CommandSettings
from broker.tasks import FAILED, STOPPED
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.contract.conftest import Asked, MakeCore, Store
from tests.contract.proxy import LossyNetwork
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/a")


def item(node: str, item_id: str | None = None) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, b"payload", 7)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a frontend be dead after a fifth of a second without a heartbeat."""
    monkeypatch.setattr(heartbeat, "DEAD_AFTER_MS", 200)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(sent_until, "READ_SECONDS", 0.0)


async def network_to(server: RedisServer) -> LossyNetwork:
    """Put a lossy network before a server."""
    return LossyNetwork(server.url.removeprefix("unix://"))


@pytest.mark.parametrize("count", [3, 600])
async def test_lost_reply(make_core: MakeCore, valkey: RedisServer, node: str, count: int) -> None:
    """X8, guarantee 1: the command is answered in time, and items that the lost script handed out are sent, each once."""
    async with await network_to(valkey) as network:
        core, door = await make_core(network.url)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 1))
        await core.ask(item(node, "first"))
        await core.ask(Subscribe(node, W2, W2, 0))
        asked = Asked(core)
        asked.submit(*(item(node, f"i{n}") for n in range(count)))
        await asked.settled()
        network.losing = True
        lost = await core.ask(Subscribe(node, W2, W2, 1000))
        assert isinstance(lost, Refused) and lost.problem in {Problem.TIMED_OUT, Problem.UNAVAILABLE}
        assert network.answered.is_set() and len(door.deliveries) == 1
        network.losing = False
        await door.until(lambda: len(door.deliveries) >= count + 1)
        assert {d.item_id for d in door.deliveries} == {"first", *(f"i{n}" for n in range(count))}
        tokens = Counter(d.token for d in door.deliveries)
        assert max(tokens.values()) <= 2 and sum(tokens.values()) <= count + 1 + 2 * 200
        assert isinstance(await core.ask(Retract(node, W2, "i0")), Retracted)


async def test_lost_while_searching(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """X8: a search whose own reply is lost begins anew, from where the first reply was lost: it has not looked at all."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 2_000))
    asked = Asked(core)
    asked.submit(*(item(node, f"old{n}") for n in range(1_000)))
    await asked.settled()
    await door.until(lambda: len(door.deliveries) == 1_000)
    run_all, calls = core._server.run_all, Counter[Any]()

    async def losing(lines: Sequence[Line], _durable: object = None) -> list[Any]:
        replies = await run_all(lines)
        name = lines[0][1]
        calls[name] += 1
        if (name, calls[name]) in {("publish", 1), ("take_over", 5)}:
            raise CoreUnavailable(node)
        return replies

    monkeypatch.setattr(core._server, "run_all", losing)
    lost = {f"new{n}" for n in range(200)}
    asked = Asked(core)
    asked.submit(*(item(node, name) for name in lost))
    await asked.settled()
    await door.until(lambda: lost <= {each.item_id for each in door.deliveries})
    assert calls["take_over"] > 5


async def test_late_script(quick: None, make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """X8, guarantee 4: a script that reaches Redis long after its time-out hands nothing out, since nobody would learn of it."""
    async with await network_to(valkey) as network:
        core, door = await make_core(network.url, redis_timeout=1.0)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 100))
        await core.ask(item(node, "a"))
        network.holding = True
        late = asyncio.create_task(core.ask(item(node, "late")))
        await network.held.wait()
        # Only new requests are held back; the heartbeat may have been the first.
        assert isinstance(await late, Refused)
        network.holding = False
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not isinstance(await core.ask(item(node, "b")), Published):  # noqa: ASYNC110  (asked, not told)
                await asyncio.sleep(0.05)
            # The pipeline has searched as often as it wants to.
            while any(pipeline.reply_lost or not pipeline.quiet for pipeline in core.pipelines()):  # noqa: ASYNC110
                await asyncio.sleep(0.05)
            network.release()
            await network.late.wait()
        await asyncio.sleep(0.2)
        counted = await core.ask(Stats(node, ALICE))
        assert isinstance(counted, Counted)
        assert [each.item_id for each in door.deliveries] == ["a", "b"] and counted.in_flight == 2


async def test_idle_connections_are_reset(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """Guarantee 8: a connection that was reset while nobody used it is opened again, and no command fails of it."""
    async with await network_to(valkey) as network:
        core, _ = await make_core(network.url, redis_timeout=10)
        await core.ask(Declare(node, ALICE, {}))
        for _ in range(5):
            await asyncio.gather(*(core.ask(Stats(node, ALICE)) for _ in range(3)))
            network.reset()
            # The core learns of it when its loop next looks at its sockets.
            await asyncio.sleep(0.05)
            assert isinstance(await core.ask(item(node)), Published)


async def test_everyone_is_answered_once(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """Q26: commands that the policy refused, those whose script was lost, and those after them get one answer each."""
    async with await network_to(valkey) as network:
        core, _ = await make_core(network.url)
        await core.ask(Declare(node, ALICE, {}))
        asked = Asked(core)
        network.losing = True
        stranger = Publish(node, Jid("bob@x/1"), None, b"x", 1)
        asked.submit(stranger, item(node), Subscribe(node, W1, W1, 1), Retract(node, W1, "none"), stranger)
        results = await asked.settled()
        assert all(isinstance(result, Refused) for result in results)
        network.losing = False
        again = Asked(core)
        again.submit(item(node), stranger)
        assert [type(result) for result in await again.settled()] == [Published, Refused]


async def test_a_delivery_that_cannot_be_sent(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 8: a door that fails over one delivery gets the others, and every command has an answer."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 10))
    deliver = door.deliver

    def failing(batch: Sequence[Delivery]) -> None:
        if batch[0].item_id == "bad":
            msg = "not this one"
            raise RuntimeError(msg)
        deliver(batch)

    monkeypatch.setattr(core._outlet, "deliver", failing)
    asked = Asked(core)
    # Two scripts: commands after the one that hands out are answered too.
    asked.submit(item(node, "a"), item(node, "bad"), item(node, "b"), Stats(node, ALICE), Retract(node, W1, "none"))
    assert [type(result) for result in await asked.settled()] == [Published] * 3 + [Counted, Refused]
    assert [each.item_id for each in door.deliveries] == ["a", "b"]


async def test_a_reply_that_is_not_understood(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 8: a command whose reply cannot be read is answered, and items that it handed out are found and sent."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 10))
    server, lost = core._server, list[str]()
    run_all = server.run_all

    async def garbled(calls: Sequence[Line], _durable: object = None) -> list[Any]:
        replies = await run_all(calls)
        for number, call in enumerate(calls):
            if call[1] == "publish" and not lost:
                lost.append("publish")
                replies[number] = [b"ok", b"nonsense"]
        return replies

    monkeypatch.setattr(server, "run_all", garbled)
    asked = Asked(core)
    asked.submit(item(node, "a"), Stats(node, ALICE))
    refused, counted = await asked.settled()
    assert refused == FAILED and isinstance(counted, Counted)
    await door.until(lambda: [each.item_id for each in door.deliveries] == ["a"])


async def test_one_answer_that_is_not_understood(
    make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 8: if one of many answers cannot be read, their commands are refused, and each delivery is sent once."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("600",)}))
    await core.ask(Subscribe(node, W1, W1, 1_000))
    server, spoilt = core._server, list[str]()
    run_all = server.run_all

    async def garbled(calls: Sequence[Line], _durable: object = None) -> list[Any]:
        replies = await run_all(calls)
        if calls[0][1] == "publish" and not spoilt:
            spoilt.append("publish")
            replies[0][1][7] = [b"nonsense"]
        return replies

    monkeypatch.setattr(server, "run_all", garbled)
    asked = Asked(core)
    # Three calls: the answers of the first are given during the second.
    asked.submit(*(item(node, f"i{number}") for number in range(450)))
    results = await asked.settled()
    assert results[:200] == [FAILED] * 200 and all(isinstance(each, Published) for each in results[200:])
    await door.until(lambda: len({each.item_id for each in door.deliveries}) == 450)
    assert isinstance(await core.ask(Stats(node, ALICE)), Counted)
    assert len(door.deliveries) == 450


async def test_a_notice_that_fails(make_core: MakeCore, node: str) -> None:
    """What a call tells of a lock that ended, and what it hands out, do not depend on each other."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("600",)}))
    for worker in (W1, W2):
        await core.ask(Subscribe(node, worker, worker, 1))
        await core.ask(item(node, worker))
    await door.until(lambda: len(door.deliveries) == 2)
    await core.ask(item(node, "next"))

    def fail(notice: Notice) -> None:
        raise RuntimeError(notice)

    door.notify = fail  # type: ignore[method-assign]
    assert await core.ask(Cancel(node, ALICE, door.deliveries[0].item_id)) == Cancelled()
    await door.until(lambda: [each.item_id for each in door.deliveries[2:]] == ["next"])


async def test_a_defect_between_two_calls(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 8: answers that wait for the next call are given also if there is no next call."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    server, asked, found = core._server, Asked(core), list[Any]()
    run_all = server.run_all

    def look(outcome: object) -> None:
        found.append((outcome, sum(map(len, asked.results))))

    async def interrupted(calls: Sequence[Line], _durable: object = None) -> list[Any]:
        replies = await run_all(calls)
        if calls[0][1] == "publish":
            # No operation carries it out.
            core.router(node).pipeline().submit(object(), look)  # type: ignore[arg-type]
        return replies

    monkeypatch.setattr(server, "run_all", interrupted)
    asked.submit(*(item(node, f"i{number}") for number in range(40)))
    assert all(isinstance(each, Published) for each in await asked.settled())
    assert found == [(STOPPED, 40)]


async def sent_until_after(core: RedisCore, seconds: float) -> None:
    """Wait until all that was handed to a core before this time of the steady clock is sent."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while core.sent_until <= seconds:  # noqa: ASYNC110  (heartbeats find out)
            await asyncio.sleep(0.01)


async def test_dead_frontend(quick: None, make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 4, X8: another frontend sends what a dead one had not sent, same token, and nothing older."""
    # What was sent half a second before is older, and a call may take up to 5 s.
    monkeypatch.setattr(sweeper, "CLOCK_SECONDS", -4.5)
    monkeypatch.setattr(sweeper, "LATE_SECONDS", 5.0)
    (dying, door), (other, its_door) = await make_core(), await make_core()
    await dying.ask(Declare(node, ALICE, {}))
    await dying.ask(Subscribe(node, W1, W1, 10))
    await dying.ask(item(node, "sent"))
    handed = time.monotonic()
    await sent_until_after(dying, handed + 0.6)
    door.writes = False
    await asyncio.sleep(1)
    await dying.ask(item(node, "unsent"))
    for task in dying._running:
        task.cancel()
    await its_door.until(lambda: bool(its_door.deliveries))
    unsent = next(d for d in door.deliveries if d.item_id == "unsent")
    assert {(d.item_id, d.token) for d in its_door.deliveries} == {("unsent", unsent.token)}
    assert isinstance(await other.ask(Retract(node, W1, "unsent", unsent.token)), Retracted)


async def test_takeover_passes_idle_nodes_over(make_core: MakeCore, node: str) -> None:
    """Guarantee 4: a dead frontend's deliveries are found at once among many nodes, of which it served some."""
    core, _ = await make_core()
    doomed, door = await make_core()
    for name in (f"{node}-idle", f"{node}-done", f"{node}-owed"):
        await core.ask(Declare(name, ALICE, {}))
    for name in (f"{node}-done", f"{node}-owed"):
        await doomed.ask(Subscribe(name, W1, W1, 1))
        await doomed.ask(item(name, "a"))
    assert len(door.deliveries) == 2
    await core.ask(Retract(f"{node}-done", W1, "a"))
    directory = core._store
    partitions = await directory.partitions([f"{node}-idle", f"{node}-done", f"{node}-owed", f"{node}-gone"])
    assert [each.node for each in await directory.find_partitions_of(partitions, doomed.frontend)] == [f"{node}-owed"]
    assert {each.node for each in await core.served.of(doomed.frontend)} == {f"{node}-done", f"{node}-owed"}


async def test_broken_stream(quick: None, make_core: MakeCore, node: str) -> None:
    """X8: a frontend whose own stream broke sends again what was not written when it is back."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 10))
    await core.ask(item(node, "sent"))
    door.writes = False
    await core.ask(item(node, "unsent"))
    core.on_stream_state(up=False)
    door.writes = True
    core.on_stream_state(up=True)
    await door.until(lambda: [d.item_id for d in door.deliveries].count("unsent") == 2)
    assert len({(d.item_id, d.token) for d in door.deliveries}) == 2
    # Until that was done, no heartbeat told that all is sent.
    await sent_until_after(core, time.monotonic())
    assert len(door.deliveries) <= 4


async def test_expiry_of_itself(quick: None, make_core: MakeCore, node: str) -> None:
    """Guarantee 4, Q35: the heartbeat ends an expired lock, without any command, within its time and a second."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("1",)}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W2, W2, 1))
    async with asyncio.timeout(PATIENCE_SECONDS):
        await door.until(lambda: len(door.deliveries) == 2)
    assert [d.subscriber for d in door.deliveries] == [W1, W2]
    assert len(door.notices) == 1


async def test_expiry_after_a_drain(make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 4: a frontend that stops in order reports the deadlines of locks that it has just handed out."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 10**9)
    _, door = await make_core()
    going, _ = await make_core()
    await going.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("1",)}))
    await going.ask(Subscribe(node, W1, W1, 1))
    await going.ask(item(node, "a"))
    await going.drain(2)
    await going.stop()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await door.until(lambda: [each.attempt for each in door.deliveries] == [2])


async def test_expiry_after_lost_news(
    quick: None, make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Guarantee 4: a frontend that lost the reply with the due partitions sweeps all, and tries again when that fails too."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 10**9)
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("1",)}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    server, directory, lost = core._server, core._store, list[str]()
    run_all, names = server.run_all, directory.swept_names

    async def beating(calls: Sequence[Line], _durable: object = None) -> list[Any]:
        replies = await run_all(calls)
        if "heartbeat" not in lost and calls[0][1] == "heartbeat" and replies[0][3]:
            lost.append("heartbeat")
            raise CoreUnavailable(node)
        return replies

    async def naming(first: int = 0, count: int = 1_000) -> tuple[str, ...]:
        if lost == ["heartbeat"]:
            lost.append("swept_names")
            raise CoreUnavailable(node)
        return await names(first, count)

    monkeypatch.setattr(server, "run_all", beating)
    monkeypatch.setattr(directory, "swept_names", naming)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await door.until(lambda: [each.attempt for each in door.deliveries] == [1, 2])
    assert lost == ["heartbeat", "swept_names"]


@pytest.mark.parametrize("deleted", [False, True])
async def test_forgotten_while_renewing(
    make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """Q26: a pipeline that is told to forget its node's record while it renews that record answers all the same."""
    core, _ = await make_core()
    other, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(item(node))
    directory = core._store
    if deleted:
        record = await directory.read(node)
        assert record
        await directory._delete(record.partition(0))
    else:
        await other.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("5",)}))
    unhindered = directory.open

    async def opened(record: NodeRecord, numbers: tuple[int, ...]) -> bool:
        done = await unhindered(record, numbers)
        core.router(node).forget()
        return done

    monkeypatch.setattr(directory, "open", opened)
    asked = Asked(core)
    asked.submit(item(node))
    (result,) = await asked.settled()
    if deleted:
        assert isinstance(result, Refused) and result.problem is Problem.NODE_NOT_FOUND
    else:
        assert isinstance(result, Published)


@pytest.mark.parametrize("rescuing", [False, True])
async def test_redis_goes_while_renewing(
    make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch, *, rescuing: bool
) -> None:
    """Guarantee 1: a node whose record cannot be read is not gone: commands and takeovers there have to try again."""
    core, _ = await make_core()
    other, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(item(node))
    await other.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("5",)}))

    async def away(_record: NodeRecord, _numbers: tuple[int, ...]) -> bool:
        raise CoreUnavailable(node)

    with monkeypatch.context() as patched:
        patched.setattr(core._store, "open", away)
        if rescuing:
            assert not await core._sweeper.take_over_partition(
                Partition(node, ""), heartbeat.DeadFrontend("nobody", 0.0)
            )
        else:
            assert await core.ask(item(node)) == Refused(
                Problem.UNAVAILABLE, "the service could not complete the request"
            )
    assert isinstance(await core.ask(item(node)), Published)


async def test_waits_do_not_add_up(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """Q26: while Redis hangs, each command is answered within the configured time, however many come at once."""
    async with await network_to(valkey) as network:
        patient, _ = await make_core()
        await patient.ask(Declare(node, ALICE, {}))
        core, _ = await make_core(network.url, redis_timeout=0.6)
        asked = Asked(core)
        network.silent = True
        workers = [Jid(f"w{n}@x/a") for n in range(20)]
        began = asyncio.get_running_loop().time()
        asked.submit(*(Subscribe(node, worker, worker, 1) for worker in workers))
        assert all(isinstance(result, Refused) for result in await asked.settled())
        assert asyncio.get_running_loop().time() - began < 0.6 * len(workers)


async def test_slow_door(quick: None, make_core: MakeCore, node: str) -> None:
    """X11: while its door has much to write, a frontend hands out piece by piece; in the end everything is out."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await asyncio.gather(*(core.ask(item(node)) for _ in range(1_000)))
    door.slow = True
    await core.ask(Subscribe(node, W1, W1, 1_000))
    assert len(door.deliveries) < 1_000
    await door.until(lambda: len(door.deliveries) == 1_000)


async def test_an_unreadable_record(quick: None, make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 8: a record that another version wrote holds up neither other nodes' deliveries nor their measurement."""
    bad = f"{node}-a"
    (dying, first), (core, door) = await make_core(), await make_core()
    for each in (bad, node):
        await dying.ask(Declare(each, ALICE, {}))
        await dying.ask(Subscribe(each, W1, W1, 1))
    # Nothing more leaves it, so what it hands out is never reported as sent.
    first.writes = False
    for each in (bad, node):
        await dying.ask(item(each, each))
    async with store.client() as client:
        await client.hset(keys.of_node("options", bad), "stanzaq#dedupe", "of-another-version")
        core.forget(bad)
        dying._heartbeat.beating = False
        with capture_logs() as logs:
            await door.until(lambda: node in {each.item_id for each in door.deliveries})
            async with asyncio.timeout(PATIENCE_SECONDS):
                # It is tried again until the record can be read, but not with each heartbeat.
                while [each["event"] for each in logs].count("frontend is dead") < 2:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert dying.name in core._sweeper._taking_over or core._sweeper._retry_at.get(dying.name, 0)
            await core.measure()
            refused = await core.ask(item(bad, "more"))
        assert node in core.metrics.measured and bad not in core.metrics.measured
        assert isinstance(refused, Refused) and refused.problem is Problem.UNAVAILABLE
        assert bad in {each["node"] for each in logs if each["event"] == "record not read"}
        await client.hdel(keys.of_node("options", bad), "stanzaq#dedupe")
        await door.until(lambda: bad in {each.item_id for each in door.deliveries})


async def test_a_change_that_was_cut_short(
    make_core: MakeCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frontend that dies after it has changed a node's record: others soon serve the node by what everybody reads there."""
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.03)
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    (dying, _), (core, _) = await make_core(), await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(item(node, "a"))

    async def dead(*_: object) -> bool:
        raise CoreUnavailable(node)

    monkeypatch.setattr(dying._store, "open", dead)
    for task in dying._running:
        task.cancel()
    assert isinstance(await dying.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("7",)})), Refused)
    (partition,) = await core._store.partitions([node])
    async with store.client() as client, asyncio.timeout(PATIENCE_SECONDS):
        while await client.hget(keys.of_partition("meta", partition), "lock_ms") != b"7000":  # noqa: ASYNC110
            await asyncio.sleep(0.02)


async def test_drained_during_a_heartbeat(make_core: MakeCore, store: Store, node: str) -> None:
    """A8: a partition that Redis has taken off the list of due ones for a frontend that stops is on the list again."""
    core, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    taken, answered = asyncio.Event(), asyncio.Event()
    run_all = core._server.run_all

    async def late(calls: Sequence[Line], durable: DurableCall | None = None) -> list[Any]:
        replies = await run_all(calls, durable)
        if calls[0][1] == "heartbeat" and any(node.encode() in name for name in replies[0][3]):
            taken.set()
            await answered.wait()
        return replies

    core._server.run_all = late  # type: ignore[method-assign]
    async with store.client() as client:
        due = str((await core._store.partitions([node]))[0])
        await client.zadd(keys.of_service("due"), {due: 1})
        core._heartbeat.beat_now()
        async with asyncio.timeout(PATIENCE_SECONDS):
            await taken.wait()
            assert await client.zscore(keys.of_service("due"), due) is None
            drained = asyncio.create_task(core.drain(PATIENCE_SECONDS))
            await asyncio.sleep(0)
            answered.set()
            await drained
            await core.stop()
        assert await client.zscore(keys.of_service("due"), due) is not None


async def test_left_until_redis_takes_it(store: Store, node: str) -> None:
    """A8: a process that cannot send tells of due partitions until Redis has noted them."""
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=store.url), None)
    run, failed = core._server.run, 0

    async def refused(call: Line) -> Answer:
        nonlocal failed
        if failed < 2 and keys.of_service("due") in call:
            failed += 1
            msg = "Redis cannot be reached"
            raise CoreUnavailable(msg)
        return await run(call)

    core._server.run = refused  # type: ignore[method-assign]
    partition = Partition(node, "0a0b", 0)
    core.announce(partition, 2_000)
    await asyncio.sleep(0)
    core.announce(partition, 1_000)
    await core.drain(PATIENCE_SECONDS)
    async with store.client() as client:
        assert failed == 2
        assert await client.zscore(keys.of_service("due"), str(partition)) == 1_000
        await client.zrem(keys.of_service("due"), str(partition))
    await core.stop()


async def test_damaged_by_hand(make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 8: keys and names that somebody has written with redis-cli hold up neither sweeps nor the counts of others."""
    core, door = await make_core()
    hand, mark = f"{node}-a", f"{node}-b"
    for each in (hand, mark, node):
        await core.ask(Declare(each, ALICE, {}))
        await core.ask(item(each, "i"))
    there = {each.node: each for each in await core._store.partitions([hand, mark, node])}
    due = str(there[node])
    async with store.client() as client:
        try:
            await client.hset(keys.of_node("options", hand), "stanzaq#partitions", "4x")
            await client.set(keys.of_partition("inflight", there[mark]), "text")
            await client.zadd(keys.of_service("all_nodes"), {b"\\xff": 1, f"{node}-c": 2})
            await client.set(keys.of_node("node", f"{node}-c"), "text")
            core.forget(hand)
            await core._sweeper.sweep_all()
            assert set(await core._store.partitions([hand, mark, node, f"{node}-c"])) >= set(there.values())
            assert there[node] not in await core._store.find_partitions_of([*there.values()], "f")
            with capture_logs() as logs:
                await core.measure()
            assert node in core.metrics.measured and mark not in core.metrics.measured
            assert {"node": mark, "partition": 0}.items() <= next(
                each for each in logs if each["event"] == "a partition cannot be counted"
            ).items()
            assert f"(HGETALL {keys.of_node('node', f'{node}-c')})" in str([each.get("error") for each in logs])
            # A foreign name among the due partitions loses none of them.
            await core.ask(Subscribe(node, W1, W1, 0))
            await client.zadd(keys.of_service("due"), {"foreign": 1, due: 1})
            await core.ask(Subscribe(node, W1, W1, 1))
            await door.until(lambda: bool(door.deliveries))
            async with asyncio.timeout(PATIENCE_SECONDS):
                while await client.zscore(keys.of_service("due"), "foreign") is not None:  # noqa: ASYNC110
                    await asyncio.sleep(0.01)
            assert core.healthy() == []
        finally:
            await client.zrem(keys.of_service("all_nodes"), b"\\xff", f"{node}-c")
            await client.delete(
                keys.of_node("node", f"{node}-c"),
                keys.of_partition("inflight", there[mark]),
            )
            await client.hdel(keys.of_node("options", hand), "stanzaq#partitions")
