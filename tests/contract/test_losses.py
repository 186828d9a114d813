"""What the core makes of lost replies, dead frontends and a Redis that goes away: nothing is lost, everyone is answered."""

import asyncio
import itertools
from collections import Counter
from pathlib import Path

import pytest

from broker.model.commands import (
    Adjust,
    Browse,
    Command,
    Configure,
    Declare,
    Publish,
    Retract,
    Stats,
    Subscribe,
    Unlock,
)
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.problems import Problem
from broker.model.results import Browsed, Counted, Published, Refused, Retracted, Subscribed, Unlocked
from broker.redis_core import marks, pulse
from broker.redis_core.service import RedisCore
from frontends.servers.redis import RedisServer
from tests.contract.conftest import Asked, MakeCore
from tests.contract.proxy import LossyNetwork

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/a")


def item(node: str, item_id: str | None = None) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, b"payload", 7)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a frontend's silence count after a fifth of a second, so that nobody waits for it."""
    monkeypatch.setattr(pulse, "LAPSE_MS", 200)
    monkeypatch.setattr(pulse, "TURN_SECONDS", 0.03)
    monkeypatch.setattr(marks, "READ_SECONDS", 0.0)


async def listed(core: RedisCore, node: str) -> list[tuple[str, str]]:
    """Name the items of a node, each with its state."""
    browsed = await core.ask(Browse(node, ALICE, (), 1_000))
    assert isinstance(browsed, Browsed)
    return [(each.item_id, each.state) for each in browsed.items]


async def network_to(server: RedisServer) -> LossyNetwork:
    """Put a lossy network before a server."""
    return LossyNetwork(server.url.removeprefix("unix://"))


@pytest.mark.parametrize("count", [3, 600])
async def test_lost_reply(make_core: MakeCore, valkey: RedisServer, node: str, count: int) -> None:
    """X8, guarantee 1: the asker is answered in time, and what the lost script handed out is found and sent, each once."""
    async with await network_to(valkey) as network:
        core, door = await make_core(network.url, redis_timeout=0.3)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 1))
        await core.ask(item(node, "first"))
        await core.ask(Subscribe(node, W2, W2, 0))
        asked = Asked(core)
        asked.submit(*(item(node, f"i{n}") for n in range(count)))
        await asked.settled()
        network.silent = True
        lost = await core.ask(Subscribe(node, W2, W2, 1000))
        assert isinstance(lost, Refused) and lost.problem in {Problem.TIMED_OUT, Problem.UNAVAILABLE}
        assert network.answered.is_set() and len(door.deliveries) == 1
        network.silent = False
        await door.until(lambda: len(door.deliveries) >= count + 1)
        assert {d.item_id for d in door.deliveries} == {"first", *(f"i{n}" for n in range(count))}
        tokens = Counter(d.token for d in door.deliveries)
        assert max(tokens.values()) <= 2 and sum(tokens.values()) <= count + 1 + 2 * 200
        assert isinstance(await core.ask(Retract(node, W2, "i0")), Retracted)


async def test_everyone_is_answered_once(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """Q26: those whom the policy refused, those whose script was lost, and those after them: one answer each."""
    async with await network_to(valkey) as network:
        core, _ = await make_core(network.url, redis_timeout=0.3)
        await core.ask(Declare(node, ALICE, {}))
        asked = Asked(core)
        network.silent = True
        stranger = Publish(node, Jid("bob@x/1"), None, b"x", 1)
        asked.submit(stranger, item(node), Subscribe(node, W1, W1, 1), Retract(node, W1, "none"), stranger)
        results = await asked.settled()
        assert all(isinstance(result, Refused) for result in results)
        network.silent = False
        again = Asked(core)
        again.submit(item(node), stranger)
        assert [type(result) for result in await again.settled()] == [Published, Refused]


async def test_dead_frontend(quick: None, make_core: MakeCore, node: str) -> None:
    """Guarantee 4, X8: what a dead frontend had not sent is sent by another, same token; what it had sent is not."""
    (dying, door), (other, rescue) = await make_core(), await make_core()
    await dying.ask(Declare(node, ALICE, {}))
    await dying.ask(Subscribe(node, W1, W1, 10))
    await dying.ask(item(node, "sent"))
    for _look in range(2):
        await dying.ask(Adjust(node, W1, W1, "", 10))
    door.writes = False
    await dying.ask(item(node, "unsent"))
    for task in dying._running:
        task.cancel()
    await rescue.until(lambda: bool(rescue.deliveries))
    unsent = next(d for d in door.deliveries if d.item_id == "unsent")
    assert {(d.item_id, d.token) for d in rescue.deliveries} == {("unsent", unsent.token)}
    assert isinstance(await other.ask(Retract(node, W1, "unsent", unsent.token)), Retracted)


async def test_rescue_passes_idle_nodes_over(make_core: MakeCore, node: str) -> None:
    """Guarantee 4: what a dead frontend owes is found at once among many nodes, and its marks go (guarantee 6)."""
    core, _ = await make_core()
    doomed, door = await make_core()
    for name in (f"{node}-idle", f"{node}-done", f"{node}-owed"):
        await core.ask(Declare(name, ALICE, {}))
    for name in (f"{node}-done", f"{node}-owed"):
        await doomed.ask(Subscribe(name, W1, W1, 1))
        await doomed.ask(item(name, "a"))
    assert len(door.deliveries) == 2
    await core.ask(Retract(f"{node}-done", W1, "a"))
    directory = core._directory
    names = [f"{node}-idle", f"{node}-done", f"{node}-owed", f"{node}-gone"]
    assert await directory.concerned(names, doomed.frontend) == [f"{node}-owed"]
    await doomed.drain(2)
    assert await directory.concerned(names, "another") == [f"{node}-owed"]


async def test_broken_stream(quick: None, make_core: MakeCore, node: str) -> None:
    """X8: a frontend whose own stream broke sends again what was not written when it is back."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 10))
    await core.ask(item(node, "sent"))
    for _look in range(2):
        await core.ask(Adjust(node, W1, W1, "", 10))
    door.writes = False
    await core.ask(item(node, "unsent"))
    core.link(up=False)
    door.writes = True
    core.link(up=True)
    await door.until(lambda: len(door.deliveries) >= 3)
    assert [d.item_id for d in door.deliveries] == ["sent", "unsent", "unsent"]
    assert door.deliveries[1].token == door.deliveries[2].token


async def test_restart(make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Guarantee 1: with AOF `always` a killed Redis loses nothing that was answered; meanwhile everyone is answered."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    with RedisServer(tmp_path / "redis", options=options) as server:
        core, door = await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 1))
        for n in range(3):
            assert await core.ask(item(node, f"i{n}")) == Published(f"i{n}")
        server.kill()
        asked = Asked(core)
        asked.submit(item(node, "during"), Retract(node, W1, "i0"), Stats(node, ALICE))
        assert {result.problem for result in await asked.settled()} == {Problem.UNAVAILABLE}
        server.start()
        assert await listed(core, node) == [("i0", "locked"), ("i1", "waiting"), ("i2", "waiting")]
        assert isinstance(await core.ask(Retract(node, W1, "i0", door.deliveries[0].token)), Retracted)
        await door.until(lambda: door.deliveries[-1].item_id == "i1")
        await core.stop()


async def test_killed_in_the_middle(make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Guarantee 1: Redis dies while items pour in; what was answered is there, and what is asked again is there once."""
    answered, unanswered = set[str](), set[str]()

    async def pour(core: RedisCore, publisher: int, enough: asyncio.Event) -> None:
        for name in (f"p{publisher}-{n}" for n in itertools.count()):
            if not isinstance(await core.ask(item(node, name)), Published):
                unanswered.add(name)
                return
            answered.add(name)
            if len(answered) == 300:
                enough.set()

    with RedisServer(tmp_path / "redis", options={"appendonly": "yes", "appendfsync": "always"}) as server:
        core, _ = await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for publisher in range(20):
                group.create_task(pour(core, publisher, enough))
            await enough.wait()
            server.kill()
        server.start()
        assert len(unanswered) == 20
        assert answered <= {name for name, _state in await listed(core, node)} <= answered | unanswered
        for name in unanswered:
            assert await core.ask(item(node, name)) == Published(name)
        assert sorted(name for name, _state in await listed(core, node)) == sorted(answered | unanswered)
        await core.stop()


@pytest.mark.parametrize("dedupe", ["overwrite", "ignore"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_asked_again(make_core: MakeCore, node: str, tmp_path: Path, dedupe: str, *, restarted: bool) -> None:
    """Q27, X1: whose reply was lost may ask again with the same ids; it is answered as if heard and nothing is doubled."""
    options = {"appendonly": "yes", "appendfsync": "always"}
    with RedisServer(tmp_path / "redis", options=options) as server:
        async with await network_to(server) as network:
            core, door = await make_core(network.url, redis_timeout=0.3)
            await core.ask(Declare(node, ALICE, {"stanzaq#dedupe": (dedupe,)}))
            await core.ask(Subscribe(node, W1, W1, 2))
            for name in ("done", "back"):
                await core.ask(item(node, name))
            tokens = {delivery.item_id: delivery.token for delivery in door.deliveries}
            requests: list[Command] = [
                item(node, "new"),
                Retract(node, W1, "done", tokens["done"], "r1"),
                Unlock(node, W1, "back", tokens["back"], delay_ms=60_000, request="r2"),
            ]
            network.answered.clear()
            network.silent = True
            # Together: on a connection that is new because one was lost nothing would come as far as Redis.
            asked = Asked(core)
            asked.submit(*requests)
            assert all(isinstance(result, Refused) for result in await asked.settled())
            assert network.answered.is_set()
            if restarted:
                server.kill()
                server.start()
            network.silent = False
            published, retracted, unlocked = [await core.ask(request) for request in requests]
            assert published == Published("new", duplicate=dedupe == "ignore")
            assert retracted == Retracted(W1, replayed=True)
            assert unlocked == Unlocked(W1, replayed=True)
            await door.until(lambda: "new" in {delivery.item_id for delivery in door.deliveries})
            assert isinstance(await core.ask(Retract(node, W1, "new")), Retracted)
            # Who overwrites an item that a worker has says what comes after it (X1): no frontend remembers a publish.
            once_more = [("new", "locked")] if dedupe == "overwrite" else []
            assert sorted(await listed(core, node)) == [("back", "delayed"), *once_more]
            await core.stop()


async def test_expiry_of_itself(quick: None, make_core: MakeCore, node: str) -> None:
    """Guarantee 4, Q35: a lock that runs out is ended by the pulse, without any command, within its time and a second."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("1",)}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W2, W2, 1))
    async with asyncio.timeout(2.5):
        await door.until(lambda: len(door.deliveries) == 2)
    assert [d.subscriber for d in door.deliveries] == [W1, W2]
    assert len(door.notices) == 1


async def test_delay_of_itself(quick: None, make_core: MakeCore, node: str) -> None:
    """Q32: a delayed item comes back when its time is there, without any command."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    await core.ask(item(node, "a"))
    await core.ask(Unlock(node, W1, "a", delay_ms=200))
    await door.until(lambda: len(door.deliveries) == 2)
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and (counted.in_flight, counted.delayed) == (1, 0)


@pytest.mark.parametrize("deleted", [False, True])
async def test_forgotten_while_renewing(
    make_core: MakeCore, node: str, monkeypatch: pytest.MonkeyPatch, *, deleted: bool
) -> None:
    """Q26: a lane that is told to forget its node's record while it renews that record answers all the same."""
    core, _ = await make_core()
    other, _ = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(item(node))
    directory = core._directory
    if deleted:
        record = await directory.read(node)
        assert record
        await directory.delete_partition(Partition(node, record.incarnation))
    else:
        await other.ask(Configure(node, ALICE, {"stanzaq#lock_seconds": ("5",)}))
    unhindered = directory.open

    async def opened(record: NodeRecord) -> bool:
        done = await unhindered(record)
        core.lane(node).forget()
        return done

    monkeypatch.setattr(directory, "open", opened)
    asked = Asked(core)
    asked.submit(item(node))
    (result,) = await asked.settled()
    if deleted:
        assert isinstance(result, Refused) and result.problem is Problem.NODE_NOT_FOUND
    else:
        assert isinstance(result, Published)


async def test_waits_do_not_add_up(make_core: MakeCore, valkey: RedisServer, node: str) -> None:
    """Q26: while Redis hangs, each worker is answered within the time that is set, however many come at once."""
    async with await network_to(valkey) as network:
        core, _ = await make_core(network.url, redis_timeout=0.3)
        await core.ask(Declare(node, ALICE, {}))
        asked = Asked(core)
        network.silent = True
        workers = [Jid(f"w{n}@x/a") for n in range(20)]
        began = asyncio.get_running_loop().time()
        asked.submit(*(Subscribe(node, worker, worker, 1) for worker in workers))
        assert all(isinstance(result, Refused) for result in await asked.settled())
        assert asyncio.get_running_loop().time() - began < 2


async def test_slow_door(quick: None, make_core: MakeCore, node: str) -> None:
    """X11: while its door has much to write, a frontend hands out piece by piece; in the end everything is out."""
    core, door = await make_core()
    await core.ask(Declare(node, ALICE, {}))
    await asyncio.gather(*(core.ask(item(node)) for _ in range(1_000)))
    door.slow = True
    await core.ask(Subscribe(node, W1, W1, 1_000))
    assert len(door.deliveries) < 1_000
    await door.until(lambda: len(door.deliveries) == 1_000)
