"""Subscriptions that need an owner's approval, and what owners do with subscriptions, over a real server (P4, P5, P26, P27)."""

import asyncio
from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from broker import keys
from broker.model.commands import (
    Affiliate,
    Affiliations,
    Approve,
    Browse,
    Configure,
    Declare,
    Delete,
    ListPending,
    ListSubscribers,
    ManageSubscribers,
    Publish,
    Read,
    SendPending,
    Subscribe,
    Subscriptions,
    Unsubscribe,
)
from broker.model.items.items import ApprovalAsked, NodeEvent, SubscriptionChanged
from broker.model.items.qos import Qos
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.subscriptions import Change, State, Subscription
from broker.model.pages import Page
from broker.model.problems import Problem
from broker.model.results import (
    AffiliationList,
    Declared,
    Done,
    Listing,
    Managed,
    Refused,
    Result,
    Subscribed,
    SubscriptionList,
    Unaffiliated,
    Unsubscribed,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import sweeper
from broker.redis_core.operations.operation import subid
from broker.redis_core.records import pending_requests
from tests.contract.conftest import SOMEWHERE, Door, MakeCore, Store
from tests.contract.test_core import ALICE, BOB, W1, W2, item, problem

pytestmark = SOMEWHERE

ASKED = {"pubsub#access_model": ("authorize",)}


async def closed(core: RedisCore, node: str, **options: str) -> None:
    """Create a node of Alice's whose subscriptions need an approval."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, {**ASKED, **fields})) == Declared(node)


def waiting(jid: Jid, credit: int = 1, qos: Qos = Qos.UNACKNOWLEDGED) -> Subscribed:
    """Return the answer to a subscription that waits."""
    return Subscribed(jid, subid(jid), credit, qos, state=State.PENDING)


def told(door: Door) -> list[tuple[Jid, State]]:
    """Return which subscribers were notified of which state."""
    return [
        (notice.subscription.jid, notice.subscription.state)
        for notice in door.notices
        if isinstance(notice, SubscriptionChanged)
    ]


def asked(door: Door) -> list[tuple[Jid, Jid]]:
    """Return which owners were asked about which JIDs."""
    return [(notice.owner, notice.subscription.jid) for notice in door.notices if isinstance(notice, ApprovalAsked)]


def yes(node: str, jid: Jid, sender: Jid = ALICE, allow: bool = True) -> Approve:  # noqa: FBT001, FBT002  (an answer)
    """Answer an owner's form."""
    return Approve(node, sender, jid, "", allow)


async def mine(core: RedisCore, jid: Jid, node: str | None = None) -> list[tuple[str, Jid, State]]:
    """Give a JID's subscriptions."""
    listed = await core.ask(Subscriptions(jid, node))
    assert isinstance(listed, SubscriptionList), listed
    assert all(each.subid == subid(each.jid) for each in listed.subscriptions)
    return [(each.node, each.jid, each.state) for each in listed.subscriptions]


async def index(store: Store, name: str, jid: Jid) -> int:
    """Count what an index has of a JID."""
    async with store.client() as client:
        count = client.zcard if keys.BY_NAME[name].type == "zset" else client.scard
        return int(await count(keys.of_jid(name, bare_jid(jid))))


async def test_approved(core: RedisCore, door: Door, node: str, store: Store) -> None:
    """P5, P27: a subscription that needs approval waits without items; all owners are asked; once approved it works."""
    await closed(core, node)
    await core.ask(Affiliate(node, ALICE, {bare_jid(BOB): "owner"}))
    await core.ask(item(node, "a"))
    assert await core.ask(Subscribe(node, W1, W1, 3)) == waiting(W1, 3)
    assert asked(door) == [(bare_jid(ALICE), W1), (bare_jid(BOB), W1)]
    assert problem(await core.ask(Subscribe(node, W1, W1, 3))) is Problem.PENDING_SUBSCRIPTION
    assert await mine(core, W1) == [(node, W1, State.PENDING)]
    assert not door.deliveries
    assert await core.ask(yes(node, W1, BOB)) == Done()
    assert [(each.subscriber, each.item_id) for each in door.deliveries] == [(W1, "a")]
    assert told(door) == [(W1, State.SUBSCRIBED)]
    assert await mine(core, W1) == [(node, W1, State.SUBSCRIBED)]
    assert await index(store, "pending_nodes", W1) == 0
    # It may subscribe again without another approval (an approval is an affiliation).
    assert await core.ask(Unsubscribe(node, W1, W1, "")) == Unsubscribed(W1, subid(W1))
    assert await core.ask(Subscribe(node, W1, W1, 1)) == Subscribed(W1, subid(W1), 1)
    assert len(asked(door)) == 2


async def test_denied(core: RedisCore, door: Door, node: str, store: Store) -> None:
    """P27: a denied subscriber is notified and waits no more; it may ask again."""
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    assert await core.ask(yes(node, W1, allow=False)) == Done()
    assert told(door) == [(W1, State.NONE)]
    assert await mine(core, W1) == []
    assert await index(store, "pending_nodes", W1) == 0
    assert await core.ask(Subscribe(node, W1, W1, 1)) == waiting(W1)


async def test_late_answers(core: RedisCore, door: Door, node: str) -> None:
    """P27: a stale, repeated or contrary answer changes nothing; one from a JID that is not an owner is refused."""
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    for sender in (BOB, W1):
        assert problem(await core.ask(yes(node, W1, sender))) is Problem.FORBIDDEN
    assert problem(await core.ask(Approve(node, ALICE, W1, "7", allow=True))) is Problem.SUBID_INVALID
    assert await core.ask(yes(node, W2)) == Done()
    assert problem(await core.ask(yes(f"{node}/other", W1))) is Problem.NODE_NOT_FOUND
    assert told(door) == []
    for allow in (True, True, False):
        assert await core.ask(yes(node, W1, allow=allow)) == Done()
    assert told(door) == [(W1, State.SUBSCRIBED)]
    assert await mine(core, W1) == [(node, W1, State.SUBSCRIBED)]
    # A forged or late form gives no affiliation to a JID that was never asked about.
    assert problem(await core.ask(Browse(node, W2, (), 1))) is Problem.APPROVAL_REQUIRED


async def test_taken_back(core: RedisCore, door: Door, node: str) -> None:
    """P12: a pending subscriber may unsubscribe; it gets no more notices, and a later answer creates nothing."""
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    assert await core.ask(Unsubscribe(node, W1, W1, subid(W1))) == Unsubscribed(W1, subid(W1))
    assert problem(await core.ask(Unsubscribe(node, W1, W1, ""))) is Problem.NOT_SUBSCRIBED
    assert await core.ask(yes(node, W1)) == Done()
    assert (await mine(core, W1), told(door)) == ([], [])


async def test_nothing_for_who_waits(core: RedisCore, door: Door, node: str) -> None:
    """P4, P6: a JID that is not approved gets no items and no events of the node, and may not read items either."""
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    assert problem(await core.ask(Browse(node, W1, (), 1))) is Problem.APPROVAL_REQUIRED
    assert problem(await core.ask(Read(node, W1, 0, "@earliest", 1))) is Problem.APPROVAL_REQUIRED
    await core.ask(item(node, "a"))
    await core.ask(Delete(node, ALICE))
    # It is notified that the node is gone (P24, XEP-0060 §8.4.2).
    events = [notice for notice in door.notices if isinstance(notice, NodeEvent)]
    assert (door.deliveries, events, told(door)) == ([], [NodeEvent(node, W1, "delete")], [])
    assert await mine(core, W1) == []


async def test_what_is_asked_for_is_complete(core: RedisCore, node: str) -> None:
    """P5: no owner is asked about a subscription that could not be made."""
    await closed(core, node)
    assert problem(await core.ask(Subscribe(node, W1, W1, None))) is Problem.OPTIONS_REQUIRED
    assert problem(await core.ask(Subscribe(node, W1, W2, 1))) is Problem.JID_MISMATCH
    elsewhere = Subscribe(node, W1, W1, 1, start=f">{'0' * 52}")
    assert problem(await core.ask(elsewhere)) is Problem.OFFSET_NOT_FOUND
    await core.ask(Affiliate(node, ALICE, {bare_jid(W1): "outcast"}))
    assert problem(await core.ask(Subscribe(node, W1, W1, 1))) is Problem.FORBIDDEN


async def test_made_as_it_was_asked_for(core: RedisCore, door: Door, node: str) -> None:
    """P27: credit, quality of service, groups and streams of the request outlast the wait."""
    await closed(core, node, partitions="2")
    asked_for = (
        Subscribe(node, W1, W1, 4, Qos.ACKNOWLEDGED, partitions=(0,), group="g"),
        Subscribe(node, W2, W2, 7, start="@earliest", partitions=(1,)),
        Subscribe(node, BOB, BOB, 2, group="g"),
    )
    for command in asked_for:
        assert pending_requests.decode(node, command.jid, pending_requests.encode(command)) == replace(
            command, again=True
        )
        assert (await core.ask(command)) == waiting(command.jid, command.credit or 0, command.qos)
    for command in asked_for:
        await core.ask(yes(node, command.jid))
    assert {jid for jid, state in told(door) if state is State.SUBSCRIBED} == {W1, W2, BOB}
    assert await mine(core, W1, node) == [(node, W1, State.SUBSCRIBED)]
    assert await mine(core, W2) == [(node, W2, State.SUBSCRIBED)]
    assert await mine(core, BOB) == [(node, BOB, State.SUBSCRIBED)]


async def test_affiliations_decide(core: RedisCore, door: Door, node: str) -> None:
    """XEP-0060 §8.7: an affiliation that may subscribe approves, `outcast` refuses, and both are notified."""
    await closed(core, node)
    for jid in (W1, W2):
        await core.ask(Subscribe(node, jid, jid, 1))
    await core.ask(Affiliate(node, ALICE, {bare_jid(W1): "publisher", bare_jid(W2): "outcast"}))
    assert told(door) == [(W1, State.SUBSCRIBED), (W2, State.NONE)]
    await core.ask(Affiliate(node, ALICE, {bare_jid(W1): "none"}))
    assert told(door)[2:] == [(W1, State.NONE)]
    assert await mine(core, W1) == await mine(core, W2) == []


@pytest.mark.parametrize(("model", "state"), [("open", State.SUBSCRIBED), ("whitelist", State.NONE)])
async def test_another_access_model(core: RedisCore, door: Door, node: str, model: str, state: State) -> None:
    """P5: the new access model decides pending subscriptions: an open node accepts, a whitelist without the JID refuses."""
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    assert await core.ask(Configure(node, ALICE, {"pubsub#access_model": (model,)})) == Done()
    assert told(door) == [(W1, state)]
    assert [entry[2] for entry in await mine(core, W1)] == ([state] if state is State.SUBSCRIBED else [])


async def test_from_open_to_authorize(core: RedisCore, door: Door, node: str) -> None:
    """P5: when a node begins to need approvals, a subscriber that is not a member is unsubscribed, notified, and may ask."""
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Affiliate(node, ALICE, {bare_jid(W2): "member"}))
    for jid in (W1, W2):
        await core.ask(Subscribe(node, jid, jid, 1))
    await core.ask(Configure(node, ALICE, ASKED))
    assert told(door) == [(W1, State.NONE)]
    assert (await mine(core, W1), await mine(core, W2)) == ([], [(node, W2, State.SUBSCRIBED)])
    assert await core.ask(Subscribe(node, W1, W1, 1)) == waiting(W1)


async def test_pending_nodes(make_core: MakeCore, node: str) -> None:
    """P27: an owner lists nodes with pending subscriptions and asks for the forms again; an administrator lists all."""
    core, door = await make_core(admins=["root@x"])
    root = Jid("root@x/1")
    for name in (node, f"{node}-2"):
        await closed(core, name)
    for jid in (W1, W2):
        await core.ask(Subscribe(node, jid, jid, 1))
    assert [await core.ask(ListPending(jid)) for jid in (ALICE, root, W1)] == [
        Listing((node,)),
        Listing((node,)),
        Listing(()),
    ]
    # An administrator is not asked about each subscription of everybody's nodes.
    assert {owner for owner, _jid in asked(door)} == {bare_jid(ALICE)}
    for sender in (ALICE, root):
        door.notices.clear()
        assert await core.ask(SendPending(node, sender)) == Done()
        assert asked(door) == [(sender, W1), (sender, W2)]
    assert problem(await core.ask(SendPending(node, W1))) is Problem.FORBIDDEN
    assert problem(await core.ask(SendPending(f"{node}-3", ALICE))) is Problem.NODE_NOT_FOUND


async def test_several_frontends(make_core: MakeCore, node: str) -> None:
    """Exactly one answer: frontends that decide at the same time create one subscription and notify once."""
    cores = [await make_core() for _ in range(3)]
    (first, _), *_ = cores
    await closed(first, node)
    for number in range(5):
        worker = Jid(f"w@x/{number}")
        await cores[number % 3][0].ask(Subscribe(node, worker, worker, 1))
    # All are of one bare JID, so any of the answers admits all of them.
    await asyncio.gather(*(core.ask(yes(node, Jid(f"w@x/{number}"))) for number, (core, _) in enumerate(cores)))
    for core, _ in cores:
        await core.approvals.decide_pending(node)
    everything = [entry for _, door in cores for entry in told(door)]
    assert len(everything) == 5 and set(everything) == {(Jid(f"w@x/{number}"), State.SUBSCRIBED) for number in range(5)}
    assert [state for *_, state in await mine(first, Jid("w@x/0"))] == [State.SUBSCRIBED] * 5


async def test_a_frontend_that_died(
    make_core: MakeCore, node: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A frontend that starts creates an approved subscription that a dead one did not finish."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1_000_000)
    core, door = await make_core()
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    record = await core._store.read_with_admins(node)
    assert record is not None
    # The affiliation is stored, the request claimed, and then nothing.
    await core._store.affiliate(record, {bare_jid(W1): "member"})
    assert await core.approvals._pending.claim(node, W1) is not None
    core.forget(node)
    await core.approvals.decide_pending(node)
    assert told(door) == []
    monkeypatch.setattr(pending_requests, "LATE_MS", 0)
    _, heard = await make_core()
    await heard.until(lambda: bool(told(heard)))
    assert (told(door), told(heard)) == ([], [(W1, State.SUBSCRIBED)])
    assert await mine(core, W1) == [(node, W1, State.SUBSCRIBED)]


async def test_taken_back_while_it_is_made(
    core: RedisCore, door: Door, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unsubscribe that crosses the approval wins: no subscription is left."""
    await closed(core, node)
    await core.ask(Subscribe(node, W1, W1, 1))
    made = core._handlers.make

    async def crossed(command: Subscribe) -> Result:
        result = await made(command)
        await core.ask(Unsubscribe(node, W1, W1, ""))
        return result

    monkeypatch.setattr(core._handlers, "make", crossed)
    await core.ask(yes(node, W1))
    assert (await mine(core, W1), told(door)) == ([], [])


async def test_one_question_for_a_bare_jid(core: RedisCore, door: Door, node: str) -> None:
    """P27: an owner is asked about a bare JID once, however often it returns, and answers for all its pending requests."""
    await closed(core, node)
    workers = [Jid(f"w@x/{number}") for number in range(25)]
    for worker in workers:
        assert await core.ask(Subscribe(node, worker, worker, 1)) == waiting(worker)
    assert asked(door) == [(bare_jid(ALICE), workers[0])]
    door.notices.clear()
    # Later requests replaced the one that was asked about; the answer counts for them.
    assert await core.ask(yes(node, workers[0], allow=False)) == Done()
    assert set(told(door)) == {(worker, State.NONE) for worker in workers[5:]} and len(told(door)) == 20
    assert await mine(core, workers[0]) == []


async def test_bounds(core: RedisCore, node: str, monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    """Guarantee 6: pending requests of a node and of a JID are bounded; a JID's oldest is replaced."""
    monkeypatch.setattr(pending_requests, "MOST", 2)
    monkeypatch.setattr(pending_requests, "MOST_OF_ONE", 1)
    await closed(core, node)
    third = Jid("w3@x/a")
    assert await core.ask(Subscribe(node, W1, W1, 1)) == waiting(W1)
    assert await core.ask(Subscribe(node, W2, W2, 1)) == waiting(W2)
    assert problem(await core.ask(Subscribe(node, third, third, 1))) is Problem.TOO_MANY_SUBSCRIPTIONS
    assert await index(store, "pending_nodes", third) == 0
    again = Jid("w1@x/again")
    assert await core.ask(Subscribe(node, again, again, 1)) == waiting(again)
    assert await mine(core, W1) == [(node, again, State.PENDING)]
    assert await index(store, "pending_nodes", W1) == 1


async def test_subscribers(core: RedisCore, door: Door, node: str) -> None:
    """P26: only an owner sees the subscribers; pending ones are not among them."""
    await closed(core, node)
    await core.ask(Affiliate(node, ALICE, dict.fromkeys((bare_jid(W1), bare_jid(BOB)), "member")))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(Subscribe(node, BOB, BOB, 3, group="g"))
    await core.ask(Subscribe(node, W2, W2, 1))
    listed = await core.ask(ListSubscribers(node, ALICE))
    expected = tuple(
        Subscription(node, jid, subid(jid), State.SUBSCRIBED, credit) for jid, credit in sorted(((BOB, 3), (W1, 1)))
    )
    assert listed == SubscriptionList(expected)
    last = await core.ask(ListSubscribers(node, ALICE, Page(1, after=expected[0].place)))
    assert last == SubscriptionList(expected[1:], more=True, index=1, count=2)
    assert await core.ask(ListSubscribers(node, ALICE, Page(0))) == SubscriptionList((), more=True, count=2)
    assert problem(await core.ask(ListSubscribers(node, W1))) is Problem.FORBIDDEN


async def test_managed(core: RedisCore, door: Door, node: str) -> None:
    """P26: an owner removes, approves and refuses; what it cannot change is listed in the answer, and the rest is done."""
    await closed(core, node)
    await core.ask(Affiliate(node, ALICE, {bare_jid(W1): "member"}))
    await core.ask(item(node, "a"))
    await core.ask(Subscribe(node, W1, W1, 1))
    for jid in (W2, BOB):
        await core.ask(Subscribe(node, jid, jid, 1))
    stranger = Jid("nobody@x")
    changes = (
        Change(W1, subid(W1), "none"),
        Change(W2, "", "subscribed"),
        Change(BOB, "7", "subscribed"),
        Change(stranger, "", "subscribed"),
    )
    # Its items go to the newly approved subscriber at once.
    assert await core.ask(ManageSubscribers(node, ALICE, changes)) == Managed(
        (
            Subscription(node, BOB, subid(BOB), State.PENDING),
            Subscription(node, stranger, subid(stranger), State.NONE),
        )
    )
    assert [(each.subscriber, each.item_id) for each in door.deliveries] == [(W1, "a"), (W2, "a")]
    assert told(door) == [(W1, State.NONE), (W2, State.SUBSCRIBED)]
    assert (await mine(core, W1), await mine(core, W2)) == ([], [(node, W2, State.SUBSCRIBED)])
    # The same request again changes nothing and notifies nobody.
    again = (Change(W1, "", "none"), Change(W2, "", "subscribed"), Change(BOB, "", "none"))
    assert await core.ask(ManageSubscribers(node, ALICE, again)) == Managed(())
    assert told(door)[2:] == [(BOB, State.NONE)]
    assert problem(await core.ask(ManageSubscribers(node, W2, again))) is Problem.FORBIDDEN


async def test_own_lists(core: RedisCore, door: Door, node: str, store: Store) -> None:
    """P10: a JID sees all of its subscriptions and affiliations, of all its resources, and nobody else's."""
    other, third = f"{node}-2", f"{node}-3"
    desk, account = Jid("w1@x/my desk"), bare_jid(W1)
    for name in (node, other, third):
        await core.ask(Declare(name, ALICE, {}))
    assert await core.ask(Affiliations(W1, None)) == AffiliationList(())
    for name, jid in ((node, W1), (node, desk), (other, account)):
        await core.ask(Subscribe(name, desk, jid, 1))
    await core.ask(Affiliate(node, ALICE, {account: "publisher"}))
    await core.ask(Affiliate(other, ALICE, {account: "outcast"}))
    await core.ask(Affiliate(third, ALICE, {account: "member", bare_jid(W2): "owner"}))
    await core.ask(Affiliate(third, ALICE, {account: "none"}))
    assert await mine(core, W1) == [(node, W1, State.SUBSCRIBED), (node, desk, State.SUBSCRIBED)]
    assert await mine(core, W1, other) == []
    assert await mine(core, W2) == []
    assert problem(await core.ask(Subscriptions(W1, f"{node}-4"))) is Problem.NODE_NOT_FOUND
    assert await core.ask(Affiliations(W1, None)) == AffiliationList(
        ((node, Affiliation.PUBLISHER), (other, Affiliation.OUTCAST))
    )
    assert await core.ask(Affiliations(W1, other)) == AffiliationList(((other, Affiliation.OUTCAST),))
    assert await core.ask(Affiliations(W1, third)) == AffiliationList(())
    assert problem(await core.ask(Affiliations(W1, f"{node}-4"))) is Problem.NODE_NOT_FOUND
    owned = tuple((name, Affiliation.OWNER) for name in (node, other, third))
    assert await core.ask(Affiliations(ALICE, None)) == AffiliationList(owned)
    # A deleted node leaves the lists.
    await core.ask(Delete(node, ALICE))
    assert await mine(core, W1) == []
    assert await core.ask(Affiliations(ALICE, None)) == AffiliationList(owned[1:])
    assert await index(store, "affiliated", ALICE) == 2


async def test_only_jids_are_affiliated(core: RedisCore, node: str) -> None:
    """XEP-0060 §8.9.2.4: a text that is no JID gets no affiliation, and a request that has one changes nothing."""
    await core.ask(Declare(node, ALICE, {}))
    changes = {bare_jid(W1): "member", Jid("not a jid"): "member"}
    listed = tuple((jid, Affiliation.NONE) for jid in changes)
    assert await core.ask(Affiliate(node, ALICE, changes)) == Unaffiliated(
        "not a jid is neither a JID nor group:NAME", listed
    )
    assert await core.ask(Affiliations(W1, node)) == AffiliationList(())


async def test_who_left_is_not_listed(core: RedisCore, door: Door, node: str) -> None:
    """P10: an unsubscribed JID that still holds an item is not listed."""
    await core.ask(Declare(node, ALICE, {}))
    await core.ask(Subscribe(node, W1, W1, 1))
    await core.ask(item(node, "a"))
    await core.ask(Unsubscribe(node, W1, W1, ""))
    assert await mine(core, W1) == []
    assert isinstance(await core.ask(ManageSubscribers(node, ALICE, (Change(W1, "", "none"),))), Managed)
    assert told(door) == []


async def test_publishing_is_another_matter(core: RedisCore, node: str) -> None:
    """P7: approvals do not affect who may publish."""
    await closed(core, node)
    assert problem(await core.ask(item(node, sender=W1))) is Problem.FORBIDDEN
    result = await core.ask(Publish(node, ALICE, "a", item(node).envelope, 4))
    assert not isinstance(result, Refused)


@pytest.mark.parametrize("line", ["of another version", "1 0 5 of-another-version - - - - 0", ""])
async def test_an_unreadable_request(make_core: MakeCore, store: Store, node: str, line: str) -> None:
    """Guarantee 8: a request that another version wrote keeps no other from being made, approved or ended."""
    core, door = await make_core()
    await closed(core, node)
    for jid in (W1, W2):
        assert await core.ask(Subscribe(node, jid, jid, 1)) == waiting(jid)
    async with store.client() as client:
        await client.hset(keys.of_node("pending", node), W1, line)
    with capture_logs() as logs:
        assert await core.ask(yes(node, W2)) == Done()
    assert told(door) == [(W2, State.SUBSCRIBED)]
    assert {"node": node, "jid": W1}.items() <= next(each for each in logs if each["log_level"] == "warning").items()
    again = Jid(f"{bare_jid(W1)}/again")
    for jid in (BOB, again):
        assert await core.ask(Subscribe(node, jid, jid, 1)) == waiting(jid)
    assert await core.ask(Configure(node, ALICE, {"pubsub#title": ("t",)})) == Done()
    assert await core.ask(Delete(node, ALICE)) == Done()
    gone = [notice.subscriber for notice in door.notices if isinstance(notice, NodeEvent)]
    assert set(gone) == {W1, W2, BOB, again}
    assert await index(store, "pending_nodes", W1) == 0


async def test_an_unreadable_affiliation(make_core: MakeCore, store: Store, node: str) -> None:
    """Guarantee 8: a list of affiliations leaves out those of another version."""
    core, _ = await make_core()
    bad = f"{node}-bad"
    for each in (node, bad):
        assert await core.ask(Declare(each, ALICE, {})) == Declared(each)
    async with store.client() as client:
        await client.hset(keys.of_node("affiliations", bad), bare_jid(ALICE), "of-another-version")
    assert await core.ask(Affiliations(ALICE, None)) == AffiliationList(((node, Affiliation.OWNER),))
