"""A link over which a consumer receives: it reads the log by itself, as far as there is credit, and writes it (E2, E16).

Its place in the log is all that it has, and that goes with the link (E1). Must not know how a link is attached.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

import structlog

from broker.model.commands import Bind, Read, Unbind
from broker.model.problems import CorruptRecord
from broker.model.results import Bound, Event, Refused, Replay, Result
from broker.tasks import serve
from frontends.amqp.errors import INTERNAL, TOO_BIG, Fault, fault
from frontends.amqp.links.context import LinkContext
from frontends.amqp.messages.message import Writer
from frontends.amqp.protocol.links import Outgoing

_log = structlog.get_logger("stanzaq.amqp")

READ_MOST: Final = 500
"""Events of one look at the log."""

_UNSENT_BYTES: Final = 1_048_576
"""With so much that the peer does not take nothing more is read, whatever credit it has given."""

_UNSETTLED_MOST: Final = 5_000
_PAUSE_SECONDS: Final = 0.2
_WATCH_SECONDS: Final = 1.0
"""How often an owner says that it is there, and so the longest time until it hears that it is no more (E28)."""


@dataclass(frozen=True, slots=True)
class LogRead:
    """Where a log is read: after an offset, with the `first` event of which that is true, perhaps for a group as its owner.

    For a group without being its owner it is read as long as nobody is.
    """

    node: str
    partition: int
    after: str
    first: Callable[[Event], bool] | None = None
    group: str = ""
    bound: Bound | None = None


class LogConsumer:
    """One consumer's link."""

    def __init__(self, link: Outgoing, context: LinkContext, read: LogRead, writer: type[Writer] = Writer) -> None:
        """Begin where the log is to be read. Nothing runs before `start`."""
        self.link = link
        self.sender = context.sender
        self.after = read.after
        self._first = read.first
        self._gap = False
        self._core = context.core
        self._tails = context.tails
        self._flush = context.connection.flush
        self._node = read.node
        self._partition = read.partition
        self._writer = writer(read.partition)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._cramped = False
        self._group = read.group
        self._bound = read.bound
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to deliver."""
        self.link.prepare()
        self._tails.enter(self._node, self._partition, self)
        self._task = serve(self._deliver(), self._failed)
        if self._group:
            self._watching = serve(self._watch(), self._failed)

    def stop(self, *, lost: bool = False) -> None:
        """Deliver no more; `lost`: the connection went without a word (EX11)."""
        self._tails.leave(self._node, self._partition, self)
        for task in (self._task, self._watching):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        bound, self._bound = self._bound, None
        if bound:
            command = Unbind(self._node, self.sender, self._partition, self._group, bound.fence, lost)
            self._core.submit(command, _ignored)

    def wake(self) -> None:
        """Look again: there is credit, or news."""
        self._news.set()

    def on_credit(self) -> None:
        """Look again if there was no room and is now."""
        if self._cramped and self.link.unsent <= _UNSENT_BYTES // 2:
            self._cramped = False
            self._news.set()

    def _failed(self, error: Exception) -> None:
        if not isinstance(error, Fault):
            _log.error("a consumer's link failed", node=self._node, exc_info=error)
        self.stop()
        self.link.end(error if isinstance(error, Fault) else Fault(INTERNAL))
        self._flush()

    async def _deliver(self) -> None:
        while self.link.alive:
            self._news.clear()
            if not (await self._turn()):
                await self._news.wait()

    async def _watch(self) -> None:
        """Say that the owner is there, and hear when it is another; who owns nothing hears it when it looks again."""
        while True:
            await asyncio.sleep(_WATCH_SECONDS)
            if self._bound is None:
                self.wake()
                continue
            command = Bind(self._node, self.sender, self._partition, self._group, fence=self._bound.fence)
            found = await self._core.ask(command)
            if isinstance(found, Refused) and not found.problem.retryable:
                raise fault(found)

    async def _turn(self) -> bool:
        """Deliver what there is room for; False when nothing more can be done for now."""
        room = self._room()
        if room <= 0:
            return False
        limit, fence = min(room, READ_MOST), self._bound.fence if self._bound else 0
        found = await self._core.ask(
            Read(self._node, self.sender, self._partition, f">{self.after}", limit, self._group, fence)
        )
        if isinstance(found, Refused):
            if found.problem.retryable:
                await asyncio.sleep(_PAUSE_SECONDS)
                return True
            raise fault(found)
        if not isinstance(found, Replay):
            raise Fault(INTERNAL)
        whole = self._delivered(found)
        if whole and not found.more:
            # What was last may be there no more: so there is nothing up to the end.
            self.after = found.latest
            if self.link.draining:
                self.link.drained()
        self._flush()
        return whole and found.more

    def _delivered(self, found: Replay) -> bool:
        """Send what was read, as long as there is room; True when there was for all of it."""
        self._gap |= found.gap
        for event in found.events:
            if self._room() <= 0:
                return False
            try:
                if self._first is None or self._first(event):
                    self._send(self._writer.message(event, gap=self._gap))
                    self._first, self._gap = None, False
            except CorruptRecord as wrong:
                _log.error("an item cannot be read", node=self._node, item=event.item_id, error=str(wrong))
            self.after = event.offset
        return True

    def _send(self, message: bytes) -> None:
        if len(message) > self.link.most_bytes:
            # Part 2 §2.7.3: it is not to be sent; and to leave it out would be a loss of which nobody hears.
            raise Fault(TOO_BIG, f"the next event has {len(message)} bytes, more than the link takes")
        self.link.send(message)

    def _room(self) -> int:
        if self.link.unsent > _UNSENT_BYTES:
            self._cramped = True
            return 0
        return min(self.link.open_for(), _UNSETTLED_MOST - self.link.unsettled)


def _ignored(_result: Result) -> None:
    """Let it be: a lease that is not ended ends by itself."""
