"""Calls about subscriptions: subscribe, set options, read options, unsubscribe, leave, locks, receives and registrations."""

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
from broker.scripts.answers import Answer
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


def _read_subscribed(_command: object, answer: Answer, _record: NodeRecord) -> Result:
    code = answer.code
    if code != b"ok":
        return refuse(code, _OF_SELECTORS[code] if getattr(answer, "cause", None) else DETAILS.get(code, ""))
    return _read_granted(Jid(answer.jid.decode()), answer)


def _read_granted(jid: Jid, answer: Answer) -> Subscribed:
    subid, credit, until_ms = answer.subid.decode(), answer.credit, answer.until_ms
    if answer.sending == b"stream":
        return Subscribed(jid, subid, credit, reads=True, until_ms=until_ms)
    within = Scope.parse(answer.scope.decode()) if answer.scope else None
    length, _, text = (answer.selector or b"0 ").partition(b" ")
    sending = Sending.parse(answer.sending.decode())
    return Subscribed(
        *(jid, subid, credit, sending.qos),
        scope=within,
        until_ms=until_ms,
        selector=text[: int(length)].decode(),
        batch=sending.batch,
    )


def _options(command: Options, answer: Answer, _record: NodeRecord) -> Result:
    if answer.code == b"ok":
        return _read_granted(command.jid, answer)
    return refuse(answer.code, DETAILS.get(answer.code, ""))


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


def read_ended(_command: object, answer: Answer, _record: NodeRecord) -> Left | Refused:
    """Read the end of a subscription; one that had ended before may have left locks."""
    if answer.code not in {b"ok", b"not-subscribed"}:
        return refuse(answer.code, DETAILS[answer.code])
    return Left(tuple(name.decode() for name in answer.subids), answer.locks, bool(answer.others))


def _locks_row(command: Locks, _record: NodeRecord) -> Values:
    return {"subids": subids(command.sender)}


def _read_held(_command: Locks, answer: Answer, record: NodeRecord) -> HeldLocks:
    of = record.config.max_deliveries
    return HeldLocks(
        tuple(Lock(each.item.decode(), each.token, each.attempt, of, each.deadline_ms) for each in answer.locks)
    )


def _receive_row(command: ReceiveFrom, _record: NodeRecord) -> Values:
    limit: str | int = "" if command.limit is None else "*" if command.limit == OWN_CREDIT else command.limit
    return Fields(
        command,
        subid=subid(command.jid),
        lease="" if command.lease_ms is None else command.lease_ms,
        credit="" if command.credit is None else command.credit,
        # The queue's owners may look at another's pull subscription: that does not hand it items.
        limit=limit if bare_jid(command.jid) == bare_jid(command.sender) else "",
        references=" ".join(command.loan.names) if command.loan else "",
        collection=command.loan.collection if command.loan else "",
        deadline=command.loan.deadline_ms if command.loan else "",
    )


def _pass_on_row(command: PassOn, _record: NodeRecord) -> Values:
    nothing: Values = dict.fromkeys(
        ("jid", "lease", "credit", "limit", "lock_ms", "process", "references", "collection", "deadline"), ""
    )
    return {"subid": command.subid, "after": NO_TOKEN, "selector": _AS_IT_IS, **nothing}


def _read_received(command: ReceiveFrom, answer: Answer, record: NodeRecord) -> ReceivedFrom | Refused:
    if answer.code != b"ok":
        return refuse(answer.code, "the subscription has expired")
    lock_ms = record.config.lock_seconds * 1000 if command.lock_ms is None else command.lock_ms
    received = read_received(record.partition(command.partition), answer, record)
    unused = tuple(answer.references.decode().split())
    return ReceivedFrom(received, answer.selector.decode(), answer.waits, answer.now_ms, lock_ms, unused)


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
