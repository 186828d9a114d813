"""Interfaces between a door and the core."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final, Protocol

from broker.model.commands import Command
from broker.model.items.items import Delivery, Notice
from broker.model.results import Result

Reply = Callable[[Result], None]
"""Called exactly once, on the event loop, with the outcome; a fault of Redis arrives as `Refused` too."""


WAITING_BYTES: Final = 33_554_432
"""Bytes of commands that may wait for Redis at once. While Redis hangs, a process needs about three times as much memory, since
sent commands are in the connection's buffers too. A door that can slow down its senders accepts less than this."""

COMMAND_BYTES: Final = 1_000
"""Bytes counted for a command besides its item."""


class Core(Protocol):
    """The queue as a door sees it."""

    def submit(self, command: Command, reply: Reply) -> asyncio.Task[None] | None:
        """Submit a command; commands of one sender to one node take effect in the order of submission.

        Returns the task of a command that only waits, for a caller that wants to end it.
        """

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its outcome; a long poll ends when its caller is cancelled."""


class Outlet(Protocol):
    """A door as the core sees it: sends deliveries and notices."""

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Send items of one partition to the subscriber that now holds them, together if the door can."""

    def notify(self, notice: Notice) -> None:
        """Send a notice to a subscriber."""

    def congested(self) -> bool:
        """Return whether so much waits to be written that further deliveries should stay in Redis."""

    def flushed(self) -> bool:
        """Return whether all deliveries have left the process (sent marks rely on it)."""
