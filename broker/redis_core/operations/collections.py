"""Calls by which a collection lends credit to the queues below it."""

from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.redis_core.commands.collections import (
    CheckReferences,
    Lent,
    ListReferences,
    Look,
    ReceiveByReference,
    References,
    Told,
    Turn,
    Turned,
)
from broker.redis_core.operations.operation import Call, Fields, OperationReply, Values, subid
from broker.scripts.answers import Answer

_NOTHING: dict[str, str | int | bytes] = dict.fromkeys(
    ("words", "queue", "count", "level", "stamp", "hold", "holders", "puller", "limit"), ""
)


def _turn_rows(command: Turn, _record: NodeRecord) -> list[Values]:
    rows: list[Values] = [{**_NOTHING, "words": " ".join(f"{name} {word}" for name, word in command.references)}]
    for queue, level, asks in command.asking:
        asked: Values = {"queue": str(queue), "count": "0"}
        if asks is not None:
            asked = {
                "queue": str(queue),
                "count": asks.wanted,
                "level": level,
                "stamp": asks.stamp_ms,
                "hold": asks.lock_ms,
                "holders": asks.holders,
            }
        rows.append({**_NOTHING, **asked})
    for each in command.pulls:
        limit: str | int = "" if each.limit is None else each.limit
        whom: Values = {"puller": each.subid, "limit": limit}
        about: Values = {"queue": str(each.queue), "count": each.wanted, "stamp": each.stamp_ms, "hold": each.lock_ms}
        rows.append({**_NOTHING, **whom, **about})
    return rows


def _read_turned(_command: Turn, reply: OperationReply, _record: NodeRecord) -> Turned:
    turn = reply.rows
    return Turned(
        tuple(map(_read_lent, turn.loans)),
        tuple(map(_read_look, turn.looks)),
        bool(turn.more),
        tuple((tuple(each.names.decode().split()), each.deadline_ms) for each in turn.pulls),
    )


def _read_lent(loan: Answer) -> Lent:
    return Lent(
        *(Partition.parse(loan.queue.decode()), loan.name.decode(), loan.subid.decode(), Jid(loan.jid.decode())),
        *(loan.sending.decode(), loan.deadline_ms, loan.whose.decode()),
    )


def _read_look(look: Answer) -> Look:
    return Look(Partition.parse(look.queue.decode()), look.name.decode(), look.deadline_ms, look.reason.decode())


def _reference_rows(command: ReceiveByReference, record: NodeRecord) -> list[Values]:
    return [
        {
            "reference": each.name,
            "subid": each.subid,
            "first": subid(each.jid),
            "jid": each.jid,
            "sending": each.sending,
            "collection": command.collection,
            "whose": each.whose,
            "deadline": each.deadline_ms,
            "admitted": "1" if record.config.queueing and record.is_readable(bare_jid(each.jid)) else "",
        }
        for each in command.lent
    ]


def _read_received(command: ReceiveByReference, reply: OperationReply, _record: NodeRecord) -> Told:
    words = zip(command.lent, reply.rows.words, strict=True)
    return Told(tuple((each.name, word.decode()) for each, word in words if word != b"locked"))


def _look_rows(command: CheckReferences, _record: NodeRecord) -> list[Values]:
    return [{"reference": each.name, "deadline": each.deadline_ms, "reason": each.reason} for each in command.looks]


def _read_told(command: CheckReferences, reply: OperationReply, _record: NodeRecord) -> Told:
    # What the operation had no time for is looked at again.
    return Told(tuple((each.name, word.decode()) for each, word in zip(command.looks, reply.rows.words, strict=False)))


def _read_references(_command: ListReferences, reply: OperationReply, _record: NodeRecord) -> References:
    found = reply.rows
    return References(found.scan.decode(), tuple((each.subid.decode(), _read_look(each)) for each in found.references))


def _about_turn(command: Turn, _record: NodeRecord) -> Values:
    return Fields(command, taken=command.name)


turn = Call("turn", _read_turned, _about_turn, rows=_turn_rows)
receive_by_reference = Call("receive_by_reference", _read_received, rows=_reference_rows)
check_references = Call("check_references", _read_told, rows=_look_rows)
list_references = Call("list_references", _read_references)
