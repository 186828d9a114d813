"""Calls about logs: subscribe, commit, read, reader ownership, and how far each partition's log reaches."""

from broker.model import offsets
from broker.model.commands import Bind, Commit, Read, Unbind
from broker.model.names import Jid
from broker.model.nodes.nodes import MAX_SUBSCRIBERS, NodeRecord
from broker.model.problems import Problem
from broker.model.results import Bound, Done, Event, LogStart, Refused, Replay, Result, Subscribed
from broker.redis_core.commands.internal import LogExtent, SubscribeLog
from broker.redis_core.operations.operation import (
    Call,
    Fields,
    OperationReply,
    Values,
    by_name,
    refuse,
    subid,
    subids,
)
from broker.redis_core.operations.subscriptions import LEASE_OVER
from broker.scripts.answers import Answer

READ_BYTES = 262_144
"""Payload bytes in the answer to one read: a stanza must pass the XMPP server."""

_DETAILS = {
    b"superseded": "another link reads for the group now",
    b"not-subscribed": "you read no stream there",
    b"too-many-subscriptions": f"the node has {MAX_SUBSCRIBERS} subscribers, the most it may",
    b"lease-over": LEASE_OVER,
    b"offset-not-found": "the offset lies in the future, or was not sent to you",
}


def _refuse(code: bytes) -> Refused:
    return refuse(code, _DETAILS.get(code, ""))


def _follow_row(command: SubscribeLog, record: NodeRecord) -> Values:
    start = command.start and offsets.write_start(command.start, record.partition(command.partition))
    return Fields(command, subid=subid(command.jid), lease=command.until_ms, start=start)


def _read_followed(command: SubscribeLog, answer: Answer, record: NodeRecord) -> Result:
    if answer.code != b"ok":
        return _refuse(answer.code)
    streams: tuple[LogStart, ...] = ()
    if command.start:
        offset = offsets.write_offset(record.partition(command.partition), answer.position.decode())
        streams = (LogStart(command.partition, offset, gap=bool(answer.gap)),)
    until_ms = answer.until_ms
    return Subscribed(command.jid, subid(command.jid), command.credit, reads=True, streams=streams, until_ms=until_ms)


def _commit_row(command: Commit, record: NodeRecord) -> Values:
    position = offsets.read(command.offset, record.partition(command.partition))
    return {"subids": subids(command.sender), "position": position}


def _read_done(_command: Commit | Unbind, answer: Answer, _record: NodeRecord) -> Result:
    return Done() if answer.code == b"ok" else _refuse(answer.code)


def _read_arguments(command: Read, record: NodeRecord) -> Values:
    start = offsets.write_start(command.start, record.partition(command.partition))
    return Fields(command, start=start, max_bytes=READ_BYTES, fence=command.fence or "")


def _extent_arguments(_command: LogExtent, _record: NodeRecord) -> Values:
    return {"start": offsets.LATEST, "limit": 0, "max_bytes": 0, "group": "", "fence": ""}


def _bind_row(command: Bind, _record: NodeRecord) -> Values:
    return Fields(command, fence=command.fence or "")


def _read_bound(command: Bind, answer: Answer, _record: NodeRecord) -> Result:
    match answer.code:
        case b"ok":
            return Bound(command.partition, int(answer.epoch), answer.fence, answer.until_ms)
        case b"partition-owned":
            higher = f"a higher epoch than {answer.epoch.decode()} takes it"
            return Refused(Problem.PARTITION_OWNED, f"partition {command.partition} is read for the group: {higher}")
    return _refuse(answer.code)


def _read_entries(command: Read | LogExtent, reply: OperationReply, record: NodeRecord) -> Result:
    (answer,) = reply.rows
    if answer.code != b"ok":
        return _refuse(answer.code)
    partition = record.partition(command.partition)

    def offset(position: bytes) -> str:
        return offsets.write_offset(partition, position.decode()) if position else ""

    events = tuple(
        Event(
            *(offset(each.position), int(each.position.partition(b"-")[0]), each.item.decode(), each.key.decode()),
            *(Jid(each.publisher.decode()), each.body),
        )
        for each in answer.entries
    )
    reach = offset(answer.earliest), offset(answer.latest), offset(answer.after)
    return Replay(command.partition, events, *reach, gap=bool(answer.gap), more=reply.more)


def _add_max_subscribers(_command: SubscribeLog, _record: NodeRecord) -> Values:
    return {"max_subscribers": MAX_SUBSCRIBERS}


subscribe_log = Call("subscribe_log", _read_followed, _add_max_subscribers, _follow_row)
commit = Call("commit", _read_done, row=_commit_row)
acquire_reader = Call("acquire_reader", _read_bound, row=_bind_row)
release_reader = Call("release_reader", _read_done, row=by_name)
read_log = Call("read_log", _read_entries, _read_arguments)
log_extent = Call("read_log", _read_entries, _extent_arguments)
