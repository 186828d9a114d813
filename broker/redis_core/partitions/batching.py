"""Groups the commands of one turn of the event loop into script calls. Pure, so that the order can be tested alone.

A batch holds commands of one operation, bounded by count and by bytes. A command joins the latest batch of its operation
unless its sender has a command in a later batch: commands of one sender keep their order, and those of many senders are
still grouped. Commands that a script had no time for are sent again, before later commands of the same senders.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.redis_core.operations.operation import Call
from broker.redis_core.registry.rows import CALLS
from broker.tasks import Ticket

LIMIT = 200
"""Most commands in one script call."""

BYTES = 1_048_576
"""Most bytes of payload in one script call, unless a single command has more: Redis copies them before the script begins."""


@dataclass(slots=True)
class Batch:
    """Commands that go in one script call."""

    kind: type
    call: Call
    tickets: list[Ticket] = field(default_factory=list)
    bytes: int = 0

    def has_room(self, size: int) -> bool:
        """Return whether a command with so many bytes of payload fits."""
        return len(self.tickets) < LIMIT and self.bytes + size <= BYTES


def remove_later(rest: list[Ticket], batches: Iterable[Batch]) -> list[Ticket]:
    """Remove later commands of the same senders from the batches that follow, and return them after the rest."""
    senders = {getattr(ticket.command, "sender", "") for ticket in rest} - {""}
    again = list(rest)
    for batch in batches:
        again += [ticket for ticket in batch.tickets if getattr(ticket.command, "sender", "") in senders]
        batch.tickets = [ticket for ticket in batch.tickets if getattr(ticket.command, "sender", "") not in senders]
    return again


def make_batches(tickets: Iterable[Ticket]) -> list[Batch]:
    """Put tickets into batches, in order."""
    batches: list[Batch] = []
    open_of: dict[type, int] = {}
    latest_of: dict[str, int] = {}
    for ticket in tickets:
        command = ticket.command
        kind = type(command)
        sender: str = getattr(command, "sender", "")
        size = len(getattr(command, "envelope", b""))
        at = open_of.get(kind, -1)
        if at < 0 or at < latest_of.get(sender, -1) or not batches[at].has_room(size):
            at = len(batches)
            batches.append(Batch(kind, CALLS[kind]))
            if batches[at].call.row is not None:
                open_of[kind] = at
        batches[at].tickets.append(ticket)
        batches[at].bytes += size
        if sender:
            latest_of[sender] = at
    return batches
