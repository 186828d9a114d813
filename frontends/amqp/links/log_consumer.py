"""A consumer's link to a log: reads the log as far as there is credit, and sends the events (E2, E16).

Its only state is its position, which ends with the link (E1). Must not know how a link is attached.
"""

import asyncio
from collections.abc import Callable
from typing import Final

import structlog

from broker.model.commands import Bind, Read, Unbind
from broker.model.frozen import frozen
from broker.model.problems import CorruptRecord
from broker.model.results import Bound, Event, Refused, Replay, Result
from broker.tasks import serve
from frontends.amqp.errors import INTERNAL, TOO_BIG, Fault, fault
from frontends.amqp.links.context import LinkContext
from frontends.amqp.messages.message import Writer
from frontends.amqp.protocol.links import Outgoing

_log = structlog.get_logger("stanzaq.amqp")

READ_MOST: Final = 500
"""The most events of one read."""

_UNSENT_BYTES: Final = 1_048_576
"""With this many unsent bytes it stops reading the log, whatever the credit."""

_UNSETTLED_MOST: Final = 5_000
_PAUSE_SECONDS: Final = 0.2
_WATCH_SECONDS: Final = 1.0
_WATCHES: Final = 4
"""How often an owner renews its ownership, and how often at least within a lease: so it notices a loss (E28)."""


@frozen
class LogRead:
    """What a link reads: events after an offset, from the first for which `first` is true, perhaps as the owner for a group.

    For a group without ownership, it reads only while the partition has no owner. An ownership lasts `lock_seconds` at a time.
    """

    node: str
    partition: int
    after: str
    first: Callable[[Event], bool] | None = None
    group: str = ""
    bound: Bound | None = None
    lock_seconds: int = 60


class LogConsumer:
    """One consumer's link."""

    def __init__(self, link: Outgoing, context: LinkContext, read: LogRead, writer: type[Writer] = Writer) -> None:
        """Start at the start position. Nothing runs before `start`."""
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
        self._blocked = False
        self._group = read.group
        self._bound = read.bound
        self._watch_seconds = min(_WATCH_SECONDS, read.lock_seconds / _WATCHES)
        self._watching: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Start to deliver."""
        self.link.prepare()
        self._tails.enter(self._node, self._partition, self)
        self._task = serve(self._deliver(), self._fail)
        if self._group:
            self._watching = serve(self._watch(), self._fail)

    def stop(self, *, lost: bool = False) -> None:
        """Stop delivering; `lost`: the connection broke without a close (EX11)."""
        self._tails.leave(self._node, self._partition, self)
        for task in (self._task, self._watching):
            if task is not None and task is not asyncio.current_task():
                task.cancel()
        # A task that was cancelled refers to its frames, and so to this consumer.
        self._task = self._watching = None
        bound, self._bound = self._bound, None
        if bound:
            command = Unbind(self._node, self.sender, self._partition, self._group, bound.fence, lost)
            self._core.submit(command, _ignore_result)

    def wake(self) -> None:
        """Look again: there may be credit or new events."""
        self._news.set()

    def on_credit(self) -> None:
        """Look again if output was blocked and no longer is."""
        if self._blocked and self.link.unsent <= _UNSENT_BYTES // 2:
            self._blocked = False
            self._news.set()

    def _fail(self, error: Exception) -> None:
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
        """Renew ownership and fail when it is lost; without ownership, only trigger a read, which notices a new owner."""
        while True:
            await asyncio.sleep(self._watch_seconds)
            if self._bound is None:
                self.wake()
                continue
            command = Bind(self._node, self.sender, self._partition, self._group, fence=self._bound.fence)
            found = await self._core.ask(command)
            if isinstance(found, Refused) and not found.problem.retryable:
                raise fault(found)

    async def _turn(self) -> bool:
        """Deliver as much as there is room for; False when nothing more can be done now."""
        room = self._room()
        if room <= 0:
            return False
        # Events before the first one use no credit.
        limit, fence = READ_MOST if self._first else min(room, READ_MOST), self._bound.fence if self._bound else 0
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
        whole = self._send_read(found)
        if whole and not found.more:
            # The newest event may be removed already: then nothing is left up to the end.
            self.after = found.latest
            if self.link.draining:
                self.link.drained()
        self._flush()
        return whole and found.more

    def _send_read(self, found: Replay) -> bool:
        """Send what was read while there is room; True if all of it was sent."""
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
            # Part 2 §2.7.3 forbids sending it; skipping it would be a silent loss.
            raise Fault(TOO_BIG, f"the next event has {len(message)} bytes, more than the link takes")
        self.link.send(message)

    def _room(self) -> int:
        if self.link.unsent > _UNSENT_BYTES:
            self._blocked = True
            return 0
        return min(self.link.open_for(), _UNSETTLED_MOST - self.link.unsettled)


def _ignore_result(_result: Result) -> None:
    """Ignore the result: ownership that is not released expires."""
