"""Calls about a whole partition: sweep, take over, raise numbers, purge, count, list subscribers; and the journal's command."""

from collections.abc import Sequence
from dataclasses import fields

from broker import keys
from broker.journal.schema import record
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.tree import Scope
from broker.model.results import Counted, Done, Purged
from broker.redis_core.commands.internal import NumbersRaised, RaiseNumbers, Scanned, ScanSubscribers, TakeOver
from broker.redis_core.operations.operation import Call, OperationReply
from broker.scripts.answers import Answer

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


def _read_raised(_command: RaiseNumbers, reply: OperationReply, _record: NodeRecord) -> NumbersRaised:
    return NumbersRaised(reply.rows.now_ms, reply.rows.token)


def _read_resent(_command: TakeOver, reply: OperationReply, _record: NodeRecord) -> Scanned:
    return Scanned(reply.rows.scan.decode(), reply.rows.upto)


def _read_purged(_command: object, reply: OperationReply, _record: NodeRecord) -> Purged:
    return Purged(reply.rows.count, more=reply.more)


def read_counts(counts: Answer) -> Counted:
    """Read what `stats` counts, whose names are those of the fields."""
    return Counted(*(getattr(counts, each.name) for each in fields(Counted)))


def _read_scanned(_command: ScanSubscribers, reply: OperationReply, _record: NodeRecord) -> Scanned:
    page = reply.rows
    return Scanned(
        page.scan.decode(),
        jids=tuple(Jid(jid.decode()) for jid in page.jids),
        scopes=tuple(Scope.parse(scope.decode()) if scope else None for scope in page.scopes),
        subids=tuple(subid.decode() for subid in page.subids),
        credits=tuple(page.credits),
        holdings=tuple(page.holdings),
    )


sweep = Call("sweep", _read_expired)
raise_numbers = Call("raise_numbers", _read_raised)
take_over = Call("take_over", _read_resent)
purge = Call("purge", _read_purged)
stats = Call("stats", lambda _command, reply, _record: read_counts(reply.rows))
list_subscribers = Call("list_subscribers", _read_scanned)
