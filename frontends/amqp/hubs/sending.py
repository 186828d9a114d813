"""A link over which an SDK sends: single events, and batches, which are settled as one when Redis has all of their events.

A batch is judged as a whole as far as that can be done here: what cannot be read or is too big in one event refuses all of them
before anything is published. Must not know how a link is attached.
"""

import secrets
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from broker.model.commands import Publish
from broker.model.nodes import NodeRecord
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Published, Result
from frontends.amqp import messages
from frontends.amqp.errors import fault
from frontends.amqp.hubs import events
from frontends.amqp.sending import Intake

_COMMAND_BYTES: Final = 500
"""What an event that waits for Redis takes beside its bytes: a batch may have many that have hardly any."""


@dataclass(slots=True)
class _Batch:
    """A batch whose events wait for Redis: how many still do, and the first refusal."""

    delivery: Any
    size: int
    settled: bool
    left: int
    refusal: Result | None = None


class HubIntake(Intake):
    """One producer's link."""

    def __init__(self, *link: Any, record: NodeRecord, batched: Callable[[], bool], **door: Any) -> None:  # noqa: ANN401  (the door's)
        """Take messages for a hub; `batched` tells whether the message that arrives is a batch."""
        super().__init__(*link, **door)
        self._batched = batched
        self._partitions = record.config.partitions
        self._most_bytes = record.config.max_payload_bytes
        self._turn = secrets.randbelow(self._partitions)

    def _take(self, delivery: Any, raw: bytes, settled: bool) -> None:  # noqa: ANN401, FBT001  (as the link gives them)
        if not self._batched():
            super()._take(delivery, raw, settled)
            return
        try:
            commands = self._publishes(raw)
        except MalformedRequest as refusal:
            self._settle(delivery, fault(refusal), settled=settled)
            return
        batch = _Batch(delivery, len(raw) + len(commands) * _COMMAND_BYTES, settled, len(commands))
        self._held(batch.size)
        for command in commands:
            self._core.submit(command, partial(self._counted, batch))

    def _publish(self, raw: bytes) -> Publish:
        return super()._publish(events.inward(raw))

    def _publishes(self, raw: bytes) -> list[Publish]:
        taken = [messages.taken(each) for each in events.batch(raw)]
        if any(each.body_bytes > self._most_bytes for each in taken):
            raise MalformedRequest(
                Problem.PAYLOAD_TOO_BIG, f"an event of the batch has more than {self._most_bytes} bytes"
            )
        # A batch without a key goes to one partition, the next to another.
        self._turn = (self._turn + 1) % self._partitions
        chosen = self._turn if self._partition is None else self._partition
        return [
            Publish(
                self._node,
                self._sender,
                None,
                each.envelope,
                each.body_bytes,
                partition=None if each.key and self._partition is None else chosen,
                key=each.key,
            )
            for each in taken
        ]

    def _counted(self, batch: _Batch, result: Result) -> None:
        batch.left -= 1
        if batch.refusal is None and not isinstance(result, Published):
            batch.refusal = result
        if not batch.left:
            self._answered(batch.delivery, batch.size, batch.refusal or result, settled=batch.settled)
