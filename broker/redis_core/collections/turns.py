"""The turns of one collection: what queues say of references goes there, and what it lends goes to them.

One turn is under way at a time, and what comes meanwhile is for the next. Keeps nothing that is needed: what is lost here is
found when the collection looks at its references, and when a queue asks again. Must not know which items there are.
"""

import asyncio
import secrets
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from itertools import count
from typing import TYPE_CHECKING, Any, Final, TypeVar

from broker.model.names import Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import CoreUnavailable, CorruptRecord
from broker.model.results import Refused
from broker.redis_core.commands.collections import (
    Asks,
    CheckReferences,
    Lent,
    ListReferences,
    Loan,
    Look,
    Pull,
    ReceiveByReference,
    References,
    Told,
    Turn,
    Turned,
)
from broker.redis_core.commands.internal import AnyCommand, Scanned
from broker.redis_core.commands.repeated import subscribers
from broker.redis_core.operations.operation import write_collection
from broker.redis_core.partitions.pipeline import PartitionPipeline, ask_pipeline
from broker.redis_core.records.cache import NodeCache
from broker.redis_core.records.tree import Tree
from broker.redis_core.registry.partitioner import FIRST_PARTITION
from broker.tasks import start

if TYPE_CHECKING:
    from broker.model.names import Jid
    from broker.model.nodes.tree import Scope

WITHDRAWN: Final = "withdrawn"
"""Why a lock ends whose holder is notified (lua/lib/subscriptions/unsubscribing.lua)."""

_Part = TypeVar("_Part", Lent, Look)

_AT_ONCE: Final = 200
"""References that one queue is asked about at once, and queues that ask in one turn."""

_LATE_SECONDS: Final = 2.0
"""Age at which what a turn has lent is not sent any more: its queue would refuse it soon, by a clock that may have gone back."""

_PULLED: Final = 200
"""References that pull subscriptions want in one turn, about."""

_NO_LOAN: Final = Loan("", (), 0, 0.0)

_WORDS: Final = 1_000
"""References that one turn is told of."""


class Turns:
    """Takes the turns of one collection."""

    def __init__(self, cache: NodeCache, tree: Tree, pipeline: Callable[[Partition], PartitionPipeline]) -> None:
        """Ask partitions by their `pipeline`; what is below the collection is read from `tree`."""
        self._cache = cache
        self._tree = tree
        self._pipeline = pipeline
        self._names = count()
        self._process = secrets.token_hex(6)
        self._words: dict[str, str] = {}
        self._asking: dict[Partition, tuple[int, Asks | None]] = {}
        self._answers: list[tuple[Partition, asyncio.Future[int]]] = []
        self._pulls: deque[tuple[Pull, asyncio.Future[Loan]]] = deque()
        self._due = self._afresh = False
        self._running: asyncio.Task[None] | None = None

    @property
    def idle(self) -> bool:
        """Whether nothing is under way."""
        return self._running is None

    def take(self) -> None:
        """Take a turn: something can be lent or is to be looked at."""
        self._due = True
        if self._running is None:
            self._running = start(self._run())

    def book(self, words: Iterable[tuple[str, str]]) -> None:
        """Say what became of references."""
        told = dict(words)
        if told:
            self._words |= told
            self.take()

    def ask(self, queue: Partition, level: int, asks: Asks) -> asyncio.Future[int]:
        """Ask for subscribers of a queue so many levels below; returns how many references it got at once."""
        answer: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._asking[queue] = level, asks
        self._answers.append((queue, answer))
        self.take()
        return answer

    def pull(self, pull: Pull) -> asyncio.Future[Loan]:
        """Return the references that a pull subscription gets for a queue now; none if the collection does not answer."""
        answer: asyncio.Future[Loan] = asyncio.get_running_loop().create_future()
        self._pulls.append((pull, answer))
        self.take()
        return answer

    async def withdraw(self, record: NodeRecord) -> None:
        """End what is held in queues that are not below the collection or do not admit the subscriber, and what is to end anyway.

        Queues may also admit others than before.
        """
        self._afresh = True
        self.take()
        looks = [replace(each, reason=each.reason or WITHDRAWN) for each in await self._find_forbidden(record)]
        # What cannot be ended now, the collection looks at again.
        self.book((each.name, WITHDRAWN) for each in looks)
        await self._look(looks)

    async def _find_forbidden(self, record: NodeRecord) -> list[Look]:
        """Return the references that queues must not hold."""
        references: list[tuple[str, Look]] = []
        scan, begun = "0", False
        while scan != "0" or not begun:
            page = await self._ask_own(ListReferences(record.name, record.incarnation, scan))
            references += page.rows if isinstance(page, References) else ()
            scan, begun = page.scan if isinstance(page, References) else "0", True
        if not references:
            return []
        levels = await self._tree.find_leaves(record)
        nodes = sorted({each.queue.node for _whose, each in references})
        store = self._cache.store
        records = {each.name: each.add_roles(store.roles) for each in await store.read_all(nodes)}
        whose: dict[str, tuple[Jid, Scope | None]] = {}
        async for part in subscribers(self._ask_own, record.name, FIRST_PARTITION):
            if isinstance(part, Scanned):
                whose |= dict(zip(part.subids, zip(part.jids, part.scopes, strict=True), strict=True))
        jids = {jid for jid, _scope in whose.values()}
        # A record that cannot be read forbids nothing.
        forbidden = {name: set(await store.find_forbidden(each, jids)) for name, each in records.items()}

        def admits(queue: Partition, jid: "Jid", scope: "Scope | None") -> bool:
            if scope is not None and not scope.reaches(levels[queue]):
                return False
            return jid not in forbidden.get(queue.node, ())

        return [
            each
            for subid, each in references
            if each.reason or each.queue not in levels or (subid in whose and not admits(each.queue, *whose[subid]))
        ]

    def _ask_own(self, command: AnyCommand) -> asyncio.Future[Any]:
        return ask_pipeline(self._pipeline(self._own(self._cache.record)), command)

    def _own(self, record: NodeRecord | None) -> Partition:
        return record.partition(FIRST_PARTITION) if record is not None else Partition(self._cache.node, "")

    async def _run(self) -> None:
        try:
            while self._due:
                self._due = False
                await self._take_turn()
        finally:
            self._running = None
            for _queue, answer in self._answers:
                answer.cancel()
            self._answers.clear()
            for _pull, pulled in self._pulls:
                if not pulled.done():
                    pulled.set_result(_NO_LOAN)
            self._pulls.clear()

    async def _take_turn(self) -> None:
        words = {name: self._words.pop(name) for name in [*self._words][:_WORDS]}
        asking = {queue: self._asking.pop(queue) for queue in [*self._asking][:_AT_ONCE]}
        answers, self._answers = self._answers, []
        pulls = self._next_pulls()
        loans: list[Loan] = []
        afresh, self._afresh = self._afresh, False
        lent: Counter[Partition] = Counter()
        try:
            record = await self._cache.read()
            if record is not None and record.config.collects:
                name, until = f"{self._process}-{next(self._names)}", time.monotonic() + _LATE_SECONDS
                rows = tuple(words.items()), tuple((queue, *what) for queue, what in asking.items())
                turned = await self._ask_own(
                    Turn(record.name, record.incarnation, name, *rows, afresh, tuple(each for each, _answer in pulls))
                )
                if isinstance(turned, Refused) and not turned.problem.is_gone:
                    # They go with the next turn; until then, the collection may look for itself.
                    self._words = words | self._words
                if isinstance(turned, Turned):
                    # What was too much for one turn follows; after a refusal it waits for the next word.
                    self._due |= turned.more or bool(self._words or self._asking or self._pulls)
                    loans = [Loan(write_collection(self._own(record)), *each, until) for each in turned.pulled]
                    lent.update(each.queue for each in turned.lent)
                    for queue, theirs in _by_queue(turned.lent).items():
                        start(self._lend(record, queue, theirs, until))
                    start(self._look(turned.looks))
        except (CoreUnavailable, CorruptRecord):
            # Queues ask again, and the collection looks at its references.
            pass
        finally:
            for queue, answer in answers:
                if not answer.done():
                    answer.set_result(lent[queue])
            for (_pull, pulled), loan in zip(pulls, loans or [_NO_LOAN] * len(pulls), strict=True):
                if not pulled.done():
                    pulled.set_result(loan)

    def _next_pulls(self) -> list[tuple[Pull, asyncio.Future[Loan]]]:
        """Take the pulls for one turn, which must not lend too much."""
        taken: list[tuple[Pull, asyncio.Future[Loan]]] = []
        while self._pulls and (not taken or sum(each.wanted for each, _answer in taken) < _PULLED):
            taken.append(self._pulls.popleft())
        return taken

    async def _lend(self, record: NodeRecord, queue: Partition, lent: Sequence[Lent], until: float) -> None:
        """Let a queue receive. Each reference is sent once: if the answer is lost, only the queue knows what became of it."""
        if time.monotonic() > until:
            # This process has slept.
            self.book((each.name, "unused") for each in lent)
            return
        received = ReceiveByReference(
            queue.node, queue.number, queue.incarnation, write_collection(self._own(record)), tuple(lent)
        )
        outcome = await ask_pipeline(self._pipeline(queue), received)
        if isinstance(outcome, Told):
            self.book(outcome.words)
            return
        self._asking.setdefault(queue, (0, None))
        if isinstance(outcome, Refused) and outcome.problem.is_gone:
            self.book((each.name, "unused") for each in lent)
        self.take()

    async def _look(self, looks: Sequence[Look]) -> None:
        """Ask queues what has become of references, and tell the collection."""
        asked = [
            (queue, theirs[first : first + _AT_ONCE])
            for queue, theirs in _by_queue(looks).items()
            for first in range(0, len(theirs), _AT_ONCE)
        ]
        await asyncio.gather(*(self._check(*each) for each in asked))

    async def _check(self, queue: Partition, looks: Sequence[Look]) -> None:
        outcome = await ask_pipeline(
            self._pipeline(queue), CheckReferences(queue.node, queue.number, queue.incarnation, tuple(looks))
        )
        if isinstance(outcome, Told):
            # A receive is under way: the collection looks again.
            self.book(each for each in outcome.words if each[1] != "early")
        else:
            gone = isinstance(outcome, Refused) and outcome.problem.is_gone
            self.book((each.name, "ended" if gone else "silent") for each in looks)


def _by_queue(some: Iterable[_Part]) -> dict[Partition, list[_Part]]:
    found: dict[Partition, list[_Part]] = defaultdict(list)
    for each in some:
        found[each.queue].append(each)
    return found
