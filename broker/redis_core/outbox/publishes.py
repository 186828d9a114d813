"""Publishes items with the acknowledgement of another one: both happen, or neither.

What follows an item is judged before that is acknowledged, as a publish of its holder. The operation that acknowledges notes it
in the outbox, from where `AcceptEntry` stores it in its node, once by a ticket. After a crash another frontend repeats the
steps. An item that its node does not take now waits, and so does one whose node is gone, until there is one of its name. Must
not know how an item is acknowledged.
"""

import asyncio
import secrets
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any

import structlog

from broker.model.commands import CompleteAndPublish, Publish, Retract
from broker.model.commands.items import MOST_PUBLISHED
from broker.model.items.outcomes import ReplyMode
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import MAX_PAYLOAD_BYTES
from broker.model.problems import Problem
from broker.model.results import Done, Refused, Result
from broker.redis_core.commands.internal import GONE
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, Entry, ExpireTicket, FollowingItem, OutboxPage
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.authorization import NOT_SUBSCRIBED, accepting, must_be_subscribed
from broker.redis_core.registry.partitioner import arrival
from broker.redis_core.registry.rows import refusal

log = structlog.get_logger()

_TOO_MUCH = Refused(
    Problem.NOT_ACCEPTABLE,
    f"with an acknowledgement at most {MOST_PUBLISHED} items are published, of together {MAX_PAYLOAD_BYTES} bytes of payload",
)
_UNSUITABLE = Refused(
    Problem.BAD_REQUEST,
    "an item that follows another names no partition and no options, asks for no reply and no confirm, and waits for no others",
)


class PublishService:
    """Acknowledges items together with publishes, and delivers what was published so."""

    def __init__(
        self,
        store: NodeStore,
        core: HandlerPort,
        subscribed: Callable[[str, Jid], Awaitable[bool]],
        acknowledge: Callable[[Retract], Awaitable[Result]],
    ) -> None:
        """Publish through `core`; `subscribed` tells who is, and `acknowledge` also receives."""
        self._store = store
        self._core = core
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._subscribed = subscribed
        self._acknowledge = acknowledge

    async def complete(self, command: CompleteAndPublish) -> Result:
        """Acknowledge an item, and publish others with that, unless one of them is refused."""
        publishes = tuple(replace(each, item_id=each.item_id or secrets.token_hex(12)) for each in command.publishes)
        judged = replace(command, publishes=publishes, refused=await self._find_refusal(publishes))
        done: Result = await (self._acknowledge(judged) if command.next else self._ask(judged))
        return done

    async def _find_refusal(self, publishes: tuple[Publish, ...]) -> Refused | None:
        """Return why the first item that may not be published is refused."""
        if len(publishes) > MOST_PUBLISHED or sum(each.body_bytes for each in publishes) > MAX_PAYLOAD_BYTES:
            return _TOO_MUCH
        records = await self._read_nodes(publishes)
        for each in publishes:
            refused = await self._judge(each, records[each.node])
            if refused is not None:
                # No other word of a target's may look as if the lock had ended.
                detail = f"an item for the node {each.node!r} is refused: {refused.detail or refused.problem.value}"
                return Refused(Problem.NOT_ACCEPTABLE, detail)
        return None

    async def _judge(self, publish: Publish, record: NodeRecord | None) -> Refused | None:
        """Judge an item as its node judges a publish."""
        hints = publish.hints
        if (
            publish.options
            or publish.partition is not None
            or hints.reply is not ReplyMode.NONE
            or hints.after.parents
            or hints.confirm
        ):
            return _UNSUITABLE
        if record is None:
            return GONE
        if must_be_subscribed(record, publish):
            if not await self._subscribed(record.name, publish.sender):
                return NOT_SUBSCRIBED
            publish = replace(publish, subscribed=True)
        quotas = self._core.quota_use
        refused = refusal(publish, record) or accepting(publish, record)
        return refused or (quotas.judge(record.creator) if quotas.used_up else None)

    async def _read_nodes(self, items: Sequence[Publish | FollowingItem]) -> dict[str, NodeRecord | None]:
        nodes = list({each.node for each in items})
        return dict(zip(nodes, await asyncio.gather(*map(self._store.read_node, nodes)), strict=True))

    async def deliver(self, partition: Partition, page: OutboxPage) -> None:
        """Store items in their nodes."""
        items = [FollowingItem.read(*entry.content) for entry in page.entries]
        records = await self._read_nodes(items)
        bringing = (
            self._bring(partition, entry, item, records[item.node], page.now_ms)
            for entry, item in zip(page.entries, items, strict=True)
        )
        refused = await asyncio.gather(*bringing)
        left = Counter((item.node, why.problem.value) for item, why in zip(items, refused, strict=True) if why)
        for (node, problem), count in left.items():
            log.warning("items wait to be published", node=partition.node, to=node, count=count, problem=problem)

    async def _bring(
        self, source: Partition, entry: Entry, item: FollowingItem, target: NodeRecord | None, now_ms: int
    ) -> Refused | None:
        """Store an item in its node; returns why that does not take it now."""
        if target is None:
            return GONE
        place = arrival(item.item_id, item.key, target.config.partitions)
        # Unique for ever, and the same at each repetition.
        ticket = f"{source.incarnation}-{source.number}-{entry.about}"
        where = target.name, target.incarnation, place, item.item_id, ticket
        stored = await self._ask(AcceptEntry(*where, item.key, item.publisher, item.envelope, item.hints_at(now_ms)))
        if isinstance(stored, Refused):
            return stored
        if not stored.duplicate:
            self._core.count("published")
            self._core.quota_use.published[target.creator] += 1
        if isinstance(await self._ask(EndEntry.of(source, entry.name)), Done):
            await self._ask(ExpireTicket(target.name, ticket, place))
        return None
