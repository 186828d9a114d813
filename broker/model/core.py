"""What a door may ask of the core and what the core may ask of a door. Interfaces only."""

from collections.abc import Callable
from typing import Final, Protocol

from broker.model.commands import Command
from broker.model.items import Delivery, Notice
from broker.model.results import Result

Reply = Callable[[Result], None]
"""Called exactly once, on the event loop, with the outcome; a fault of Redis arrives as `Refused` too."""


WAITING_BYTES: Final = 33_554_432
"""Bytes of commands that may wait for Redis at once: what a Redis that stands still can cost a process in memory, three times
over, since what is sent stands in the buffers of its connection too. A door that can let senders wait takes less than that."""

COMMAND_BYTES: Final = 1_000
"""What a command takes beside the item in it."""


class Core(Protocol):
    """The queue as a door sees it."""

    def submit(self, command: Command, reply: Reply) -> None:
        """Take a command; commands of one sender to one node take effect in the order in which they were submitted."""

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its outcome."""


class Outlet(Protocol):
    """A door as the core sees it: where deliveries and notices go out."""

    def deliver(self, delivery: Delivery) -> None:
        """Send an item to the subscriber that now holds it."""

    def notify(self, notice: Notice) -> None:
        """Tell a subscriber what happened without its asking."""

    def congested(self) -> bool:
        """Tell whether so much waits to be written that more deliveries had better wait in Redis."""

    def flushed(self) -> bool:
        """Tell whether all that was handed over has left the process (sent marks rely on it)."""
