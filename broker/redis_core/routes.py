"""One node's partitions: which lane each command goes to, and what is asked of several.

Commands wait here while the node's record is read, and keep their order. Must not know what any command does.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Protocol

import structlog

from broker.model.commands import Adjust, Renew, Retract, Subscribe, Unlock, Unsubscribe
from broker.model.problems import CoreUnavailable, Problem
from broker.model.reading import Partitions
from broker.model.results import Refused, Subscribed
from broker.redis_core import streams
from broker.redis_core.around import Neighbours
from broker.redis_core.calls.workers import UNSELECTED
from broker.redis_core.credit import Recount
from broker.redis_core.gather import gathered
from broker.redis_core.internal import (
    FAILED,
    GONE,
    Begun,
    Find,
    Found,
    Leave,
    Outcome,
    Scanned,
    Subscribers,
    fulfil,
    ignored,
)
from broker.redis_core.known import Known
from broker.redis_core.lane import Lane
from broker.redis_core.lending import Lending
from broker.redis_core.places import BANK, Home, Place, place
from broker.redis_core.pools import Gates, Pool, Vicinity
from broker.redis_core.seats import Seats
from broker.redis_core.tree import Tree

log = structlog.get_logger()

_NOWHERE = Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
_ELSEWHERE = (Problem.ITEM_NOT_FOUND, Problem.FORBIDDEN, Problem.LOCKED_BY_ANOTHER, Problem.LOCK_LOST)
"""Refusals after which an item is looked for in other partitions than its home."""

Reply = Callable[[Any], None]

# Coroutine functions, not coroutines: one whose task is cancelled before it begins was never made.
Background = Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]


class MakeLane(Protocol):
    """How a lane is made."""

    def __call__(self, *, number: int, neighbours: Neighbours) -> Lane:
        """Make the lane of one partition."""


class Routes:
    """The lanes of one node."""

    def __init__(self, known: Known, make: MakeLane, background: Background, tree: Tree, gates: Gates) -> None:
        """Make lanes by `make` when they are first needed; run by `background` what nobody waits for.

        What is below a node that is a collection is read from `tree`, and asked through the `gates` of other nodes.
        """
        self.known = known
        self._make = make
        self._background = background
        self._seats = Seats(self.ask, self._others)
        self.lending = Lending(known.node, self.ask, self._order, self._board, background)
        self.pool = Pool(known, tree, gates, background)
        self._vicinity = Vicinity(self.lending, gates, lambda: self.pool.size if self._collects else None)
        self._collected = False
        self._lanes: dict[int, Lane] = {}
        self._queued: list[tuple[Any, Reply]] = []
        self._reading: asyncio.Task[None] | None = None

    def submit(self, command: Any, reply: Reply) -> None:
        """Take a command; those for one partition take effect in their order."""
        record = self.known.record
        if record is not None and self._reading is None:
            self._route(command, reply, record.config.partitions, cached=True)
        else:
            self._queue(command, reply)

    def ask(self, number: int, command: Any) -> asyncio.Future[Any]:
        """Give a command to one partition, of a collection to one below it."""
        if number != BANK and self._collects:
            return self.pool.ask(number, command)
        future: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.lane(number).submit(command, partial(fulfil, future))
        return future

    async def recount(self) -> None:
        """Count the credit of all who are subscribed, a part of them at a time: what crashes have lost comes back."""
        scan = "0"
        while self._count > 1 or self._collects:
            part = await self.ask(BANK, Subscribers(self.known.node, scan))
            if not isinstance(part, Scanned):
                return
            await asyncio.gather(
                *(self._seats.take(Recount(self.known.node, whose), self._count) for whose in part.subids if whose)
            )
            scan = part.scan
            if scan == "0":
                return

    async def recount_pool(self) -> None:
        """Count the credit of those who are subscribed to a collection, and to nothing else."""
        record = await self.known.read()
        if record is not None and record.config.collects:
            await self.recount()

    async def _others(self, partitions: int) -> Sequence[int]:
        """Give the numbers of those partitions besides the bank that have a part in credit."""
        return await self.pool.numbers() if self._collects else range(BANK + 1, max(partitions, self._count))

    @property
    def _collects(self) -> bool:
        """The node is a collection, or was one when it was last read."""
        if self.known.record is not None:
            self._collected = self.known.record.config.collects
        return self._collected

    @property
    def _count(self) -> int:
        record = self.known.record
        return 1 if record is None else record.config.partitions

    def lane(self, number: int = 0) -> Lane:
        """Give the lane of a partition."""
        lane = self._lanes.get(number)
        if lane is None:
            lane = self._lanes[number] = self._make(number=number, neighbours=self._vicinity)
        return lane

    def lanes(self) -> list[Lane]:
        """Give the lanes there are."""
        return list(self._lanes.values())

    def forget(self) -> None:
        """Read the node's record anew with the next command."""
        self.known.forget()

    @property
    def quiet(self) -> bool:
        """Nothing is under way."""
        return self._reading is None and self.lending.idle and all(lane.quiet for lane in self._lanes.values())

    @property
    def idle(self) -> bool:
        """Nothing under way, nothing owed: it may be dropped."""
        return self._reading is None and self.lending.idle and all(lane.idle for lane in self._lanes.values())

    def _queue(self, command: Any, reply: Reply) -> None:
        self._queued.append((command, reply))
        if self._reading is None:
            self._reading = asyncio.get_running_loop().create_task(self._read())

    async def _read(self) -> None:
        hindrance = None
        partitions = 0
        try:
            record = await self.known.read()
            if record is None:
                hindrance = GONE
            else:
                partitions = record.config.partitions
        except CoreUnavailable as error:
            hindrance = Refused(error.problem, str(error))
        except Exception:
            log.exception("record not read", node=self.known.node)
            hindrance = FAILED
        self._reading = None
        queued, self._queued = self._queued, []
        for command, reply in queued:
            try:
                if hindrance is None:
                    self._route(command, reply, partitions, cached=False)
                else:
                    reply(hindrance)
            except Exception:
                log.exception("an answer could not be given", node=self.known.node, command=type(command).__name__)

    def _route(self, command: Any, reply: Reply, partitions: int, *, cached: bool) -> None:
        """Send a command on; by a cached record nothing is refused, for the node may have grown."""
        record = self.known.record
        if isinstance(command, Partitions):
            self._everywhere(command, reply, partitions)
        elif isinstance(command, Subscribe) and record is not None and streams.reads(command, record):
            if command.selector:
                reply(Refused(Problem.OPTIONS_INVALID, UNSELECTED))
            else:
                self._background(partial(self._answered, partial(self._followed, command), reply))
        else:
            where = place(command, partitions)
            if where is not Place.NOWHERE:
                self._place(command, reply, partitions, where)
            elif cached:
                self.known.forget()
                self._queue(command, reply)
            else:
                reply(_NOWHERE)

    def _place(self, command: Any, reply: Reply, partitions: int, where: int | Home | Place) -> None:
        if isinstance(where, int):
            self.lane(where).submit(command, reply)
        elif isinstance(where, Home):
            self.lane(where.number).submit(command, partial(self._unless_elsewhere, command, where.number, reply))
        elif where is Place.FREE:
            self.lane(self.lending.freest(partitions)).submit(command, reply)
        elif isinstance(command, Subscribe | Adjust | Recount):
            self._seat(command, reply, partitions)
        elif isinstance(command, Unsubscribe | Leave) and (partitions > 1 or self._collects):
            self._background(partial(self._answered, partial(self._left, command, partitions), reply))
        else:
            self._everywhere(command, reply, partitions)

    def _seat(self, command: Subscribe | Adjust | Recount, reply: Reply, partitions: int) -> None:
        if partitions > 1 or self._collects:
            self._background(partial(self._answered, partial(self._seated, command, partitions), reply))
            return

        def told(outcome: Outcome) -> None:
            if isinstance(outcome, Begun):
                # The node has grown, and this is a seat in many partitions now.
                self._seat(command, reply, self._count)
            else:
                reply(outcome)

        self.lane(BANK).submit(command, told)

    def _everywhere(self, command: Any, reply: Reply, partitions: int, had: Sequence[Outcome] = ()) -> None:
        """Give each partition a command and answer with what their outcomes come to; `had` are those of the first ones."""

        def told(outcomes: list[Outcome]) -> None:
            known = [*had, *outcomes]
            if len(known) < self._count:
                # The node has grown, which the scripts have told.
                self._everywhere(command, reply, self._count, known)
            elif isinstance(command, Partitions):
                reply(streams.extended(known))
            else:
                reply(gathered(command, known) if len(known) > 1 else known[0])

        first = len(had)
        asked = streams.extents(command, partitions) if isinstance(command, Partitions) else [command] * partitions
        self._to_all(asked[first:], told, first)

    def _to_all(self, commands: Sequence[Any], reply: Callable[[list[Outcome]], None], first: int = 0) -> None:
        """Give each partition from `first` on its command, and answer with all outcomes in their order."""
        outcomes: list[Any] = [None] * len(commands)
        left = len(commands)

        def taken(number: int, outcome: Outcome) -> None:
            nonlocal left
            outcomes[number] = outcome
            left -= 1
            if not left:
                reply(outcomes)

        for number, command in enumerate(commands):
            self.lane(first + number).submit(command, partial(taken, number))

    async def _seated(self, command: Subscribe | Adjust | Recount, partitions: int) -> Outcome:
        outcome = await self._seats.take(command, partitions)
        shared = isinstance(outcome, Subscribed) and not (outcome.reads or self._collects)
        # Below a collection credit goes where it is asked for.
        if isinstance(outcome, Subscribed) and shared and not isinstance(command, Recount):
            await self.lending.spread(outcome.subid, outcome.credit, max(partitions, self._count))
        return outcome

    async def _left(self, command: Unsubscribe | Leave, partitions: int) -> Outcome:
        return gathered(command, await self._seats.leave(command, partitions))

    async def _followed(self, command: Subscribe) -> Outcome:
        # Which partition is read follows from how many there are, and one that is not there is refused.
        record = await self.known.renew()
        return GONE if record is None else await self._seats.follow(command, record.config.partitions)

    async def _answered(self, work: Callable[[], Awaitable[Outcome]], reply: Reply) -> None:
        outcome: Outcome = FAILED
        try:
            outcome = await work()
        finally:
            reply(outcome)

    def _order(self, command: Any) -> None:
        self.submit(command, ignored)

    async def _board(self, rows: list[dict[str, Any]]) -> list[list[int]]:
        record = self.known.record
        return [] if record is None else await self.known.directory.hunger(record, rows)

    def _unless_elsewhere(self, command: Retract | Unlock | Renew, home: int, reply: Reply, outcome: Outcome) -> None:
        """Answer, unless the item may be in another partition: there it is looked for."""
        if self._count == 1 or not (isinstance(outcome, Refused) and outcome.problem in _ELSEWHERE):
            reply(outcome)
            return
        asked = [
            Find(command.node, command.sender, command.item_id, command.token, number) for number in range(self._count)
        ]
        self._to_all(asked, partial(self._found, command, home, reply, outcome))

    def _found(
        self, command: Retract | Unlock | Renew, home: int, reply: Reply, outcome: Refused, finds: list[Outcome]
    ) -> None:
        """Send a command to the partition where its sender holds the item, or else where the item is."""
        found = {number: find for number, find in enumerate(finds) if isinstance(find, Found) and number != home}
        held = [number for number, find in found.items() if find.held]
        there = [number for number, find in found.items() if find.there and outcome.problem is Problem.ITEM_NOT_FOUND]
        for number in held + there:
            self.lane(number).submit(command, reply)
            return
        reply(outcome)
