"""What a call is, and the common shape of the replies of partition operations. Must not know any one operation."""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from enum import Enum
from functools import lru_cache
from typing import Any, TypeVar

import structlog

from broker import keys
from broker.model.frozen import frozen
from broker.model.items.items import Delivery, LockEnded, OwnershipLost
from broker.model.items.qos import MAX_BATCH, Stage
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.problems import OperationDefect, Problem
from broker.model.results import Refused
from broker.redis_core.commands.collections import Asks
from broker.scripts.answers import Answer

log = structlog.get_logger()

_Part = TypeVar("_Part")

Values = Mapping[str, str | int | bytes]


class Fields(dict[str, str | int | bytes]):
    """Arguments of a call: those that are given, and else the command's fields of the same names."""

    def __init__(self, command: object, **given: str | int | bytes) -> None:
        """Take a command, and what is not one of its fields, or is written in another way."""
        super().__init__(given)
        self._command = command

    def __missing__(self, name: str) -> str | int | bytes:
        """Write a field: None and False are empty, True is 1, and a choice is its word."""
        value = getattr(self._command, name)
        match value:
            case None | False:
                return ""
            case True:
                return "1"
            case Enum():
                return str(value.value)
            case str() | int() | bytes():
                return value
        return str(value)


def by_name(command: object, _record: NodeRecord) -> Values:
    """Return the arguments of a call of which each is a field of its command."""
    return Fields(command)


@frozen
class Call:
    """How one kind of command calls an operation of Redis: turns it into arguments, and the reply into a result.

    `fixed` returns the arguments of the whole call by their header names, `row` those of one command, perhaps as its
    `Fields`. A call with `row` is shared by the commands of a batch, and `result` gets the answer to one command's row; a call
    without serves one command, may have `rows`, and its `result` gets the whole `OperationReply`. Answers have the names of
    the operation's header. While Redis has no memory for it, `when_full` answers the same rows.
    """

    operation: str
    """Its name, which several kinds of commands may share."""

    result: Callable[[Any, Any, NodeRecord], Any]
    fixed: Callable[[Any, NodeRecord], Values] = by_name
    row: Callable[[Any, NodeRecord], Values] | None = None
    rows: Callable[[Any, NodeRecord], list[Values]] | None = None
    when_full: str = ""


_STAGES = {stage.value.encode(): (stage, 1) for stage in Stage} | {
    f"{stage.value}{batch}".encode(): (stage, batch)
    for stage in (Stage.UNACKNOWLEDGED, Stage.ACKNOWLEDGED, Stage.ASSURED)
    for batch in range(2, MAX_BATCH + 1)
}
"""The words of operations for a stage, followed by the most items in one stanza."""


@frozen
class LockOver:
    """A lock has ended and its subscriber is notified; `expired`: at its deadline."""

    ended: LockEnded
    expired: bool


@frozen
class LeaseOver:
    """The lease of a subscription has expired."""

    jid: Jid
    subid: str


@frozen
class SubscriptionOver:
    """A subscription was ended by bounces: its subscriber cannot be reached."""

    jid: Jid


@frozen
class WorkWaits:
    """Items wait for a pull subscription; a poll or link in this process waits for them."""

    process: str
    subid: str


@frozen
class ReferencesFreed:
    """References of a collection whose locks have ended, and how each has."""

    collection: str
    words: tuple[tuple[str, str], ...]


@frozen
class TurnDue:
    """A turn of the collection is to be taken."""


@frozen
class ToCount:
    """A counter of this process is to be increased."""

    counter: str
    amount: int


OperationNotice = (
    OwnershipLost | LockOver | LeaseOver | SubscriptionOver | WorkWaits | ReferencesFreed | Asks | TurnDue | ToCount
)
"""Notices in an operation's reply."""


@frozen
class OperationReply:
    """What every partition operation returns after `ok`; `due_ms` 0 means that nothing is due; times are Redis's ms.

    What the operation has none of is None in its answer. The command's own call reads `rows`: the answers to rows, or, of an
    operation that does not answer these one by one, its one answer.
    """

    rows: Any
    deliveries: tuple[Delivery, ...]
    notices: tuple[OperationNotice, ...]
    outbox_due: bool
    due_ms: int
    more: bool
    token: int

    @staticmethod
    def read(reply: Answer, partition: Partition, config: NodeConfig) -> "OperationReply | None":
        """Read a reply, but not its rows; None when the operation did nothing because the record was old."""
        if reply.code != b"ok":
            return None
        return OperationReply(
            reply.rows or [],
            _read_each(_delivery, delivery_rows(reply.deliveries), partition, config) if reply.deliveries else (),
            _read_each(_notice, reply.notices, partition) if reply.notices else (),
            bool(reply.outbox_due),
            reply.due_ms,
            bool(reply.more),
            reply.token,
        )


def _read_each(
    read: Callable[..., _Part], lines: Iterable[Any], partition: Partition, *about: object
) -> tuple[_Part, ...]:
    """Read lines of a reply; one that only another version understands must not hide the others."""
    found: list[_Part] = []
    for line in lines:
        try:
            found.append(read(line, partition, *about))
        except Exception:
            log.exception("a line of a reply cannot be read", node=partition.node, partition=partition.number)
    return tuple(found)


_WIDTH = 12
"""Values of one delivery (lua/lib/locks/delivery_row.lua)."""


def delivery_rows(values: list[Any] | None) -> list[tuple[Any, ...]]:
    """Return the deliveries of an operation's answer, which has the values of all of them in one list."""
    return list(zip(*[iter(values or ())] * _WIDTH, strict=True))


_USUAL = (b"",) * 5
"""What a delivery tells beside its lock and its item, where nothing is unusual."""


def _delivery(row: tuple[Any, ...], partition: Partition, config: NodeConfig) -> Delivery:
    jid, position, item, token, attempt, deadline, by, body, sequence, stage, key, told = row
    above, name, ready, reply, untried = (*told.split(b" "), *_USUAL)[:5] if told else _USUAL
    through, whose = subscription(above, name) if told else ("", "")
    at, batch = _STAGES[stage]
    message = ""
    if body and at is Stage.DELIVER:
        # One notice begins all that one message brought.
        message, body, batch = body.decode(), b"", MAX_BATCH
    return Delivery(
        partition,
        position.decode(),
        item.decode(),
        Jid(jid.decode()),
        token,
        attempt,
        config.max_deliveries,
        deadline,
        Jid(by.decode()),
        body,
        sequence,
        at,
        key.decode(),
        partitioned=config.partitions > 1,
        collection=through,
        subid=whose,
        batch=batch,
        message=message,
        ready_ms=int(ready or 0),
        untried=int(untried or 0),
        reply=bool(reply),
    )


def _notice(row: list[Any], partition: Partition) -> OperationNotice:  # noqa: PLR0911  (a table of cases)
    kind, *values = row
    match kind, values:
        case b"lost", (jid, group, epoch, fence, reason):
            owned = (partition.number, group.decode(), int(epoch), fence, reason.decode())
            return OwnershipLost(partition.node, Jid(jid.decode()), *owned)
        case b"lapsed", (jid, whose):
            return LeaseOver(Jid(jid.decode()), whose.decode())
        case b"unsubscribed", (jid,):
            return SubscriptionOver(Jid(jid.decode()))
        case b"freed", (through, words):
            told = words.decode().split(" ")
            return ReferencesFreed(read_collection(through.decode()), tuple(zip(told[::2], told[1::2], strict=True)))
        case b"asks", (wanted, stamp_ms, lock_ms, holders):
            return Asks(wanted, stamp_ms, lock_ms, holders.decode())
        case b"turn", ():
            return TurnDue()
        case b"perished", (amount,):
            return ToCount("perished", amount)
        case b"waiting", (process, whose):
            return WorkWaits(process.decode(), whose.decode())
        case b"unlocked" | b"ended" | b"cancelled", (jid, item, token, *about):
            through, whose = subscription(*about)
            cancelled = kind == b"cancelled"
            ended = LockEnded(
                partition.node, Jid(jid.decode()), item.decode(), token, through, whose, cancelled=cancelled
            )
            return LockOver(ended, expired=kind == b"unlocked")
    msg = f"a script told {kind!r}, which is no notice"
    raise OperationDefect(msg)


_PROBLEMS = {problem.value.encode(): problem for problem in Problem}


def refuse(code: bytes, detail: str = "") -> Refused:
    """Turn a code word into a refusal; raises OperationDefect on an unknown one."""
    problem = _PROBLEMS.get(code)
    if problem is None:
        msg = f"a script answered {code!r}, which is no problem's code"
        raise OperationDefect(msg)
    return Refused(problem, detail)


@lru_cache(maxsize=10_000)
def subid(jid: str) -> str:
    """Return the subid of a JID; it depends on the JID alone, so a worker that comes back still has its locks.

    A number of 52 bits: Redis sorts a subscriber's locks by it, and a score holds no more.
    """
    return str(int(hashlib.sha1(jid.encode(), usedforsecurity=False).hexdigest()[:13], 16))


@lru_cache(maxsize=10_000)
def subids(jid: str) -> str:
    """Return the subids that a sender may have: of its full JID, and of its bare one."""
    return f"{subid(jid)} {subid(bare_jid(jid))}"


def write_collection(life: Partition) -> str:
    """Return the name that operations have for a collection's incarnation, by its own partition."""
    return keys.escape(f"{life.node}@{life.incarnation}")


def read_collection(text: str) -> str:
    """Return the name of a collection that `write_collection` wrote; empty for none."""
    return keys.unescape(text).rpartition("@")[0]


def subscription(through: bytes | None = None, whose: bytes | None = None) -> tuple[str, str]:
    """Read an operation's words on a subscription: its collection, and its subid where the JID may have several."""
    return read_collection(through.decode()) if through else "", whose.decode() if whose else ""


def token_text(token: int | None) -> str:
    """Return a token as operations compare it; empty when none was given."""
    return "" if token is None else str(token)
