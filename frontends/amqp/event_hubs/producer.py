"""A producer's link of an SDK: single events, and batches, which are settled as one when Redis has all their events.

A batch is validated before anything is published: one malformed or oversized event refuses it. Must not know how links attach.
"""

import asyncio
import secrets
from collections import deque
from collections.abc import AsyncIterator
from typing import Any, Final, TypeVar

import structlog

from broker.model.commands import Publish
from broker.model.core import COMMAND_BYTES
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Published, Result
from broker.tasks import serve
from frontends.amqp.errors import INTERNAL, Fault, fault
from frontends.amqp.event_hubs import events
from frontends.amqp.event_hubs.constants import BATCH
from frontends.amqp.links.context import LinkContext
from frontends.amqp.links.producer import Producer
from frontends.amqp.messages import message
from frontends.amqp.protocol.links import Incoming

_AT_ONCE: Final = 200
"""Events of a batch to parse or publish before other work gets its turn."""

_T = TypeVar("_T")

_log = structlog.get_logger("stanzaq.amqp")


class HubProducer(Producer):
    """One producer's link. A batch is parsed and published in steps, and later messages wait."""

    def __init__(self, link: Incoming, context: LinkContext, record: NodeRecord, partition: int | None) -> None:
        """Accept messages for a hub, or for one of its partitions."""
        super().__init__(link, context, record, partition)
        # SDKs wait for the outcome of a batch even when its link is ended.
        self.link.rejects = True
        self._partitions = record.config.partitions
        self._most_bytes = record.config.max_payload_bytes
        self._turn = secrets.randbelow(self._partitions)
        self._waiting: deque[tuple[Any, bytes, bool, bool]] = deque()
        self._task: asyncio.Task[None] | None = None

    def _take(self, delivery: Any, raw: bytes, settled: bool) -> None:  # noqa: ANN401, FBT001  (as the link gives them)
        batched = self._connection.message_format == BATCH
        if not batched and not self._waiting:
            super()._take(delivery, raw, settled)
            return
        self._connection.hold(len(raw))
        self._waiting.append((delivery, raw, settled, batched))
        if len(self._waiting) == 1:
            self._task = serve(self._work(), self._fail)

    async def _work(self) -> None:
        while self._waiting:
            delivery, raw, settled, batched = self._waiting[0]
            try:
                if batched:
                    await self._publish_all(delivery, raw, settled=settled)
                else:
                    super()._take(delivery, raw, settled)
            except Exception:  # noqa: BLE001  (logged, and reported to the peer)
                _log.exception("a batch failed", node=self._node)
                self._settle(delivery, Fault(INTERNAL), settled=settled)
            finally:
                self._waiting.popleft()
                self._connection.hold(-len(raw))

    def _fail(self, error: Exception) -> None:
        """End the link with an error and drop the messages behind the batch."""
        _log.error("a producer's link failed", node=self._node, exc_info=error)
        for _delivery, raw, _settled, _batched in self._waiting:
            self._connection.hold(-len(raw))
        self._waiting.clear()
        self.link.end(Fault(INTERNAL))

    async def _publish_all(self, delivery: Any, raw: bytes, *, settled: bool) -> None:  # noqa: ANN401  (as the link gives it)
        try:
            commands = await self._publishes(raw)
        except MalformedRequest as refusal:
            self._settle(delivery, fault(refusal), settled=settled)
            return
        # A batch may have many events of very few bytes.
        size = len(commands) * COMMAND_BYTES
        self._connection.hold(size)
        try:
            result = await self._publish_events(commands)
        finally:
            self._connection.hold(-size)
        self._on_result(delivery, 0, result, settled=settled)

    async def _publish_events(self, commands: list[Publish]) -> Result:
        begin = 0
        while True:
            result = await self._publish_some(commands[begin : begin + _AT_ONCE])
            begin += _AT_ONCE
            if begin >= len(commands) or not isinstance(result, Published):
                return result

    async def _publish_some(self, commands: list[Publish]) -> Result:
        """Publish some events, which may go in one call; returns a refusal if there is one."""
        results: list[Result] = []
        done = asyncio.Event()

        def answered(result: Result) -> None:
            results.append(result)
            if len(results) == len(commands):
                done.set()

        for command in commands:
            self._core.submit(command, answered)
        await done.wait()
        return next((result for result in results if not isinstance(result, Published)), results[-1])

    def _publish(self, raw: bytes) -> tuple[Publish, None]:
        # A hub is a log, whose entries have no end.
        return super()._publish(events.to_amqp(raw))[0], None

    async def _publishes(self, raw: bytes) -> list[Publish]:
        key, found = events.batch(raw)
        # Each batch without a key goes to the next partition.
        self._turn = (self._turn + 1) % self._partitions
        return [self._of_batch(each, key) async for each in _yield_with_pauses(found)]

    def _of_batch(self, raw: bytes, key: str) -> Publish:
        parsed = message.parse(events.to_amqp(raw, key))
        if parsed.body_bytes > self._most_bytes:
            detail = f"an event of the batch has more than {self._most_bytes} bytes"
            raise MalformedRequest(Problem.PAYLOAD_TOO_BIG, detail)
        number = self._partition
        if number is None and not parsed.key:
            number = self._turn
        return Publish(
            self._node, self._sender, None, parsed.envelope, parsed.body_bytes, partition=number, key=parsed.key
        )


async def _yield_with_pauses(things: list[_T]) -> AsyncIterator[_T]:
    """Yield all things, and let other work run now and then."""
    for number, each in enumerate(things, 1):
        yield each
        if number % _AT_ONCE == 0:
            await asyncio.sleep(0)
