"""Brings dead letters and moved items from their old partition to their new node.

Each step is idempotent. `ReadHandovers` reads items and notes their target, `AcceptHandover` stores each item once by its ticket,
`EndHandover` removes it from the old partition, and `ExpireTickets` lets the new one forget the ticket. After a crash another
frontend repeats the steps with the noted target. Must not know when an item is handed over: scripts decide that.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from broker import codec
from broker.model.attempts import to_header
from broker.model.frozen import frozen
from broker.model.items import Envelope
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.options import NodeConfig, PublishModel
from broker.model.results import Published, Refused
from broker.redis_core.commands.admin_parts import (
    AcceptHandover,
    EndHandover,
    ExpireTickets,
    Handover,
    HandoverItem,
    ReadHandovers,
    Remaining,
)
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.nodes.service import NodeService
from broker.redis_core.ports import HandlerPort
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.partitioner import arrival

log = structlog.get_logger()

DEAD = ("reason", "holder", "attempts", "node", "item", "publisher")
"""What a dead letter says about its death, each as header `stanzaq-dead-NAME`."""

DEAD_NODE, DEAD_ITEM, DEAD_REASON = (f"stanzaq-dead-{name}" for name in ("node", "item", "reason"))

DEAD_HISTORY: Final = "stanzaq-dead-history"
"""The header with a dead letter's attempts."""

MOVED_FROM, MOVED_ATTEMPTS, MOVED_TIMES = (f"stanzaq-moved-{name}" for name in ("from", "attempts", "times"))
"""What an item says about its last move: the old node, its deliveries there, and the number of its moves."""

_NODE_MARK: Final = b">"
"""Marks a node in the place of a holder. No JID begins with it (RFC 7622 §3.3)."""

_TIMES_DIGITS: Final = 6

FIRST_ITEMS: Final = 8
MAX_ITEMS: Final = 50
"""Batch sizes: the first batch shows whether the target accepts anything, the later ones are larger."""

FIRST_BYTES: Final = 262_144
MAX_BYTES: Final = 1_048_576
"""Payload that is read at once; a larger item is read alone."""

PAUSE_SECONDS: Final = 4.5
"""How long a node that accepted nothing is skipped: a little less than the interval of its next announcement."""


@frozen
class _Route:
    """The target of items: the node `to`, or dead letters; `note` is `PARTITIONS NODE` of where they may have arrived."""

    to: str
    note: str


class Handovers:
    """Brings items to their nodes; creates missing nodes for dead letters."""

    def __init__(self, store: NodeStore, nodes: NodeService, core: HandlerPort) -> None:
        """Read and move items through `core`, which counts the dead letters that arrive."""
        self._store = store
        self._nodes = nodes
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._background = core.background
        self._count = core.count
        self._announced: dict[tuple[str, str, int], dict[str, _Route]] = {}
        self._paused: dict[str, float] = {}

    @property
    def busy(self) -> bool:
        """Whether any hand-over is running."""
        return bool(self._announced)

    def begin(self, record: NodeRecord, partition: int, announced: Sequence[Handover]) -> None:
        """Begin to hand over items that a script of the partition announced, perhaps again."""
        key = (record.name, record.incarnation, partition)
        begun = key in self._announced
        waiting = self._announced.setdefault(key, {})
        waiting |= {each.position: _Route(each.to, each.note) for each in announced}
        if not begun:
            self._background(lambda: self._hand_over_all(record, partition))

    async def _hand_over_all(self, record: NodeRecord, partition: int) -> None:
        """Hand over items as long as any arrive: an arrival may make room for items that were refused before."""
        key = (record.name, record.incarnation, partition)
        try:
            began_ms = await self._store.now_ms()
            while self._announced[key]:
                by_route: dict[_Route, list[str]] = {}
                for position, route in self._announced[key].items():
                    by_route.setdefault(route, []).append(position)
                self._announced[key] = {}
                left = await asyncio.gather(
                    *(self._hand_over(record, partition, route, positions) for route, positions in by_route.items())
                )
                if any(left):
                    await self._ask(Sweep(record.name, partition, told_before_ms=began_ms))
        finally:
            del self._announced[key]

    async def _hand_over(self, record: NodeRecord, partition: int, route: _Route, positions: list[str]) -> int:
        """Hand over items with one target; returns how many are left in all if any arrived, else 0."""
        # The stored record: a pipeline's record counts administrators as owners, and they are owners of every node.
        source = await self._store.read(record.name)
        if source is None or source.incarnation != record.incarnation:
            return 0
        target = await self._target(source, route)
        if route.note and target is None:
            # The noted target is deleted, with any item that had arrived there.
            await asyncio.gather(*(self._end_handover(source, partition, each, arrived=False) for each in positions))
            route = _Route(route.to, "")
            target = await self._target(source, route)
        if target is None:
            log.warning("dead letters held back: their node belongs to another, or exceeds the quota", node=source.name)
            return 0
        began, until = time.monotonic(), self._paused.get(target.name, 0.0)
        if began < until:
            return 0
        if until:
            # Where some partitions are full, a random order keeps items for a full one from blocking those for others.
            random.shuffle(positions)
        left, size, most_bytes = 0, FIRST_ITEMS, FIRST_BYTES
        while positions:
            some = positions[:size]
            asked = ReadHandovers(source.name, source.incarnation, partition, tuple(some), target.name, most_bytes)
            items = await self._ask(asked)
            if not isinstance(items, tuple):
                break
            full = sum(len(item.envelope) for item in items) >= most_bytes
            read = some.index(items[-1].position) + 1 if full else len(some)
            positions = positions[read:]
            here = [item for item in items if item.note == asked.note]
            arrived = await self._store_items(source, partition, target, here)
            if here and not arrived:
                self._pause(target.name, began)
                break
            if arrived:
                self._paused.pop(target.name, None)
                left = min((each for each in arrived if each is not None), default=left)
            size, most_bytes = MAX_ITEMS, MAX_BYTES
        return left

    async def _store_items(
        self, source: NodeRecord, partition: int, target: NodeRecord, items: Sequence[HandoverItem]
    ) -> list[int | None]:
        """Store items in their target; returns how many are left after each one, None if the old partition was not told."""
        commands = [_acceptance(source, partition, target, item) for item in items]
        results = await asyncio.gather(*(self._ask(command) for command in commands))
        pairs = list(zip(items, commands, results, strict=True))
        refused = [result for result in results if isinstance(result, Refused)]
        if refused:
            about = {"node": source.name, "to": target.name, "count": len(refused)}
            log.warning("items not handed over yet", **about, problem=refused[0].problem.value)
        settled = [
            (item, command, isinstance(result, Published))
            for item, command, result in pairs
            if isinstance(result, Published) or result.problem.is_unstored
        ]
        left = await asyncio.gather(
            *(self._end_handover(source, partition, item.position, arrived=there) for item, _, there in settled)
        )
        known = [
            (item, command, each)
            for (item, command, there), each in zip(settled, left, strict=True)
            if there and each is not None
        ]
        for item, _, _ in known:
            if not item.holder.startswith(_NODE_MARK) and target.name != source.name:
                self._count("dead_lettered", 1, source.name)
        await asyncio.gather(
            *(self._ask(ExpireTickets(command.node, command.ticket, command.partition)) for _, command, _ in known)
        )
        return [each for (_, _, there), each in zip(settled, left, strict=True) if there]

    async def _end_handover(self, source: NodeRecord, partition: int, position: str, *, arrived: bool) -> int | None:
        """Report a hand-over to the old partition; returns how many are left there, None when that failed."""
        outcome = await self._ask(EndHandover(source.name, source.incarnation, position, partition, arrived))
        return outcome.count if isinstance(outcome, Remaining) else None

    def _pause(self, node: str, began: float) -> None:
        """Skip a node, counted from the begin of the try: a slow answer must not make it miss its next announcement."""
        self._paused = {each: until for each, until in self._paused.items() if until > began - 2 * PAUSE_SECONDS}
        self._paused[node] = began + PAUSE_SECONDS

    async def _target(self, source: NodeRecord, route: _Route) -> NodeRecord | None:
        """Return the target node, which was noted at the first try."""
        noted = route.note
        name = noted or route.to or source.config.dead_letters_of(source.name) or source.name
        # An item without a usable target returns to its own node.
        target = source if name == source.name else await self._store.read(name)
        if not route.to and name != source.name:
            target = await self._dead_letter_node(source, name, target, make=not noted)
        elif not noted and (target is None or target.config.collects):
            target = source
        return target

    async def _dead_letter_node(
        self, source: NodeRecord, name: str, candidate: NodeRecord | None, *, make: bool
    ) -> NodeRecord | None:
        """Return the dead-letter node if it shares an owner with the source: anyone may have created a node of that name."""
        owners = [jid for jid, affiliation in source.affiliations.items() if affiliation is Affiliation.OWNER]
        if candidate is None and make:
            # Unlimited attempts and no dead letters of its own: a dead letter that no worker can handle stays there.
            config = NodeConfig(
                title=f"Dead letters of {source.name}"[:200],
                max_deliveries=0,
                dead_letter_node="",
                publish_model=PublishModel.PUBLISHERS,
                access_model=source.config.access_model,
            )
            if await self._nodes.count_to_quota(owners[0], name, config.partitions) is None:
                await self._nodes.make(name, owners[0], config)
                candidate = await self._store.read(name)
                if candidate is not None and len(owners) > 1:
                    await self._store.affiliate(candidate, dict.fromkeys(owners[1:], Affiliation.OWNER.value))
        shared = candidate is not None and any(candidate.affiliation(owner) is Affiliation.OWNER for owner in owners)
        return candidate if shared else None


def _acceptance(source: NodeRecord, partition: int, target: NodeRecord, item: HandoverItem) -> AcceptHandover:
    """Build the command that stores an item in its target."""
    # Unique for ever, and the same at each repetition.
    ticket = f"{source.incarnation}-{partition}-{item.position}"
    # An unreadable item is handed over too, as plain bytes.
    unpacked = codec.unpack_any(item.envelope)
    if target.name == source.name:
        item_id, envelope = item.item_id, item.envelope
    elif item.holder.startswith(_NODE_MARK):
        # A dead letter that returns to its old node gets its old id.
        home = unpacked.headers.get(DEAD_NODE) == target.name
        item_id = (unpacked.headers.get(DEAD_ITEM, "") if home else item.item_id) or ticket
        envelope = codec.pack(_add_move_headers(unpacked, source.name, item.attempts))
    else:
        item_id, envelope = ticket, codec.pack(_add_death_headers(unpacked, source.name, item))
    place = arrival(item_id, item.key, target.config.partitions)
    return AcceptHandover(target.name, target.incarnation, place, item_id, ticket, item.key, item.publisher, envelope)


def headers(envelope: bytes) -> dict[str, str]:
    """Return the headers of an item."""
    return dict(codec.unpack_any(envelope).headers)


def _add_death_headers(unpacked: Envelope, node: str, item: HandoverItem) -> Envelope:
    """Add headers that say why and where the item died."""
    values = (item.reason, item.holder.decode(), str(item.attempts), node, item.item_id, item.publisher)
    named = {f"stanzaq-dead-{name}": text for name, text in zip(DEAD, values, strict=True)}
    # Also without an attempt, as of a full node's oldest item: the item may have the history of an earlier death.
    named[DEAD_HISTORY] = to_header(item.history)
    return replace(unpacked, headers={**unpacked.headers, **named})


def _add_move_headers(unpacked: Envelope, node: str, attempts: int) -> Envelope:
    """Add headers that say where the item comes from; headers of an earlier death stay."""
    before = unpacked.headers.get(MOVED_TIMES, "0")
    # A publisher may have written anything into this header.
    times = int(before) + 1 if before.isascii() and before.isdigit() and len(before) <= _TIMES_DIGITS else 1
    values = {MOVED_FROM: node, MOVED_ATTEMPTS: str(attempts), MOVED_TIMES: str(times)}
    return replace(unpacked, headers={**unpacked.headers, **values})
