"""Calls about subscriptions: subscribe, set options, read options, unsubscribe, leave, locks, receives and registrations."""

from typing import Any

from broker.model.commands import NO_TOKEN, Locks, Options, SetSubscriptionOptions, Subscribe, Unsubscribe
from broker.model.items.items import Lock
from broker.model.items.qos import Qos, Sending
from broker.model.names import Jid, bare_jid
from broker.model.nodes.nodes import MAX_SUBSCRIBERS, NodeRecord
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.results import Done, HeldLocks, Refused, Result, Subscribed
from broker.redis_core.commands.internal import OWN_CREDIT, Leave, Left, PassOn, ReceivedFrom, ReceiveFrom
from broker.redis_core.operations.items import WHICH, read_received
from broker.redis_core.operations.operation import (
    Call,
    Fields,
    Values,
    refuse,
    subid,
    subids,
)
from broker.selectors.program import conditions, program
from broker.selectors.text import read

MOST_RECEIVED, RECEIVED_BYTES = 200, 1_048_576
"""Items that a pull subscription receives at once from a partition, and about so many bytes for all that receive together."""

WORK = Scope(SubscriptionType.ITEMS, 1)
ALL_WORK = Scope(SubscriptionType.ITEMS, None)
NEWS = Scope(SubscriptionType.NODES, 1)

UNSELECTED = "a selector applies to shared work: log readers and partition owners receive everything"

LEASE_OVER = "pubsub#expire lies in the past"

_AS_IT_IS = "="

MOST_OF_ONE = 32
"""Subscriptions to one node that a JID may have, as in lua/lib/subscriptions/subscription_ids.lua."""

MOST_SELECTORS = 100
"""The same limit as in lua/lib/selection/selectors.lua."""

_OF_SELECTORS = {
    b"options-invalid": UNSELECTED,
    b"too-many-subscriptions": f"the node has {MOST_SELECTORS} subscribers who select, the most it may",
}
"""Error texts where an operation refuses a selector."""

DETAILS = WHICH | {
    b"superseded": "the subscription was renewed",
    b"not-subscribed": "there is no such subscription",
    b"lease-over": LEASE_OVER,
    b"options-invalid": "a log reader confirms by commits, not by quality of service",
    b"too-many-subscriptions": f"the node has {MAX_SUBSCRIBERS} subscribers, or {MOST_OF_ONE} of them are you: the most it may",
}


def _row(command: Subscribe | SetSubscriptionOptions, record: NodeRecord) -> Values:
    return {
        "subid": subid(command.jid),
        "jid": command.jid,
        # Without credit, a subscription gets no work.
        "credit": command.credit or 0,
        "qos": "" if command.qos is None else command.qos.value,
        "batch": "" if command.batch is None else command.batch,
        "must": "1" if isinstance(command, SetSubscriptionOptions) else "",
        "scope": _scope(command, record),
        "lease": _lease(command),
        "selector": _AS_IT_IS if command.selector is None else encode_selector(command.selector),
        "named": command.subid if isinstance(command, SetSubscriptionOptions) else "",
        "several": "1"
        if isinstance(command, Subscribe) and record.config.multi_subscribe and not command.again
        else "",
    }


def encode_selector(selector: str) -> str:
    """Encode a selector as operations store it: the length of its text in bytes, the text, and its compiled form."""
    if not selector:
        return ""
    tree = read(selector)
    return f"{len(selector.encode())} {selector}{conditions(tree)}{program(tree)}"


def _lease(command: Subscribe | SetSubscriptionOptions) -> str | int:
    if isinstance(command, Subscribe) and command.lease_ms:
        return f"+{command.lease_ms}"
    return "" if command.until_ms is None else command.until_ms


def _scope(command: Subscribe | SetSubscriptionOptions, record: NodeRecord) -> str:
    """Return the scope of a subscription to a collection: items if it gives credit, else news of nodes (XEP-0248 §5.1)."""
    if not record.config.collects:
        return ""
    if command.scope is None and isinstance(command, Subscribe):
        return str(ALL_WORK if command.qos is Qos.PULLED else WORK if command.credit else NEWS)
    return "" if command.scope is None else str(command.scope)


def _read_subscribed(_command: object, reply: list[Any], _record: NodeRecord) -> Result:
    if reply[0] != b"ok":
        return refuse(reply[0], _OF_SELECTORS[reply[0]] if reply[1:] else DETAILS.get(reply[0], ""))
    _code, credit, sending, jid, *rest = reply
    return _read_granted(Jid(jid.decode()), [credit, sending, *rest])


def _read_granted(jid: Jid, values: list[Any]) -> Subscribed:
    credit, word, until_ms, whose, *more = values
    if word == b"stream":
        return Subscribed(jid, whose.decode(), credit, reads=True, until_ms=until_ms)
    scope, selector = (*more, b"", b"")[:2]
    within = Scope.parse(scope.decode()) if scope else None
    length, _, text = selector.partition(b" ")
    chosen = text[: int(length)].decode() if selector else ""
    sending = Sending.parse(word.decode())
    return Subscribed(
        *(jid, whose.decode(), credit, sending.qos),
        scope=within,
        until_ms=until_ms,
        selector=chosen,
        batch=sending.batch,
    )


def _options(command: Options, reply: list[Any], _record: NodeRecord) -> Result:
    if reply[0] == b"ok":
        return _read_granted(command.jid, reply[1:])
    return refuse(reply[0], DETAILS.get(reply[0], ""))


def departure(whose: str, *, release: bool) -> dict[str, str]:
    """Return the columns of the end of one subscription."""
    gone = "1" if release else ""
    # A lost connection keeps its group's epoch until the ownership lease ends; an orderly leave resets it (EX11).
    nothing = dict.fromkeys(("named", "reason", "lapsed", "told", "group"), "")
    return {"subid": whose, "which": "this", "release": gone, "kept": gone} | nothing


def _unsubscribe_row(command: Unsubscribe, _record: NodeRecord) -> Values:
    return departure(subid(command.jid), release=False) | {"which": "", "named": command.subid}


def _leave_row(command: Leave, _record: NodeRecord) -> Values:
    return departure(command.subid or subid(command.jid), release=command.release) | {
        "which": "this" if command.subid else "all",
        "lapsed": "1" if command.lapsed else "",
        "told": "1" if command.notices else "",
    }


def read_ended(_command: object, reply: list[Any], _record: NodeRecord) -> Left | Refused:
    """Read the end of a subscription."""
    code, *what = reply
    if not what:
        return refuse(code, DETAILS[code])
    held, others, ended = what
    return Left(tuple(name.decode() for name in ended), held, bool(others))


def _locks_row(command: Locks, _record: NodeRecord) -> Values:
    return {"subids": subids(command.sender)}


def _read_held(_command: Locks, reply: list[Any], record: NodeRecord) -> HeldLocks:
    of = record.config.max_deliveries
    return HeldLocks(
        tuple(Lock(item.decode(), token, attempt, of, deadline) for item, token, attempt, deadline in reply[1])
    )


def _receive_row(command: ReceiveFrom, _record: NodeRecord) -> Values:
    limit: str | int = "" if command.limit is None else "*" if command.limit == OWN_CREDIT else command.limit
    return Fields(
        command,
        subid=subid(command.jid),
        lease="" if command.lease_ms is None else command.lease_ms,
        # The queue's owners may look at another's pull subscription: that does not hand it items.
        limit=limit if bare_jid(command.jid) == bare_jid(command.sender) else "",
        references=" ".join(command.loan.names) if command.loan else "",
        collection=command.loan.collection if command.loan else "",
        deadline=command.loan.deadline_ms if command.loan else "",
    )


def _pass_on_row(command: PassOn, _record: NodeRecord) -> Values:
    nothing: Values = dict.fromkeys(
        ("jid", "lease", "limit", "lock_ms", "process", "references", "collection", "deadline"), ""
    )
    return {"subid": command.subid, "after": NO_TOKEN, "selector": _AS_IT_IS, **nothing}


def _read_received(command: ReceiveFrom, reply: list[Any], record: NodeRecord) -> ReceivedFrom | Refused:
    if reply[0] != b"ok":
        return refuse(reply[0], "the subscription has expired")
    partition, lasts = record.partition(command.partition), record.config.lock_seconds
    *_, selector, waits, _owned, stamp_ms, unused = reply
    lock_ms = lasts * 1000 if command.lock_ms is None else command.lock_ms
    received = read_received(partition, reply, record)
    return ReceivedFrom(received, selector.decode(), waits, stamp_ms, lock_ms, tuple(unused.decode().split()))


def max_subscribers(_command: object, _record: NodeRecord) -> Values:
    """Return how many subscribers a partition may have."""
    return {"max_subscribers": MAX_SUBSCRIBERS}


subscribe = Call("subscribe", _read_subscribed, max_subscribers, _row)
set_options = Call("subscribe", _read_subscribed, max_subscribers, _row)
get_subscription = Call(
    "get_subscription", _options, row=lambda command, _record: {"subid": subid(command.jid), "named": command.subid}
)
unsubscribe = Call("unsubscribe", read_ended, row=_unsubscribe_row)
leave = Call("unsubscribe", read_ended, row=_leave_row)


def _receive_limits(_command: object, _record: NodeRecord) -> Values:
    return {"most": MOST_RECEIVED, "max_bytes": RECEIVED_BYTES}


receive = Call("receive", _read_received, _receive_limits, _receive_row)
pass_on = Call("receive", lambda _command, _reply, _record: Done(), _receive_limits, _pass_on_row)
list_locks = Call("list_locks", _read_held, row=_locks_row)
