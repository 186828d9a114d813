"""Calls about logs: subscribe, commit, read, reader ownership, and how far each partition's log reaches."""

from typing import Any

from broker.model import offsets
from broker.model.commands import Bind, Commit, Read, Unbind
from broker.model.names import Jid
from broker.model.nodes.nodes import MAX_SUBSCRIBERS, NodeRecord
from broker.model.problems import Problem
from broker.model.results import Bound, Done, Event, LogStart, Refused, Replay, Result, Subscribed
from broker.redis_core.commands.internal import LogExtent, SubscribeLog
from broker.redis_core.operations.operation import Call, Fields, OperationReply, Values, by_name, refuse, subid, subids
from broker.redis_core.operations.subscriptions import LEASE_OVER

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


def _read_followed(command: SubscribeLog, reply: list[Any], record: NodeRecord) -> Result:
    if reply[0] != b"ok":
        return _refuse(reply[0])
    streams: tuple[LogStart, ...] = ()
    if command.start:
        offset = offsets.write_offset(record.partition(command.partition), reply[2].decode())
        streams = (LogStart(command.partition, offset, gap=bool(reply[1])),)
    return Subscribed(command.jid, subid(command.jid), command.credit, reads=True, streams=streams, until_ms=reply[3])


def _commit_row(command: Commit, record: NodeRecord) -> Values:
    position = offsets.read(command.offset, record.partition(command.partition))
    return {"subids": subids(command.sender), "position": position}


def _read_done(_command: Commit | Unbind, reply: list[bytes], _record: NodeRecord) -> Result:
    return Done() if reply[0] == b"ok" else _refuse(reply[0])


def _read_arguments(command: Read, record: NodeRecord) -> Values:
    start = offsets.write_start(command.start, record.partition(command.partition))
    return Fields(command, start=start, max_bytes=READ_BYTES, fence=command.fence or "")


def _extent_arguments(_command: LogExtent, _record: NodeRecord) -> Values:
    return {"start": offsets.LATEST, "limit": 0, "max_bytes": 0, "group": "", "fence": ""}


def _bind_row(command: Bind, _record: NodeRecord) -> Values:
    return Fields(command, fence=command.fence or "")


def _read_bound(command: Bind, reply: list[Any], _record: NodeRecord) -> Result:
    match reply:
        case [b"ok", epoch, fence, until_ms]:
            return Bound(command.partition, int(epoch), fence, until_ms)
        case [b"partition-owned", epoch]:
            detail = (
                f"partition {command.partition} is read for the group: a higher epoch than {epoch.decode()} takes it"
            )
            return Refused(Problem.PARTITION_OWNED, detail)
        case _:
            return _refuse(reply[0])


def _read_entries(command: Read | LogExtent, reply: OperationReply, record: NodeRecord) -> Result:
    if not reply.rows:
        return _refuse(b"offset-not-found")
    if reply.rows == [b""]:
        return _refuse(b"superseded")
    gap, earliest, latest, after, entries = reply.rows
    partition = record.partition(command.partition)

    def offset(position: bytes) -> str:
        return offsets.write_offset(partition, position.decode()) if position else ""

    events = tuple(
        Event(offset(position), int(position.partition(b"-")[0]), item.decode(), key.decode(), Jid(by.decode()), body)
        for position, item, key, by, body in entries
    )
    return Replay(
        command.partition, events, offset(earliest), offset(latest), offset(after), gap=bool(gap), more=reply.more
    )


def _add_max_subscribers(_command: SubscribeLog, _record: NodeRecord) -> Values:
    return {"max_subscribers": MAX_SUBSCRIBERS}


subscribe_log = Call("subscribe_log", _read_followed, _add_max_subscribers, _follow_row)
commit = Call("commit", _read_done, row=_commit_row)
acquire_reader = Call("acquire_reader", _read_bound, row=_bind_row)
release_reader = Call("release_reader", _read_done, row=by_name)
read_log = Call("read_log", _read_entries, _read_arguments)
log_extent = Call("read_log", _read_entries, _extent_arguments)
