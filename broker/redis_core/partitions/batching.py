"""Groups the commands of one turn of the event loop into calls. Pure, so that the order can be tested alone.

A batch holds commands of one operation, bounded by count and by bytes. A command joins the latest batch of its operation
unless its sender has a command in a later batch: commands of one sender keep their order, and those of many senders are
still grouped. Commands that an operation had no time for are sent again, before later commands of the same senders.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from broker.model.commands import Publish
from broker.model.items.durability import Durability
from broker.redis_core.operations.operation import Call
from broker.redis_core.redis_client.durability import DurableCall
from broker.redis_core.registry.rows import CALLS
from broker.tasks import Request

LIMIT = 200
"""Most commands in one call."""

BYTES = 1_048_576
"""Most bytes of payload in one call, unless a single command has more: Redis copies them before the operation begins."""


@dataclass(slots=True)
class Batch:
    """Commands that go in one call; publishes all ask to be `confirm`ed alike, and `durable` is what they then wait for."""

    kind: type
    call: Call
    requests: list[Request] = field(default_factory=list)
    bytes: int = 0
    confirm: Durability | None = None
    durable: DurableCall | None = None

    def has_room(self, size: int) -> bool:
        """Return whether a command with so many bytes of payload fits."""
        return len(self.requests) < LIMIT and self.bytes + size <= BYTES


def remove_later(rest: list[Request], batches: Iterable[Batch]) -> list[Request]:
    """Remove later commands of the same senders from the batches that follow, and return them after the rest."""
    senders = {getattr(request.command, "sender", "") for request in rest} - {""}
    again = list(rest)
    for batch in batches:
        again += [request for request in batch.requests if getattr(request.command, "sender", "") in senders]
        batch.requests = [
            request for request in batch.requests if getattr(request.command, "sender", "") not in senders
        ]
    return again


def make_batches(requests: Iterable[Request]) -> list[Batch]:
    """Put requests into batches, in order."""
    batches: list[Batch] = []
    open_of: dict[tuple[type, Durability | None], int] = {}
    latest_of: dict[str, int] = {}
    for request in requests:
        command = request.command
        kind = type(command)
        sender: str = getattr(command, "sender", "")
        size = len(getattr(command, "envelope", b"")) + getattr(command, "more_bytes", 0)
        confirm = command.hints.confirm if isinstance(command, Publish) else None
        at = open_of.get((kind, confirm), -1)
        if at < 0 or at < latest_of.get(sender, -1) or not batches[at].has_room(size):
            at = len(batches)
            batches.append(Batch(kind, CALLS[kind], confirm=confirm))
            if batches[at].call.row is not None:
                open_of[kind, confirm] = at
        batches[at].requests.append(request)
        batches[at].bytes += size
        if sender:
            latest_of[sender] = at
    return batches
