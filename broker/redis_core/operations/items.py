"""Calls about items: publish, retract, unlock, renew, bounce, confirm, browse."""

from dataclasses import replace

from broker.model.commands import (
    Bounce,
    Browse,
    Cancel,
    Complete,
    CompleteAndPublish,
    Confirm,
    HolderCommand,
    Publish,
    ReadOutcome,
    Renew,
    Retract,
    RetractBatch,
    Unlock,
)
from broker.model.items.durability import Durability
from broker.model.items.hints import NO_HINTS
from broker.model.items.items import Listed
from broker.model.items.outcomes import ItemOutcome, ReplyMode
from broker.model.items.progress import Progress
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.fields import decimal, rate_rule
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import AccessModel, PublishModel
from broker.model.nodes.pull_subscriptions import Next
from broker.model.positions import Position
from broker.model.problems import Problem
from broker.model.results import (
    AcknowledgedAndReceived,
    Browsed,
    Cancelled,
    Done,
    Ended,
    HeldItem,
    Published,
    Received,
    Refused,
    Renewed,
    Result,
    Retracted,
    RetractedBatch,
    Unlocked,
)
from broker.redis_core.commands.internal import FindItem, Found
from broker.redis_core.commands.outbox import FollowingItem
from broker.redis_core.operations.operation import (
    Call,
    Fields,
    OperationReply,
    Values,
    refuse,
    subids,
    subscription,
    token_text,
)
from broker.scripts.answers import Answer

WHICH = {
    b"subid-required": "you have several subscriptions here: name one by its subid",
    b"subid-invalid": "the subid does not belong to this subscription",
}
"""Error texts of a request that does not name its subscription clearly (P12)."""

_PUBLISHERS = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY)

BROWSE_BYTES = 262_144
"""Payload bytes in the answer to one browse: a stanza must pass the XMPP server."""

_GONE = (b"ok", b"replayed")

_OUTBOX_FULL = Refused(
    Problem.NOT_ACCEPTABLE,
    "too many items wait to be published with earlier acknowledgements: their nodes are full, or gone",
)

DETAILS = {
    b"item-not-found": "there is no such item: it was acknowledged, deleted, or never published",
    b"forbidden": "the item was never handed to you",
    b"locked-by-another": "another subscriber holds the item now",
    b"lock-lost": "you no longer hold the item: its lock expired, was given back, or the token is an older one's",
    b"item-id-invalid": "ids of this form are reserved for the service",
    b"not-acceptable": "the items are too large to be deleted together: name fewer",
    b"node-full": "the node holds as many items as it may",
}


def _refuse(code: bytes) -> Refused:
    return refuse(code, DETAILS.get(code, ""))


def _deny(command: HolderCommand, code: bytes, record: NodeRecord) -> Refused:
    """Refuse a holder's command; a sender without access does not learn what exists (D3)."""
    closed = record.config.access_model is not AccessModel.OPEN
    if closed and code == b"item-not-found" and record.affiliation_of(command) is Affiliation.NONE:
        return _refuse(b"forbidden")
    return _refuse(code)


def intake(_command: object, record: NodeRecord) -> Values:
    """Return the arguments that say how a node accepts items."""
    config = record.config
    return {
        "dedupe": config.dedupe.value,
        "dedupe_ms": config.dedupe_seconds * 1000,
        # A queue's bound is the node's; a log keeps so many in each partition.
        "max_items": -(-config.max_items // config.partitions) if config.queueing else config.max_items,
        "node_full": config.node_full.value,
        "publish_rate": rate_rule(config.publish_rate) if config.publish_rate else "",
    }


def publish_row(command: Publish, record: NodeRecord) -> Values:
    """Return the arguments of one publish; with an id, one that waits for the disk or replicas counts once, as with a ticket."""
    ticket = command.ticket
    if (command.hints.confirm or record.config.confirm) is not Durability.STORED:
        ticket = ticket or command.item_id or ""
    return {
        "item": command.item_id or "",
        "key": command.key,
        "by": bare_jid(command.sender),
        "body": b"" if command.refused else command.envelope,
        "once": f"{ticket}\0{command.digest}" if command.digest else ticket,
        "hints": "" if command.hints is NO_HINTS else _hints(command),
        "refused": "1" if command.refused else "",
    }


def _hints(command: Publish) -> str:
    """Return the hints as operations read them."""
    hints = command.hints
    return f"{hints.times} {reply_to(command)}" if hints.reply else "" if hints == NO_HINTS else hints.times


def reply_to(command: Publish) -> str:
    """Return the JID that gets the reply to a publish, `@` before one that only looks; empty for none."""
    if not command.hints.reply:
        return ""
    mark = "" if command.hints.reply is ReplyMode.TOLD else "@"
    return f"{mark}{command.sender}"


def read_published(command: Publish, answer: Answer, record: NodeRecord) -> Published | Refused:
    """Read the answer to a publish."""
    code = answer.code
    if code in {b"ok", b"duplicate"}:
        return Published(answer.item.decode(), duplicate=code == b"duplicate", differs=bool(answer.differs))
    if code == b"refused":
        assert command.refused is not None
        return command.refused
    if code == b"too-fast":
        wait_ms: int = answer.wait_ms
        detail = f"you may publish {record.config.publish_rate} items here: wait {decimal(wait_ms / 1000)} s"
        return Refused(Problem.TOO_FAST, detail, wait_ms)
    return _refuse(code)


def _holder_row(command: Retract | Unlock | Renew | FindItem, record: NodeRecord) -> dict[str, str | int | bytes]:
    return {
        "sender": command.sender,
        "subids": subids(command.sender),
        "owner": "1" if record.affiliation_of(command) is Affiliation.OWNER else "",
        "item": command.item_id,
        "token": token_text(command.token),
    }


def _request_row(command: Retract | Unlock | FindItem, record: NodeRecord) -> dict[str, str | int | bytes]:
    return _holder_row(command, record) | {"request": command.request}


def _unlock_row(command: Unlock, record: NodeRecord) -> Values:
    return _request_row(command, record) | {
        "delay_ms": "" if command.delay_ms is None else command.delay_ms,
        "reason": command.reason,
        "dead_letter": "1" if command.dead_letter else "",
        "untried": "1" if command.untried else "",
    }


def _retract_row(command: Retract, record: NodeRecord) -> dict[str, str | int | bytes]:
    return _request_row(command, record) | {"next": _next(command.next, record) if command.next else ""}


def _next(request: Next, record: NodeRecord) -> str:
    """Return what is received by the operation that acknowledges; empty where more than this partition is to be asked."""
    if record.name != request.node or record.config.partitions > 1:
        return ""
    return f"{request.most} {request.lease_ms}"


def _read_retracted(command: Retract, answer: Answer, record: NodeRecord) -> Result:
    if answer.code == b"received":
        outcome = _read_retracted(command, answer.outcome, record)
        assert isinstance(outcome, Retracted | Refused)
        found, partition = answer.items, record.partition(command.partition or 0)
        received = read_received(partition, found, record) if found.code == b"ok" else refuse(found.code)
        return AcknowledgedAndReceived(outcome, received)
    if answer.code == b"refused":
        assert isinstance(command, CompleteAndPublish)
        assert command.refused is not None
        return command.refused
    if answer.code == b"outbox-full":
        return _OUTBOX_FULL
    return _read_gone(answer) if answer.code in _GONE else _deny(command, answer.code, record)


def read_received(partition: Partition, answer: Answer, record: NodeRecord) -> Received:
    """Read what a pull subscription holds in a partition."""
    of, lasts = record.config.max_deliveries, record.config.lock_seconds
    items = tuple(
        HeldItem(
            *(partition, each.item.decode(), each.token, each.attempt, each.deadline_ms),
            *(Jid(each.publisher.decode()), each.body, each.key.decode(), each.published_ms),
            untried=each.untried,
            reply=bool(each.reply),
            of=of,
            lock_seconds=lasts,
            waited_ms=each.waited_ms,
        )
        for each in answer.items
    )
    held = {partition: answer.locks}
    return Received(items, answer.until_ms, bool(answer.more), held, answer.credit, bool(answer.owner))


def _complete_row(command: Complete, record: NodeRecord) -> Values:
    return {**_retract_row(command, record), "result": command.envelope}


def _complete_and_publish_row(command: CompleteAndPublish, record: NodeRecord) -> Values:
    items = [] if command.refused else [FollowingItem.of(each).pack() for each in command.publishes]
    lengths = " ".join(str(len(each)) for each in items)
    told = {"publishes": b"".join((lengths.encode(), b";", *items)), "refused": "1" if command.refused else ""}
    return {**_complete_row(command, record), **told}


def _outcome_row(command: ReadOutcome, record: NodeRecord) -> Values:
    return {"sender": command.sender, "owner": "1" if record.is_owned_by(command) else "", "item": command.item_id}


def _outcome(_command: ReadOutcome, answer: Answer, _record: NodeRecord) -> Result:
    line = answer.outcome
    return Ended(ItemOutcome.read(line) if line else None, awaited=line is not None)


def _read_gone(answer: Answer) -> Retracted:
    return Retracted(Jid(answer.holder.decode()) or None, *_read_end(answer))


def _read_end(answer: Answer) -> tuple[bool, str, str]:
    """Return whether an earlier request has ended a lock, else its subscription."""
    replayed = answer.code == b"replayed"
    return replayed, *(("", "") if replayed else subscription(answer.collection, answer.subid))


def _retract_rows(command: RetractBatch, record: NodeRecord) -> list[Values]:
    return [_retract_row(each, record) for each in command.items]


def _read_retracted_batch(command: RetractBatch, reply: OperationReply, record: NodeRecord) -> Result:
    first = reply.rows[0]
    if first.code in _GONE:
        return RetractedBatch(tuple(map(_read_gone, reply.rows)))
    # The only answer says why which item was refused; Lua counts from 1.
    item = command.items[first.row - 1]
    why = _deny(item, first.problem, record)
    return Refused(why.problem, f"{item.item_id}: {why.detail}")


def _cancel_row(command: Cancel, record: NodeRecord) -> Values:
    return Fields(command, owner="1" if record.is_owned_by(command) else "", item=command.item_id)


def _read_cancelled(command: Cancel, answer: Answer, record: NodeRecord) -> Result:
    if answer.code in _GONE:
        return Cancelled(answer.code == b"replayed")
    # Who may publish here may learn what is there.
    is_open = record.config.publish_model is PublishModel.OPEN
    denied = _refuse(answer.code) if is_open else _deny(command, answer.code, record)
    if denied.problem is Problem.FORBIDDEN:
        return replace(denied, detail="only the item's publisher and the node's owners may cancel it")
    return denied


def _read_unlocked(command: Unlock, answer: Answer, record: NodeRecord) -> Result:
    if answer.code in _GONE:
        return Unlocked(Jid(answer.holder.decode()), *_read_end(answer))
    return _deny(command, answer.code, record)


def _renew_row(command: Renew, record: NodeRecord) -> Values:
    return _holder_row(command, record) | {
        "lock_ms": "" if command.lock_ms is None else command.lock_ms,
        "progress": "" if command.progress is None else str(command.progress),
        "begun": "1" if command.begun else "",
    }


def _read_renewed(command: Renew, answer: Answer, record: NodeRecord) -> Result:
    if answer.code == b"ok":
        return Renewed(answer.token, answer.deadline_ms)
    return _deny(command, answer.code, record)


def _confirm_row(command: Confirm, _record: NodeRecord) -> Values:
    return Fields(command, others=_others(command))


def _bounce_row(command: Bounce, _record: NodeRecord) -> Values:
    return Fields(command, others=_others(command), subids=subids(command.sender))


def _others(command: Bounce | Confirm) -> str:
    return " ".join(f"{position} {token}" for position, token in command.others)


def _read_done(_command: object, answer: Answer, _record: NodeRecord) -> Result:
    return Done() if answer.code in _GONE else _refuse(answer.code)


def _read_found(_command: FindItem, answer: Answer, _record: NodeRecord) -> Found:
    code = answer.code
    return Found(held=code == b"held", answered=code == b"replayed", there=code not in {b"item-not-found", b"replayed"})


def _browse_rows(command: Browse, _record: NodeRecord) -> list[Values]:
    return [{"item": item_id} for item_id in command.item_ids]


def _browse_page(command: Browse, _record: NodeRecord) -> Values:
    whose = "" if command.subid is None else subids(command.sender)
    return Fields(command, max_bytes=BROWSE_BYTES, subids=whose)


def _read_browsed(command: Browse, reply: OperationReply, _record: NodeRecord) -> Result:
    page = reply.rows
    # Subids are only told where some JID has more than one.
    names = {name.decode() for name in page.subids or ()} or set(subids(command.sender).split())
    if command.subid == "" and page.subids and len(names) > 1:
        return refuse(b"subid-required", WHICH[b"subid-required"])
    if command.subid and command.subid not in names:
        return refuse(b"subid-invalid", WHICH[b"subid-invalid"])
    items = tuple(
        Listed(
            Position.parse(each.place.decode()),
            *(each.item.decode(), each.state.decode(), Jid(each.publisher.decode()), each.published_ms, each.body),
            Progress.read(each.progress.decode()),
        )
        for each in page.items
    )
    return Browsed(items, reply.more, page.count, Position.parse(page.last.decode()) if page.last else None)


publish = Call("publish", read_published, intake, publish_row, when_full="find_repeat")
retract = Call("retract", _read_retracted, lambda _command, _record: {"together": ""}, _retract_row)
retract_batch = Call("retract", _read_retracted_batch, lambda _command, _record: {"together": "1"}, rows=_retract_rows)
complete = Call("complete", _read_retracted, row=_complete_row)
complete_and_publish = Call("complete_and_publish", _read_retracted, row=_complete_and_publish_row)
read_outcome = Call("read_outcome", _outcome, row=_outcome_row)
cancel = Call("cancel", _read_cancelled, row=_cancel_row)
unlock = Call("unlock", _read_unlocked, row=_unlock_row)
renew = Call("renew", _read_renewed, row=_renew_row)
bounce = Call("bounce", _read_done, row=_bounce_row)
confirm = Call("confirm", _read_done, row=_confirm_row)
find_item = Call("find_item", _read_found, row=_request_row)
browse = Call(
    "browse",
    _read_browsed,
    _browse_page,
    rows=_browse_rows,
)
