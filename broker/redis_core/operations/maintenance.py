"""Calls about a whole partition: sweep, take over, purge, count, list subscribers; and the command that reads its journal."""

from collections.abc import Sequence

from broker import keys
from broker.journal.schema import record
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.tree import Scope
from broker.model.results import Counted, Done, Purged
from broker.redis_core.commands.internal import Scanned, ScanSubscribers, TakeOver
from broker.redis_core.operations.operation import Call, OperationReply

JournalRecord = tuple[str, dict[str, str | int]]
"""A record of a journal with its position."""


def journal_command(partition: Partition, after: str, most: int) -> Sequence[str | int]:
    """Return the command that reads a journal's records after a position; without one, the newest, latest first."""
    key = keys.of_partition("journal", partition)
    newest = ("XREVRANGE", key, "+", "-", "COUNT", most)
    return ("XRANGE", key, f"({after}", "+", "COUNT", most) if after else newest


def journal_records(after: str, entries: Sequence[tuple[bytes, list[bytes]]]) -> list[JournalRecord]:
    """Read the answer, in the order of the journal."""
    ordered = entries if after else entries[::-1]
    return [(at.decode(), record(dict(zip(fields[::2], fields[1::2], strict=True)))) for at, fields in ordered]


def _read_expired(_command: object, _reply: OperationReply, _record: NodeRecord) -> Done:
    return Done()


def _read_resent(_command: TakeOver, reply: OperationReply, _record: NodeRecord) -> Scanned:
    return Scanned(reply.rows[0].decode(), reply.rows[1])


def _read_purged(_command: object, reply: OperationReply, _record: NodeRecord) -> Purged:
    return Purged(reply.rows[0], more=reply.more)


def _read_counted(_command: object, reply: OperationReply, _record: NodeRecord) -> Counted:
    return Counted(*reply.rows)


def _read_scanned(_command: ScanSubscribers, reply: OperationReply, _record: NodeRecord) -> Scanned:
    scan, jids, scopes, subids, limits, holdings = reply.rows
    return Scanned(
        scan.decode(),
        jids=tuple(Jid(jid.decode()) for jid in jids),
        scopes=tuple(Scope.parse(scope.decode()) if scope else None for scope in scopes),
        subids=tuple(subid.decode() for subid in subids),
        credits=tuple(limits),
        holdings=tuple(holdings),
    )


sweep = Call("sweep", _read_expired)
take_over = Call("take_over", _read_resent)
purge = Call("purge", _read_purged)
stats = Call("stats", _read_counted)
list_subscribers = Call("list_subscribers", _read_scanned)
