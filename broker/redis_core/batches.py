"""How commands of one loop turn share script calls: pure, so that the order it promises can be tested alone.

A batch holds commands of one operation. A command joins the latest batch of its operation unless its sender already has
a command in a later batch: so commands of one sender keep their order, and those of many senders still gather.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from broker.redis_core.calls import OF

LIMIT = 200
"""Most commands in one script call: bounds how long Redis is held (guarantee 6)."""

Ticket = tuple[Any, Callable[[Any], None]]
"""A command and whom to answer."""


@dataclass(slots=True)
class Batch:
    """Commands that go in one script call."""

    kind: type
    tickets: list[Ticket] = field(default_factory=list)


def batched(tickets: Iterable[Ticket]) -> list[Batch]:
    """Put tickets into batches, in order."""
    batches: list[Batch] = []
    open_of: dict[type, int] = {}
    latest_of: dict[str, int] = {}
    for ticket in tickets:
        command = ticket[0]
        kind = type(command)
        sender = getattr(command, "sender", "")
        at = open_of.get(kind, -1)
        shared = OF[kind].row is not None
        if not shared or at < latest_of.get(sender, -1) or at < 0 or len(batches[at].tickets) >= LIMIT:
            at = len(batches)
            batches.append(Batch(kind))
            if shared:
                open_of[kind] = at
        batches[at].tickets.append(ticket)
        if sender:
            latest_of[sender] = at
    return batches
