"""Handlers of operations on subscriptions: create, fetch, end, and the outcomes of held messages.

Must not know a framework. Handlers keep nothing between two requests.
"""

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from http import HTTPStatus
from typing import Final

import structlog

from broker.model.commands import (
    Describe,
    Nodes,
    Options,
    Receive,
    Subscribe,
    Subscriptions,
    Unsubscribe,
)
from broker.model.core import Core
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.destinations import is_wildcard, matches
from broker.model.nodes.pull_subscriptions import is_lease_record, new_pull_name, record_name
from broker.model.nodes.subscriptions import client_name
from broker.model.problems import CorruptRecord, MalformedRequest, Problem
from broker.model.results import (
    AcknowledgedAndReceived,
    Described,
    HeldItem,
    Listing,
    Received,
    Refused,
    Renewed,
    Result,
    Retracted,
    Subscribed,
    SubscriptionList,
    Unlocked,
    Unsubscribed,
)
from broker.tasks import start
from frontends.rest import replies
from frontends.rest.auth.identity import end_of_credentials
from frontends.rest.core_client import ask_all, result
from frontends.rest.errors import Fault, fault, write_problem
from frontends.rest.formats import documents
from frontends.rest.formats.views import Message
from frontends.rest.http import fields, negotiation
from frontends.rest.http.values import ApiRequest, Response
from frontends.rest.subscriptions import requests, views
from frontends.rest.subscriptions.requests import LockRef, PullSubscription

SILENT_SECONDS: Final = 5.0
"""The longest silence of an event stream: it lets both ends notice that the other is gone."""

_LOOKS: Final = 20
"""How many pages of names one request reads to find matches of a wildcard."""

_NOTHING: Final[Received | Refused] = Received((), 0)

_log = structlog.get_logger("stanzaq.rest")


async def create_subscription(core: Core, request: ApiRequest) -> Response:
    """Subscribe to a queue, to all queues below a collection, or to several destinations (R12, R13)."""
    subscription_request = requests.subscription_request(request)
    name = new_pull_name(subscription_request.seconds)
    node, *others = subscription_request.destinations
    several = bool(others or is_wildcard(node))
    if several:
        for each in subscription_request.destinations:
            await _find(core, request, each)
        node = record_name(name)
    subscription = PullSubscription(request.sender, node, name, subscription_request.seconds)
    command = Subscribe(
        node,
        request.sender,
        subscription.jid,
        subscription_request.prefetch,
        Qos.PULLED,
        selector=subscription_request.selector,
        lease_ms=subscription_request.seconds * 1000,
        most=request.most_subscriptions,
        destinations=subscription_request.destinations if several else (),
        client=client_name(request.headers.get("user-agent", "")),
    )
    outcome = await core.ask(command)
    if isinstance(outcome, Refused):
        raise fault(outcome)
    assert isinstance(outcome, Subscribed)
    return views.answer_subscribed(views.ShownSubscription(subscription, subscription_request.destinations, outcome))


async def list_subscriptions(core: Core, request: ApiRequest) -> Response:
    """List a page of the sender's own subscriptions."""
    first, limit = fields.first(request), fields.page(request)
    found = (await result(core, Subscriptions(request.sender, None), SubscriptionList)).subscriptions
    mine = requests.keep_known(request.sender, found)
    shown = await asyncio.gather(*(_read_subscription(core, request, each) for each in mine[first : first + limit]))
    # A subscription that ends meanwhile is not shown.
    return views.answer_subscriptions([each for each in shown if each], first, limit, len(mine))


async def show_subscription(core: Core, request: ApiRequest) -> Response:
    """Show the messages of a subscription and extend its lease, or stream them (R15, RX5)."""
    subscription = requests.of(request)
    wait = requests.wait(request)
    receive = _receive(subscription, request)
    if request.wants == negotiation.EVENTS:
        found = await _receive_items(core, subscription, receive)
        events = _events(core, subscription, receive, found, request.ends)
        return Response(HTTPStatus.OK, media=negotiation.EVENTS, events=events)
    found = await _receive_items(core, subscription, replace(receive, wait_seconds=float(wait)))
    return replies.held_messages(
        views.view_subscription(subscription, found, _readable(subscription, found.items)), request.wants
    )


async def delete_subscription(core: Core, request: ApiRequest) -> Response:
    """End a subscription, and return its messages (R14) unless they are to stay under their locks."""
    subscription, keep = requests.of(request), requests.read_keep(request)
    return _answer_done(
        _report_expiry(subscription, await _end(core, subscription, request.sender, keep=keep)), Unsubscribed
    )


async def show_held_message(core: Core, request: ApiRequest) -> Response:
    """Show a message that a subscription holds under this lock."""
    lock_ref = requests.lock_ref(request)
    subscription = lock_ref.subscription
    only = lock_ref.node, lock_ref.partition, lock_ref.token
    found = await _receive_items(core, subscription, replace(_receive(subscription, request), only=only))
    for item in found.items:
        if (item.partition.node, item.partition.number, item.token) == only:
            return replies.message(views.view_held(subscription, item), request.wants)
    raise _not_held_fault(lock_ref)


async def acknowledge_message(core: Core, request: ApiRequest) -> Response:
    """Acknowledge a message (R16)."""
    lock_ref = requests.lock_ref(request)
    return answer_acknowledged(lock_ref, await core.ask(lock_ref.acknowledge()))


async def acknowledge_messages(core: Core, request: ApiRequest) -> Response:
    """Acknowledge several messages, each with its own result, and receive more if the request asks for that."""
    more = requests.read_next(request)
    wanted = [requests.lock_ref_at(request, each) for each in requests.addresses(request)]
    known = [each for each in wanted if isinstance(each, LockRef)]
    # All others are acknowledged before the last one asks for more.
    commands = [each.acknowledge(more if each is known[-1] else None) for each in known]
    outcomes = await ask_all(core, commands)
    answered = iter(outcomes)
    results = [_fault_of(each, next(answered)) if isinstance(each, LockRef) else each for each in wanted]
    return replies.answer_settled(results) if more is None else _answer_next(request, results, outcomes)


async def complete_message(core: Core, request: ApiRequest) -> Response:
    """Acknowledge a message with a result for its publisher, and receive more if the request asks for that."""
    lock_ref, more = requests.lock_ref(request), requests.read_next(request)
    outcome = await core.ask(lock_ref.complete(request, more))
    if more is not None:
        return _answer_next(request, [_fault_of(lock_ref, outcome)], [outcome])
    return answer_acknowledged(lock_ref, outcome)


def answer_acknowledged(lock_ref: LockRef, outcome: Result) -> Response:
    """Answer that a message is acknowledged; raises Fault if it is not."""
    return _answer_done(_report_expired_lock(lock_ref, outcome), Retracted)


async def release_message(core: Core, request: ApiRequest) -> Response:
    """Return a message to its queue."""
    return await _give_back(core, request, dead_letter=False)


async def renew_message(core: Core, request: ApiRequest) -> Response:
    """Renew a message's lock."""
    lock_ref = requests.lock_ref(request)
    outcome = _report_expired_lock(lock_ref, await core.ask(lock_ref.renew(request)))
    if isinstance(outcome, Refused):
        raise fault(outcome)
    assert isinstance(outcome, Renewed)
    return replies.answer_renewed(outcome)


async def bury_message(core: Core, request: ApiRequest) -> Response:
    """Send a message to its queue's dead letters."""
    return await _give_back(core, request, dead_letter=True)


def _receive(subscription: PullSubscription, request: ApiRequest) -> Receive:
    """Return the fetch of a subscription; only its owner's, and not with HEAD, extends the lease (RFC 9110 §9.2.1)."""
    takes = subscription.owner == request.sender and not request.looks
    return Receive(
        subscription.node, request.sender, subscription.jid, subscription.seconds * 1000 if takes else None, takes=takes
    )


async def _receive_items(core: Core, subscription: PullSubscription, receive: Receive) -> Received:
    found = _report_expiry(subscription, await core.ask(receive))
    if isinstance(found, Refused):
        raise fault(found)
    assert isinstance(found, Received)
    return found


def _readable(subscription: PullSubscription, items: Iterable[HeldItem]) -> Iterator[Message]:
    """Return the views of held messages, without those that cannot be read."""
    for item in items:
        try:
            message = views.view_held(subscription, item)
        except CorruptRecord as wrong:
            # Its lock expires like any other; after its last attempt it becomes a dead letter.
            where = {"node": item.partition.node, "partition": item.partition.number, "item": item.item_id}
            _log.error("an item cannot be read", **where, subscriber=subscription.owner, error=str(wrong))
        else:
            yield message


def _report_expiry(subscription: PullSubscription, outcome: Result) -> Result:
    """Report a missing subscription as expired: only one that existed has an id."""
    gone = {Problem.NOT_SUBSCRIBED, *({Problem.NODE_NOT_FOUND} if is_lease_record(subscription.node) else ())}
    over = isinstance(outcome, Refused) and outcome.problem in gone
    return Refused(Problem.LEASE_OVER, "the subscription has expired") if over else outcome


async def _read_subscription(
    core: Core, request: ApiRequest, subscription: PullSubscription
) -> views.ShownSubscription | None:
    """Read a subscription; None when it has ended."""
    options = await core.ask(Options(subscription.node, request.sender, subscription.jid, ""))
    if not isinstance(options, Subscribed):
        return None
    if not is_lease_record(subscription.node):
        return views.ShownSubscription(subscription, (subscription.node,), options)
    known = await core.ask(Describe(subscription.node, request.sender, as_owner=True))
    if not isinstance(known, Described):
        return None
    return views.ShownSubscription(subscription, known.record.destinations, options)


async def _find(core: Core, request: ApiRequest, destination: str) -> None:
    """Check that a destination is there: a node that its subscriber may see, or a wildcard that matches something."""
    if not is_wildcard(destination):
        await result(core, Describe(destination, request.sender, as_owner=False), Described)
        return
    after = ""
    for _ in range(_LOOKS):
        listing = await result(core, Nodes(request.sender, after=after), Listing)
        if any(matches(destination, name) for name in listing.nodes):
            return
        if not listing.more or not listing.nodes:
            raise fault(MalformedRequest(Problem.NODE_NOT_FOUND, f"destinations: {destination[:200]} matches nothing"))
        after = listing.nodes[-1]


def _fault_of(lock_ref: LockRef, outcome: Result) -> Fault | None:
    """Return why a message is not acknowledged; None if it is."""
    told = outcome.outcome if isinstance(outcome, AcknowledgedAndReceived) else outcome
    reported = _report_expired_lock(lock_ref, told)
    return fault(reported) if isinstance(reported, Refused) else None


def _answer_next(request: ApiRequest, results: Sequence[Fault | None], outcomes: Sequence[Result]) -> Response:
    """Answer for acknowledged messages, and with those that were received with the last one."""
    subscription, found = requests.of(request), _NOTHING
    # Without a lock of the subscription's owner, or while the core refuses all, nothing was asked.
    if outcomes and isinstance(outcomes[-1], AcknowledgedAndReceived):
        found = outcomes[-1].received
    reported = _report_expiry(subscription, found)
    refused = fault(reported) if isinstance(reported, Refused) else None
    items, more = (found.items, found.more) if isinstance(found, Received) else ((), False)
    return replies.answer_next(results, list(_readable(subscription, items)), refused, more=more)


async def _give_back(core: Core, request: ApiRequest, *, dead_letter: bool) -> Response:
    lock_ref = requests.lock_ref(request)
    return _answer_done(
        _report_expired_lock(lock_ref, await core.ask(lock_ref.give_back(request, dead_letter=dead_letter))), Unlocked
    )


def _report_expired_lock(lock_ref: LockRef, outcome: Result) -> Result:
    """Report an expired lock as such, whatever has happened to the message since (RX6)."""
    if not isinstance(outcome, Refused):
        return outcome
    late = {Problem.LOCKED_BY_ANOTHER, *((Problem.ITEM_NOT_FOUND, Problem.FORBIDDEN) if lock_ref.was_handed else ())}
    return Refused(Problem.LOCK_LOST, "the lock has expired") if outcome.problem in late else outcome


def _not_held_fault(lock_ref: LockRef) -> Fault:
    problem = Problem.LOCK_LOST if lock_ref.was_handed else Problem.ITEM_NOT_FOUND
    return fault(MalformedRequest(problem, "the subscription does not hold this message under this lock"))


async def _end(core: Core, subscription: PullSubscription, sender: Jid, *, keep: bool = False) -> Result:
    return await core.ask(Unsubscribe(subscription.node, sender, subscription.jid, "", release=not keep))


def _answer_done(outcome: Result, *kinds: type[Result]) -> Response:
    if isinstance(outcome, Refused):
        raise fault(outcome)
    assert isinstance(outcome, kinds), f"{type(outcome).__name__} is none of {kinds}"
    return replies.answer_done()


async def _events(
    core: Core, subscription: PullSubscription, receive: Receive, found: Result | Fault, ends: Callable[[], float]
) -> AsyncGenerator[bytes, None]:
    """Stream each message once as Server-Sent Events, until the lease, the credentials or this process ends.

    A slow reader is fetched nothing. If the owner disconnects first, the subscription ends: nobody would process its messages.
    """
    seen = dict(receive.after)
    try:
        while isinstance(found, Received):
            items = sorted(found.items, key=lambda item: item.token)
            seen |= {item.partition: item.token for item in items}
            written = [
                b"event: message\ndata: %b\n\n" % documents.message(each) for each in _readable(subscription, items)
            ]
            # At once, since each part has a price; a comment keeps the stream alive.
            yield b"".join(written) or b":\n\n"
            if found.owned:
                await asyncio.sleep(min(replies.OWNED_SECONDS, subscription.seconds / 3))
            left = ends() - time.time()
            again = replace(receive, wait_seconds=min(SILENT_SECONDS, left), after=seen)
            found = await core.ask(again) if left > 0 else end_of_credentials(ends())
        assert isinstance(found, Refused | Fault)
        yield b"event: end\ndata: %b\n\n" % write_problem(fault(found) if isinstance(found, Refused) else found)
    finally:
        if receive.takes and isinstance(found, Received):
            # Nothing can be awaited here any more.
            start(_end(core, subscription, receive.sender))
