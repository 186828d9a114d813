"""One credit over all leaves below a collection: which partitions that concerns, and how each is asked.

A collection's own partition is the bank. It has given a number to each partition below (`leaves`), by which seats and lending
know it; here a number becomes a partition of a leaf, and the name that a subscription has in the bank the one that it has
there, since a direct subscription is another one. What is noted in the bank is counted until it is gone for good, so nothing
that lies in a leaf is ever missed. Must not know what credit is.
"""

import asyncio
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Refused
from broker.redis_core.calls.call import above, below, collection, pool
from broker.redis_core.credit import Deposit, Join, Reach, Reached, Recount, Sat, Sit, Withdraw, Withdrawn
from broker.redis_core.internal import Leave, Left, Outcome, Scanned, Subscribers, fulfil, ignored
from broker.redis_core.known import Known
from broker.redis_core.lane import Lane
from broker.redis_core.lending import Lending
from broker.redis_core.places import BANK
from broker.redis_core.tree import Tree

Report = list[Any]
"""What a script says of credit, of one pool: wanted, spare, locked, gifts, ended, owing, and whose is wanted."""

LOOK_SECONDS = 1.0
"""So often, at most, it is looked whether a collection that is heard of is still there."""

_NOT_THERE = Refused(Problem.PARTITION_NOT_FOUND, "nothing below the collection has this number")
_GONE = (Problem.NODE_NOT_FOUND, Problem.PARTITION_NOT_FOUND)
_SHUT = (Problem.FORBIDDEN, Problem.CLOSED_NODE, Problem.APPROVAL_REQUIRED, Problem.UNSUPPORTED)
"""Refusals of a leaf that does not admit a subscriber: it is passed over."""


@dataclass(frozen=True, slots=True)
class Unit:
    """A partition that a pool's credit may lie in, so many levels below the collection; None: it is below it no more."""

    partition: Partition
    level: int | None


class Gate(Protocol):
    """What pools need of a node's routes."""

    lending: Lending
    pool: "Pool"

    def lane(self, number: int = 0) -> Lane:
        """Give the lane of a partition."""

    def submit(self, command: Any, reply: Callable[[Any], None]) -> None:
        """Take a command."""


Gates = Callable[[str], Gate]
"""Finds the routes of a node."""


class Pool:
    """The partitions below one collection."""

    def __init__(
        self,
        known: Known,
        tree: Tree,
        gates: Gates,
        background: Callable[[Callable[[], Coroutine[Any, Any, Any]]], None],
    ) -> None:
        """Know nothing yet; what is below the node is read from `tree`."""
        self._known = known
        self._tree = tree
        self._gates = gates
        self._background = background
        self._units: dict[int, Unit] = {}
        self._numbers: dict[Partition, int] = {}
        self._text = ""
        self._lock = asyncio.Lock()
        self._awaited: asyncio.Task[None] | None = None
        self._looked = 0.0
        self._evicting: set[tuple[Partition, str]] = set()

    @property
    def size(self) -> int:
        """One more than the highest number."""
        return max(self._units, default=BANK) + 1

    async def numbers(self) -> Sequence[int]:
        """Give the numbers that there are now: whoever asks while they are read waits until they are read anew."""
        awaited = self._awaited
        if awaited is None:
            awaited = self._awaited = asyncio.create_task(self._read_next())
        await asyncio.shield(awaited)
        return sorted(self._units)

    def ask(self, number: int, command: Any) -> asyncio.Future[Any]:
        """Give a command that is worded for the bank to a partition below."""
        return asyncio.ensure_future(self._asked(self._units.get(number), command))

    def number(self, partition: Partition) -> int | None:
        """Give the number of a partition, if it has one."""
        return self._numbers.get(partition)

    async def _read_next(self) -> None:
        async with self._lock:
            self._awaited = None
            await self._read()

    async def _read(self) -> None:
        record = await self._known.renew()
        if record is None or not record.config.collects:
            self._text, self._units, self._numbers = "", {}, {}
            return
        levels = await self._tree.leaves(record)
        reached = await self._bank(Reach(record.name, tuple(levels), ()))
        gone = await self._tree.gone([each for each in reached.partitions.values() if each not in levels])
        if gone:
            reached = await self._bank(Reach(record.name, (), gone))
        self._text = pool(record.partition(BANK))
        self._units = {number: Unit(each, levels.get(each)) for number, each in reached.partitions.items()}
        self._numbers = {each: number for number, each in reached.partitions.items()}

    async def _bank(self, command: Reach) -> Reached:
        reached = await _told(self._gates(command.node).lane(BANK), command)
        if not isinstance(reached, Reached):
            msg = "the bank of a collection did not answer"
            raise CoreUnavailable(msg)
        return reached

    async def _asked(self, unit: Unit | None, command: Any) -> Outcome:
        if unit is None:
            return _NOT_THERE
        leaf, text = unit.partition, self._text
        lane = self._gates(leaf.node).lane(leaf.number)
        match command:
            case Sit():
                return await self._seated(unit, lane, command)
            case Withdraw():
                whose = command.subid and below(text, command.subid)
                whom = tuple(name if name == "*" else below(text, name) for name in command.whom)
                asked = replace(
                    command, node=leaf.node, subid=whose, pool=text, incarnation=leaf.incarnation, whom=whom
                )
                taken: Outcome = await _told(lane, asked)
                if isinstance(taken, Withdrawn):
                    return Withdrawn(tuple(replace(gift, subid=above(text, gift.subid)) for gift in taken.gifts))
                return taken
            case Deposit():
                whose = below(text, command.subid)
                put: Outcome = await _told(
                    lane, replace(command, node=leaf.node, subid=whose, incarnation=leaf.incarnation)
                )
                return put
            case Leave():
                outcome: Outcome = await _told(lane, self._leave(leaf, command))
                gone = isinstance(outcome, Refused) and outcome.problem in _GONE
                # By which names it ended here is nobody's business.
                return replace(outcome, ended=()) if isinstance(outcome, Left) else Left((), 0) if gone else outcome
        msg = f"{type(command).__name__} is nothing for a partition below a collection"
        raise TypeError(msg)

    def _leave(self, leaf: Partition, leave: Leave) -> Leave:
        """Word for a leaf what is worded for the bank."""
        text = self._text
        whose = leave.subid and below(text, leave.subid)
        return replace(leave, node=leaf.node, pool=text, subid=whose, incarnation=leaf.incarnation)

    async def _seated(self, unit: Unit, lane: Lane, sit: Sit) -> Outcome:
        """Seat a subscriber where its scope reaches and the leaf admits it; anywhere else nothing of its credit may lie."""
        leaf, scope = unit.partition, sit.scope
        outcome: Outcome = Refused(Problem.FORBIDDEN)
        if scope is not None and scope.works and unit.level is not None and scope.reaches(unit.level):
            whose, life = below(self._text, sit.subid), leaf.incarnation
            join = Join(
                leaf.node,
                sit.jid,
                whose,
                sit.jid,
                sit.qos,
                sit.born,
                sit.forgive,
                self._text,
                sit.several,
                life,
                sit.selector,
            )
            outcome = await _told(lane, join)
        if isinstance(outcome, Refused) and outcome.problem in _SHUT:
            leave = self._leave(leaf, Leave(sit.node, sit.jid, subid=sit.subid, born=sit.born))
            outcome = await _told(lane, leave)
            while isinstance(outcome, Left) and outcome.held > 0:
                outcome = await _told(lane, leave)
        gone = isinstance(outcome, Refused) and outcome.problem in _GONE
        return Sat(0, owes=False) if gone or isinstance(outcome, Left) else outcome

    def hear(self, text: str, partition: Partition, report: Report) -> None:
        """Take what a script of a leaf says of the pool `text`, which may be of an earlier life of the collection."""
        if time.monotonic() - self._looked > LOOK_SECONDS:
            self._looked = time.monotonic()
            self._background(self._look)
        number = self._numbers.get(partition) if text == self._text else None
        if number is None:
            self._background(partial(self._hear_of, text, partition, report))
        else:
            self._gates(self._known.node).lending.learned(number, self.size, _translated(text, report))

    async def _look(self) -> None:
        """Find out whether the collection is still the same: what is heard of one that is gone is nothing to act on."""
        record = await self._known.renew()
        if record is None or pool(record.partition(BANK)) != self._text:
            await self.numbers()

    async def _hear_of(self, text: str, partition: Partition, report: Report) -> None:
        await self.numbers()
        number = self._numbers.get(partition)
        if text != self._text:
            await self._evict(text, partition)
        elif number is not None:
            self._gates(self._known.node).lending.learned(number, self.size, _translated(text, report))
        else:
            # What it has given away is nobody's now.
            for gift in report[3]:
                whose = above(text, gift[1].decode())
                self._gates(self._known.node).submit(Recount(self._known.node, whose), ignored)

    async def _evict(self, text: str, leaf: Partition) -> None:
        """Remove those from a partition who came through a collection that is no more, with all that they hold."""
        if (leaf, text) in self._evicting:
            return
        self._evicting.add((leaf, text))
        try:
            lane, scan, ended = self._gates(leaf.node).lane(leaf.number), "0", False
            while not ended:
                part = await _told(lane, Subscribers(leaf.node, scan, leaf.number))
                if not isinstance(part, Scanned):
                    return
                for jid in part.jids:
                    leave = Leave(leaf.node, jid, pool=text, incarnation=leaf.incarnation)
                    left = await _told(lane, leave)
                    while isinstance(left, Left) and left.held > 0:
                        left = await _told(lane, leave)
                scan = part.scan
                ended = scan == "0"
        finally:
            self._evicting.discard((leaf, text))


class Vicinity:
    """What the lanes of one node are told of the needs of others, and who hears their reports: the node, and pools above it."""

    def __init__(self, own: Lending, gates: Gates, size: Callable[[], int | None]) -> None:
        """Begin with the node's own; `size` gives how many numbers there are when the node is a collection."""
        self._own = own
        self._gates = gates
        self._size = size
        self._pools: dict[int, set[str]] = {}

    def wants(self, partition: Partition) -> str:
        """Name those in need to a script of a partition, with what is locked there."""
        told = self._own.wants(partition.number, "-")
        for text in self._pools.get(partition.number, ()):
            gate = self._gates(collection(text.encode()))
            number = gate.pool.number(partition)
            if number is not None and (more := gate.lending.wants(number, text)):
                told = f"{told} {more}" if told else more
        return told

    def learned(self, partition: Partition, partitions: int, report: Report) -> None:
        """Hear what a script of a partition says of credit, and let each hear its part."""
        wanted, spare, locked, gifts, ended, owing, seated, *more = report
        whom = more[0] if more else []
        size = self._size()
        own = size or (partitions if partitions > 1 else 0)
        if own:
            self._own.learned(partition.number, own, _part([wanted, spare, locked, gifts, ended, owing, whom], b""))
        had = self._pools.get(partition.number, set())
        if not (seated or had):
            return
        here = set(seated.decode().split(" ")[::2]) if seated else set()
        named = {row[-1].decode() for rows in (gifts, ended, owing) for row in rows if row[-1]}
        if here:
            self._pools[partition.number] = here
        else:
            self._pools.pop(partition.number, None)
        for text in here | had | named:
            told = [wanted, spare, locked] if text in here else [0, 0, locked]
            part = _part([*told, gifts, ended, owing, whom], text.encode())
            self._gates(collection(text.encode())).pool.hear(text, partition, part)


def _part(report: Report, text: bytes) -> Report:
    """Give of a report what concerns one pool, or the node itself."""
    wanted, spare, locked, gifts, ended, owing, whom = report
    named = [row[0] for row in whom if row[-1] == text]
    return [
        # Where it is said whose credit is wanted, nobody else's is.
        wanted if named or not whom else 0,
        spare,
        locked,
        [row for row in gifts if row[-1] == text],
        [row[0] for row in ended if row[-1] == text],
        [row[0] for row in owing if row[-1] == text],
        named,
    ]


def _translated(text: str, report: Report) -> Report:
    """Word a leaf's report for the bank."""
    wanted, spare, locked, gifts, ended, owing, whom = report

    def named(whose: bytes) -> bytes:
        return above(text, whose.decode()).encode()

    return [
        wanted,
        spare,
        locked,
        [[to, named(whose), born, amount, of] for to, whose, born, amount, of in gifts],
        ended,
        [named(whose) for whose in owing],
        [whose if whose == b"*" else named(whose) for whose in whom],
    ]


def _told(lane: Lane, command: Any) -> asyncio.Future[Any]:
    future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
    lane.submit(command, partial(fulfil, future))
    return future
