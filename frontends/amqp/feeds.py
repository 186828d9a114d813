"""A link over which a consumer receives: it reads the log by itself, as far as there is credit, and writes it (E2, E16).

Its place in the log is all that it has, and that goes with the link (E1). Must not know how a link is attached.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from broker.model.core import Core
from broker.model.names import Jid
from broker.model.reading import Read
from broker.model.results import Refused, Replay
from frontends.amqp.engine import Outgoing
from frontends.amqp.errors import INTERNAL, Fault, fault
from frontends.amqp.messages import Writer
from frontends.amqp.tides import Tides

READ_MOST: Final = 500
"""Events of one look at the log."""

_UNSENT_BYTES: Final = 1_048_576
"""With so much that the peer does not take nothing more is read, whatever credit it has given."""

_UNSETTLED_MOST: Final = 5_000
_PAUSE_SECONDS: Final = 0.2


class Feed:
    """One consumer's link."""

    def __init__(  # noqa: PLR0913  (its link, its place, and what it works with)
        self,
        link: Outgoing,
        *,
        core: Core,
        tides: Tides,
        flush: Callable[[], None],
        node: str,
        sender: Jid,
        partition: int,
        after: str,
    ) -> None:
        """Begin after an offset; nothing runs before `start`."""
        self.link = link
        self.sender = sender
        self.after = after
        self._core = core
        self._tides = tides
        self._flush = flush
        self._node = node
        self._partition = partition
        self._writer = Writer(partition)
        self._news = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._cramped = False

    def start(self) -> None:
        """Begin to deliver."""
        self.link.prepare()
        self._tides.enter(self._node, self._partition, self)
        self._task = asyncio.get_running_loop().create_task(self._run())

    def stop(self) -> None:
        """Deliver no more."""
        self._tides.leave(self._node, self._partition, self)
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()

    def stir(self) -> None:
        """Look again: there is credit, or news."""
        self._news.set()

    def relieve(self) -> None:
        """Look again if there was no room and is now."""
        if self._cramped and self.link.unsent <= _UNSENT_BYTES // 2:
            self._cramped = False
            self._news.set()

    async def _run(self) -> None:
        try:
            while self.link.alive:
                self._news.clear()
                if not (await self._turn()):
                    await self._news.wait()
        except Fault as refusal:
            self.stop()
            self.link.end(refusal)
            self._flush()

    async def _turn(self) -> bool:
        """Deliver what there is room for; False when nothing more can be done for now."""
        room = self._room()
        if room <= 0:
            return False
        found = await self._core.ask(
            Read(self._node, self.sender, self._partition, f">{self.after}", min(room, READ_MOST))
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
        gap = found.gap
        for event in found.events:
            if self._room() <= 0:
                return False
            self.link.send(self._writer.message(event, gap=gap))
            self.after, gap = event.offset, False
        return True

    def _room(self) -> int:
        if self.link.unsent > _UNSENT_BYTES:
            self._cramped = True
            return 0
        return min(self.link.open_for(), _UNSETTLED_MOST - self.link.unsettled)
