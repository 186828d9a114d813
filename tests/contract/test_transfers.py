"""Dead letters return, items move, locks end by force: administrators' commands, over a real server and a cluster."""

# ruff: noqa: ANN401  (outcomes of every kind pass through here)

import asyncio
from dataclasses import replace
from typing import Any

from broker import codec
from broker.model.commands import (
    Affiliate,
    Configure,
    Declare,
    Delete,
    Frontends,
    InspectItems,
    MoveItems,
    Overview,
    Publish,
    Purge,
    Release,
    Retract,
    Stats,
    Subscribe,
    Unlock,
    Unsubscribe,
)
from broker.model.items.items import Envelope, LockEnded
from broker.model.names import Jid
from broker.model.nodes.options import NodeState
from broker.model.problems import Problem
from broker.model.results import (
    Counted,
    Declared,
    Done,
    FrontendList,
    InspectedItems,
    MovedItems,
    Overviewed,
    Published,
    Purged,
    Refused,
    Released,
    Retracted,
    Subscribed,
    Summary,
    Unlocked,
    Unsubscribed,
)
from broker.redis_core.commands.outbox import EndEntry
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from broker.tasks import FAILED
from tests.admitting import ADMITTING
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.contract.outbox import due_again, items_of
from tests.waiting import PATIENCE_SECONDS

pytestmark = SOMEWHERE

ALICE, BOB = Jid("alice@x/home"), Jid("bob@x/desk")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/a")


async def declared(core: RedisCore, node: str, sender: Jid = ALICE, **options: str) -> None:
    """Create a node; options are named without `stanzaq#`."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, sender, fields)) == Declared(node)


async def published(core: RedisCore, node: str, *items: str, body: bytes = b"<x/>", **more: Any) -> None:
    """Publish items."""
    for item in items:
        command = Publish(node, ALICE, item, codec.pack(Envelope(body)), len(body), **more)
        assert isinstance(await core.ask(command), Published)


async def deaths(core: RedisCore, node: str, *items: str, reason: str, known: tuple[str, ...] = ()) -> None:
    """Publish items, hand them out, and let them and `known` ones die."""
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 100, group="g")), Subscribed)
    await published(core, node, *items)
    for item in (*known, *items):
        assert isinstance(await core.ask(Unlock(node, W1, item, dead_letter=True, reason=reason)), Unlocked)
    await arrived(core, node)
    assert isinstance(await core.ask(Unsubscribe(node, W1, W1, "")), Unsubscribed)


async def counted(core: RedisCore, node: str) -> Counted:
    """Count a node's items."""
    found = await core.ask(Stats(node, ALICE))
    assert isinstance(found, Counted)
    return found


async def arrived(core: RedisCore, node: str) -> None:
    """Wait until no item of a node is on its way."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (await counted(core, node)).dying:  # noqa: ASYNC110  (only Redis knows)
            await asyncio.sleep(0.02)


async def everything(core: RedisCore, command: MoveItems) -> MovedItems:
    """Repeat until the end."""
    count, passed, scan = 0, dict[str, int](), ""
    for _step in range(100):
        done = await core.ask(replace(command, scan=scan))
        assert isinstance(done, MovedItems), done
        count, scan = count + done.count, done.scan
        for why, number in done.passed.items():
            passed[why] = passed.get(why, 0) + number
        if not scan:
            break
    await arrived(core, command.node)
    return MovedItems(count, passed, scan)


async def survey(core: RedisCore, node: str, *items: str) -> dict[str, Any]:
    """Inspect a node's items."""
    found = await core.ask(InspectItems(node, ALICE, items, 100))
    assert isinstance(found, InspectedItems), found
    return {one.item_id: one for one in found.items}


def administrator(store: Store) -> RedisCore:
    """Make a core that cannot send, as a command has it."""
    return RedisCore(CommandSettings(**ADMITTING, redis_url=store.url, admins=(Jid("alice@x"),)), None)


async def test_redrive(core: RedisCore, door: Door, node: str) -> None:
    """Dead letters return with their own ids, as new, and keep the history in their headers."""
    await declared(core, node, partitions="3")
    await deaths(core, node, "a", "b", "c", reason="no-disk")
    await deaths(core, node, "d", reason="other")
    dead = f"{node}/dead"
    assert await everything(core, MoveItems(dead, ALICE, None, (), "no-disk", 2)) == MovedItems(3, {}, "")
    assert [one.state for one in (await survey(core, dead)).values()] == ["waiting"]
    back = await survey(core, node)
    assert back.keys() == {"a", "b", "c"} and {one.attempts for one in back.values()} == {0}
    headers = codec.unpack(back["a"].envelope).headers
    assert headers["stanzaq-dead-reason"] == "no-disk" and headers["stanzaq-dead-attempts"] == "1"
    assert headers["stanzaq-moved-from"] == dead and headers["stanzaq-moved-times"] == "1"
    door.deliveries.clear()
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 10, group="g")), Subscribed)
    await door.until(lambda: len(door.deliveries) == 3)
    assert {(one.item_id, one.attempt, one.publisher) for one in door.deliveries} == {
        (item, 1, "alice@x") for item in "abc"
    }
    for item in "abc":
        assert isinstance(await core.ask(Retract(node, W1, item)), Retracted)
    assert (await counted(core, node)).waiting == 0


async def test_redriven_by_header(core: RedisCore, node: str) -> None:
    """Dead letters are chosen by all of the named headers, alone or with a reason."""
    await declared(core, node)
    given: dict[str, dict[str, str]] = {"a": {"region": "eu", "kind": "x"}, "b": {"region": "us", "kind": "x"}, "c": {}}
    for name, said in given.items():
        envelope = codec.pack(Envelope(b"<x/>", headers=said))
        assert isinstance(await core.ask(Publish(node, ALICE, name, envelope, 4)), Published)
    await deaths(core, node, reason="torn", known=("a", "b", "c"))
    dead = f"{node}/dead"
    nothing: list[tuple[str, tuple[tuple[str, str], ...]]] = [
        ("", (("region", "asia"),)),
        ("", (("region", "eu"), ("kind", "y"))),
        ("late", (("region", "eu"),)),
    ]
    for reason, headers in nothing:
        chosen = MoveItems(dead, ALICE, None, (), reason, 10, headers=headers)
        assert await everything(core, chosen) == MovedItems(0, {}, "")
    chosen = MoveItems(dead, ALICE, None, (), "torn", 10, headers=(("region", "eu"), ("kind", "x")))
    assert await everything(core, chosen) == MovedItems(1, {}, "")
    assert (await survey(core, node)).keys() == {"a"}
    assert await everything(core, MoveItems(dead, ALICE, None, (), "", 1, headers=(("kind", "x"),))) == MovedItems(
        1, {}, ""
    )
    assert (await survey(core, node)).keys() == {"a", "b"}


async def test_redriven_beside_another(core: RedisCore, node: str) -> None:
    """A dead letter whose id another item has by now returns beside it; one that dies again waits for the next time."""
    await declared(core, node)
    await deaths(core, node, "a", reason="x")
    await published(core, node, "a", body=b"<new/>")
    dead = f"{node}/dead"
    (letter,) = await survey(core, dead)
    assert await everything(core, MoveItems(dead, ALICE, None, (letter, "nothing"), "", 10)) == MovedItems(1, {}, "")
    bodies = {item: codec.unpack(one.envelope).body for item, one in (await survey(core, node)).items()}
    assert bodies.pop("a") == b"<new/>" and list(bodies.values()) == [b"<x/>"]


async def test_what_stays(core: RedisCore, node: str) -> None:
    """Items that are no dead letters, are held, or came from a node that is gone stay, and the answer says why."""
    await declared(core, node)
    await deaths(core, node, "a", "b", reason="x")
    dead = f"{node}/dead"
    await published(core, dead, "stray")
    assert isinstance(await core.ask(Subscribe(dead, W2, W2, 1)), Subscribed)
    assert isinstance(await core.ask(Delete(node, ALICE)), Done)
    done = await everything(core, MoveItems(dead, ALICE, None, (), "", 10))
    assert done == MovedItems(0, {"it is locked": 1, f"there is no node '{node}'": 1, "it is no dead letter": 1}, "")


async def test_move(core: RedisCore, node: str) -> None:
    """Waiting items move to another node in order, all of them or those named; held ones stay."""
    await declared(core, node, partitions="2")
    await declared(core, f"{node}-2")
    await published(core, node, *(f"i{n}" for n in range(10)))
    await declared(core, f"{node}-3")
    await published(core, f"{node}-3", *(f"m{n}" for n in range(50)))
    named = tuple(f"m{n}" for n in range(45))
    done = await everything(core, MoveItems(f"{node}-3", ALICE, f"{node}-2", named, "", 10))
    assert done == MovedItems(45, {}, "") and (await counted(core, f"{node}-3")).waiting == 5
    assert isinstance(await core.ask(Purge(f"{node}-2", ALICE)), Purged)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1, group="g")), Subscribed)
    (held,) = (item for item, one in (await survey(core, node)).items() if one.state == "locked")
    one = next(item for item in (f"i{n}" for n in range(10)) if item != held)
    assert await everything(core, MoveItems(node, ALICE, f"{node}-2", (one,), "", 10)) == MovedItems(1, {}, "")
    done = await everything(core, MoveItems(node, ALICE, f"{node}-2", (), "", 3))
    assert done == MovedItems(8, {"it is locked": 1}, "")
    moved = await survey(core, f"{node}-2")
    assert moved.keys() == {f"i{n}" for n in range(10)} - {held}
    assert isinstance(await core.ask(Retract(node, W1, held)), Retracted)


async def test_who_may(core: RedisCore, node: str) -> None:
    """P6: only owners of both nodes move items, and only owners inspect items or end locks."""
    await declared(core, node)
    await declared(core, f"{node}-2", BOB)
    await published(core, node, "a")
    for command in (
        MoveItems(node, BOB, f"{node}-2", (), "", 10),
        InspectItems(node, BOB, (), 10),
        Release(node, BOB, ("a",)),
        Frontends(BOB),
    ):
        refused = await core.ask(command)
        assert isinstance(refused, Refused) and refused.problem is Problem.FORBIDDEN
    for to in (f"{node}-2", node, "nowhere"):
        refused = await core.ask(MoveItems(node, ALICE, to, (), "", 10))
        assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
    refused = await core.ask(InspectItems(node, ALICE, (), 10, "nonsense"))
    assert isinstance(refused, Refused) and refused.problem is Problem.BAD_REQUEST
    for many in (InspectItems(node, ALICE, ("a",) * 21, 10), Release(node, ALICE, ("a",) * 201)):
        refused = await core.ask(many)
        assert isinstance(refused, Refused) and refused.problem is Problem.BAD_REQUEST


async def test_arrived_and_not_said(make_core: MakeCore, store: Store, node: str) -> None:
    """A frontend that dies between an item's arrival and its report causes no duplicate, even if the item is done."""
    core, door = await make_core()
    await declared(core, node)
    await declared(core, f"{node}-2")
    await published(core, node, "a")
    assert isinstance(await core.ask(Subscribe(f"{node}-2", W1, W1, 5)), Subscribed)
    command = administrator(store)
    asked = items_of(command)._ask

    async def dying(what: Any) -> Any:
        return FAILED if isinstance(what, EndEntry) else await asked(what)

    items_of(command)._ask = dying
    assert isinstance(await command.ask(MoveItems(node, ALICE, f"{node}-2", (), "", 1)), MovedItems)
    await command.drain(5)
    await command.stop()
    await door.until(lambda: len(door.deliveries) == 1)
    assert isinstance(await core.ask(Retract(f"{node}-2", W1, "a")), Retracted)
    assert (await counted(core, node)).dying == 1
    # An item that is leaving does not stay.
    assert await core.ask(MoveItems(node, ALICE, f"{node}-2", (), "", 10)) == MovedItems(0, {}, "")
    await due_again(core, store, node)
    await arrived(core, node)
    assert await survey(core, node) == await survey(core, f"{node}-2") == {}
    assert len(door.deliveries) == 1


async def test_draining(core: RedisCore, door: Door, node: str) -> None:
    """A drained node refuses publishes with a sentence and hands out the rest; nothing is moved into it."""
    await declared(core, node)
    await declared(core, f"{node}-2")
    await published(core, node, "a", "b")
    await published(core, f"{node}-2", "c")
    assert await core.ask(Configure(node, ALICE, {"stanzaq#state": ("draining",)})) == Done()
    refused = await core.ask(Publish(node, ALICE, "c", b"", 0))
    assert isinstance(refused, Refused)
    assert (refused.problem, refused.problem.retryable) == (Problem.NODE_DRAINING, True)
    assert "drained" in refused.detail
    refused = await core.ask(MoveItems(f"{node}-2", ALICE, node, (), "", 10))
    assert isinstance(refused, Refused) and "drained" in refused.detail
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 5)), Subscribed)
    assert [one.item_id for one in door.deliveries] == ["a", "b"]


async def test_release(core: RedisCore, door: Door, node: str) -> None:
    """An owner ends locks: one item's, or all of a JID with any of its resources; the holder is notified."""
    await declared(core, node)
    other = Jid("w1@x/b")
    for jid in (W1, other):
        assert isinstance(await core.ask(Subscribe(node, jid, jid, 4)), Subscribed)
    await published(core, node, *(f"i{n}" for n in range(8)))
    await door.until(lambda: len(door.deliveries) == 8)
    first = next(one for one in door.deliveries if one.subscriber == W1)
    assert await core.ask(Release(node, ALICE, (first.item_id,))) == Released(1)
    assert LockEnded(node, W1, first.item_id, first.token) in door.notices
    refused = await core.ask(Retract(node, W1, first.item_id, first.token))
    assert isinstance(refused, Refused)
    nobody = await core.ask(Release(node, ALICE, ("nothing",)))
    assert isinstance(nobody, Refused) and nobody.problem is Problem.ITEM_NOT_FOUND
    for jid in (W1, other):
        assert isinstance(await core.ask(Subscribe(node, jid, jid, 0)), Subscribed)
    held = (await counted(core, node)).in_flight
    assert held and await core.ask(Release(node, ALICE, (), Jid("w1@x"))) == Released(held)
    assert (await counted(core, node)).in_flight == 0


async def test_overview(make_core: MakeCore, node: str) -> None:
    """Nodes come in pages, each with the counts of all of its partitions."""
    core, _door = await make_core(admins=(Jid("alice@x"),))
    for number in range(5):
        await declared(core, f"{node}-{number}", partitions="3", state="paused")
    await published(core, f"{node}-1", "a", "b", "c", "d")
    seen: list[Summary] = []
    first = 0
    while True:
        page = await core.ask(Overview(ALICE, first, 2))
        assert isinstance(page, Overviewed)
        seen += page.nodes
        first += 2
        if first >= page.total:
            break
    assert [one.record.name for one in seen] == [f"{node}-{number}" for number in range(5)]
    assert [one.counted.waiting for one in seen] == [0, 4, 0, 0, 0]
    assert seen[1].record.config.state is NodeState.PAUSED
    assert [one.counted.published for one in seen] == [0, 4, 0, 0, 0]
    # A JID that is no administrator sees the nodes that it is affiliated with, except those that have barred it.
    for number, standing in enumerate(("member", "outcast", "publisher")):
        await core.ask(Affiliate(f"{node}-{number}", ALICE, {Jid("bob@x"): standing}))
    theirs = await core.ask(Overview(BOB, 0, 10))
    assert isinstance(theirs, Overviewed) and theirs.total == 2
    shown = [(one.record.name, one.standing, dict(one.record.affiliations)) for one in theirs.nodes]
    assert shown == [(f"{node}-0", "member", {}), (f"{node}-2", "publisher", {})]
    assert await core.ask(Overview(W1, 0, 10)) == Overviewed((), 0)
    heard = await core.ask(Frontends(ALICE))
    assert isinstance(heard, FrontendList)
    assert {each.name: each.ago_ms < 5_000 for each in heard.frontends}[core.frontend]


async def test_no_place_to_go_on_from(core: RedisCore, node: str) -> None:
    """The place to continue from comes from the client: one that Redis could not read is refused, and is no error of ours."""
    await declared(core, node)
    await published(core, node, "a")
    most = 2**64 - 1
    for scan in (
        "x",
        "1-1 x",
        "x 0 0-0",
        f"{most + 1}-0 0 0-0",
        f"1-1 0 0-{most + 1}",
        "1-1 0 0",
        "1-1 99999 0-0",
        "- 0 0-0",
        f"1-1 0 {most}-{most}",
    ):
        outcome = await core.ask(MoveItems(node, ALICE, None, (), "", 1, scan))
        assert isinstance(outcome, Refused) and outcome.problem is Problem.BAD_REQUEST, scan
    last = f"{most - 1}-{most} 0 {most - 1}-{most}"
    assert await core.ask(MoveItems(node, ALICE, None, (), "", 1, last)) == MovedItems(0, {}, "")
