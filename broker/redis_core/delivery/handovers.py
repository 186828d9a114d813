"""Brings dead letters and moved items from their old partition to their new node.

Each step is idempotent. `ReadHandovers` reads items and notes their target, `AcceptHandover` stores each item once by its ticket,
`EndHandover` removes it from the old partition, and `ExpireTickets` lets the new one forget the ticket. After a crash another
frontend repeats the steps with the noted target. Must not know when an item is handed over: scripts decide that.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

import structlog

from broker import codec
from broker.model.items import Envelope
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.options import NodeConfig, PublishModel
from broker.model.problems import CorruptRecord, Problem
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
from broker.redis_core.records.store import NodeStore
from broker.redis_core.registry.partitioner import arrival

log = structlog.get_logger()

DEAD = ("reason", "holder", "attempts", "node", "item", "publisher")
"""What a dead letter says about its death, each as header `stanzaq-dead-NAME`."""

DEAD_NODE, DEAD_ITEM, DEAD_REASON = (f"stanzaq-dead-{name}" for name in ("node", "item", "reason"))

MOVED_FROM, MOVED_ATTEMPTS, MOVED_TIMES = (f"stanzaq-moved-{name}" for name in ("from", "attempts", "times"))
"""What an item says about its last move: the old node, its deliveries there, and the number of its moves."""

_MARK: Final = b">"
"""Marks a node in the place of a holder. No JID begins with it (RFC 7622 §3.3)."""

_TIMES_DIGITS: Final = 6

FIRST: Final = 8
MOST: Final = 50
"""Batch sizes: the first batch shows whether the target accepts anything, the later ones are larger."""

FIRST_BYTES: Final = 262_144
MOST_BYTES: Final = 1_048_576
"""Payload that is read at once; a larger item is read alone."""

PAUSE_SECONDS: Final = 4.5
"""How long a node that accepted nothing is skipped: a little less than the interval of its next announcement."""

_NOT_THERE: Final = (
    Problem.NODE_FULL,
    Problem.NODE_NOT_FOUND,
    Problem.PARTITION_NOT_FOUND,
    Problem.PUBLISH_UNSUPPORTED,
)
"""Refusals that prove that an item has not arrived."""


@dataclass(frozen=True, slots=True)
class _Way:
    """The target of items: the node `to`, or dead letters; `note` is `PARTITIONS NODE` of where they may have arrived."""

    to: str
    note: str


class Handovers:
    """Brings items to their nodes; creates missing nodes for dead letters."""

    def __init__(
        self,
        store: NodeStore,
        nodes: NodeService,
        ask: Callable[[Any], Awaitable[Any]],
        background: Callable[[Callable[[], Coroutine[Any, Any, Any]]], None],
        count: Callable[[str], None],
    ) -> None:
        """Read and move items by `ask`; `count` is called for each dead letter that arrived."""
        self._store = store
        self._nodes = nodes
        self._ask = ask
        self._background = background
        self._count = count
        self._told: dict[tuple[str, str, int], list[tuple[str, _Way]]] = {}
        self._paused: dict[str, float] = {}

    @property
    def busy(self) -> bool:
        """Whether any hand-over is running."""
        return bool(self._told)

    def tell(self, record: NodeRecord, partition: int, told: Sequence[Handover]) -> None:
        """Begin to hand over items that a script of the partition announced."""
        key = (record.name, record.incarnation, partition)
        begun = key in self._told
        waiting = self._told.setdefault(key, [])
        waiting += [(each.position, _Way(each.to, each.note)) for each in told]
        if not begun:
            self._background(lambda: self._bring_all(record, partition))

    async def _bring_all(self, record: NodeRecord, partition: int) -> None:
        """Hand over items as long as any arrive: an arrival may make room for items that were refused before."""
        key = (record.name, record.incarnation, partition)
        try:
            began_ms = await self._store.now_ms()
            while self._told[key]:
                ways: dict[_Way, list[str]] = {}
                for position, way in self._told[key]:
                    ways.setdefault(way, []).append(position)
                self._told[key] = []
                left = await asyncio.gather(
                    *(self._bring(record, partition, way, positions) for way, positions in ways.items())
                )
                if any(left):
                    await self._ask(Sweep(record.name, partition, told_before_ms=began_ms))
        finally:
            del self._told[key]

    async def _bring(self, record: NodeRecord, partition: int, way: _Way, positions: list[str]) -> int:
        """Hand over items with one target; returns how many are left in all if any arrived, else 0."""
        # The stored record: a pipeline's record counts administrators as owners, and they are owners of every node.
        source = await self._store.read(record.name)
        if source is None or source.incarnation != record.incarnation:
            return 0
        target, count = await self._target(source, way)
        if way.note and target is None:
            # The noted target is deleted, with any item that had arrived there.
            await asyncio.gather(*(self._handed(source, partition, each, arrived=False) for each in positions))
            way = _Way(way.to, "")
            target, count = await self._target(source, way)
        if target is None:
            log.warning("dead letters kept back: their node is another's, or one too many", node=source.name)
            return 0
        began, until = time.monotonic(), self._paused.get(target.name, 0.0)
        if began < until:
            return 0
        if until:
            # Where some partitions are full, a random order keeps items for a full one from blocking those for others.
            random.shuffle(positions)
        left, size, most_bytes = 0, FIRST, FIRST_BYTES
        while positions:
            some = positions[:size]
            asked = ReadHandovers(
                source.name, source.incarnation, partition, tuple(some), f"{count} {target.name}", most_bytes
            )
            letters = await self._ask(asked)
            if not isinstance(letters, tuple):
                break
            full = sum(len(letter.envelope) for letter in letters) >= most_bytes
            read = some.index(letters[-1].position) + 1 if full else len(some)
            positions = positions[read:]
            here = [letter for letter in letters if letter.note == asked.note]
            arrived = await self._admit(source, partition, target, count, here)
            if here and not arrived:
                self._pause(target.name, began)
                break
            if arrived:
                self._paused.pop(target.name, None)
                left = min((each for each in arrived if each is not None), default=left)
            size, most_bytes = MOST, MOST_BYTES
        return left

    async def _admit(
        self, source: NodeRecord, partition: int, target: NodeRecord, count: int, letters: Sequence[HandoverItem]
    ) -> list[int | None]:
        """Store items in their target; returns how many are left after each one, None if the old partition was not told."""
        brought = [_brought(source, partition, target, count, letter) for letter in letters]
        results = await asyncio.gather(*(self._ask(admit) for admit in brought))
        pairs = list(zip(letters, brought, results, strict=True))
        refused = [result for result in results if isinstance(result, Refused)]
        if refused:
            about = {"node": source.name, "to": target.name, "count": len(refused)}
            log.warning("items not handed over yet", **about, problem=refused[0].problem.value)
        settled = [
            (letter, admit, isinstance(result, Published))
            for letter, admit, result in pairs
            if isinstance(result, Published) or result.problem in _NOT_THERE
        ]
        left = await asyncio.gather(
            *(self._handed(source, partition, letter.position, arrived=there) for letter, _, there in settled)
        )
        known = [
            (letter, admit, each)
            for (letter, admit, there), each in zip(settled, left, strict=True)
            if there and each is not None
        ]
        for letter, _, _ in known:
            if not letter.holder.startswith(_MARK) and target.name != source.name:
                self._count("dead_lettered")
        await asyncio.gather(
            *(self._ask(ExpireTickets(admit.node, admit.ticket, admit.partition)) for _, admit, _ in known)
        )
        return [each for (_, _, there), each in zip(settled, left, strict=True) if there]

    async def _handed(self, source: NodeRecord, partition: int, position: str, *, arrived: bool) -> int | None:
        """Report a hand-over to the old partition; returns how many are left there, None when that failed."""
        outcome = await self._ask(EndHandover(source.name, source.incarnation, position, partition, arrived))
        return outcome.count if isinstance(outcome, Remaining) else None

    def _pause(self, node: str, began: float) -> None:
        """Skip a node, counted from the begin of the try: a slow answer must not make it miss its next announcement."""
        self._paused = {each: until for each, until in self._paused.items() if until > began - 2 * PAUSE_SECONDS}
        self._paused[node] = began + PAUSE_SECONDS

    async def _target(self, source: NodeRecord, way: _Way) -> tuple[NodeRecord | None, int]:
        """Return the target node, and its partition count at the first try."""
        count, _, noted = way.note.partition(" ")
        name = noted or way.to or source.config.dead_letters_of(source.name) or source.name
        # An item without a usable target returns to its own node.
        target = source if name == source.name else await self._store.read(name)
        if not way.to and name != source.name:
            target = await self._of_its_owners(source, name, target, make=not noted)
        elif not noted and (target is None or target.config.collects):
            target = source
        return target, int(count) if count else target.config.partitions if target else 0

    async def _of_its_owners(
        self, source: NodeRecord, name: str, taker: NodeRecord | None, *, make: bool
    ) -> NodeRecord | None:
        """Return the dead-letter node if it shares an owner with the source: anyone may have created a node of that name."""
        owners = [jid for jid, affiliation in source.affiliations.items() if affiliation is Affiliation.OWNER]
        if taker is None and make:
            # Unlimited attempts and no dead letters of its own: a dead letter that no worker can handle stays there.
            config = NodeConfig(
                title=f"Dead letters of {source.name}"[:200],
                max_deliveries=0,
                dead_letter_node="",
                publish_model=PublishModel.PUBLISHERS,
                access_model=source.config.access_model,
            )
            if await self._nodes.count_to_quota(owners[0], name):
                await self._nodes.make(name, owners[0], config)
                taker = await self._store.read(name)
                if taker is not None and len(owners) > 1:
                    await self._store.affiliate(taker, dict.fromkeys(owners[1:], Affiliation.OWNER.value))
        shared = taker is not None and any(taker.affiliation(owner) is Affiliation.OWNER for owner in owners)
        return taker if shared else None


def _brought(
    source: NodeRecord, partition: int, target: NodeRecord, count: int, letter: HandoverItem
) -> AcceptHandover:
    """Build the command that stores an item in its target."""
    # Unique for ever, and the same at each repetition.
    ticket = f"{source.incarnation}-{partition}-{letter.position}"
    opened = _opened(letter.envelope)
    if target.name == source.name:
        item_id, envelope = letter.item_id, letter.envelope
    elif letter.holder.startswith(_MARK):
        # A dead letter that returns to its old node gets its old id.
        home = opened.headers.get(DEAD_NODE) == target.name
        item_id = (opened.headers.get(DEAD_ITEM, "") if home else letter.item_id) or ticket
        envelope = codec.pack(_moved(opened, source.name, letter.attempts))
    else:
        item_id, envelope = ticket, codec.pack(_lettered(opened, source.name, letter))
    place = arrival(item_id, letter.key, count)
    return AcceptHandover(target.name, place, count, item_id, ticket, letter.key, letter.publisher, envelope)


def _opened(envelope: bytes) -> Envelope:
    try:
        return codec.unpack(envelope)
    except CorruptRecord:
        # An unreadable item is handed over too, as plain bytes.
        return Envelope(envelope, "application/octet-stream")


def headers(envelope: bytes) -> dict[str, str]:
    """Return the headers of an item."""
    return dict(_opened(envelope).headers)


def _lettered(opened: Envelope, node: str, letter: HandoverItem) -> Envelope:
    """Add headers that say why and where the item died."""
    told = (letter.reason, letter.holder.decode(), str(letter.attempts), node, letter.item_id, letter.publisher)
    named = {f"stanzaq-dead-{name}": text for name, text in zip(DEAD, told, strict=True)}
    return replace(opened, headers={**opened.headers, **named})


def _moved(opened: Envelope, node: str, attempts: int) -> Envelope:
    """Add headers that say where the item comes from; headers of an earlier death stay."""
    before = opened.headers.get(MOVED_TIMES, "0")
    # A publisher may have written anything into this header.
    times = int(before) + 1 if before.isascii() and before.isdigit() and len(before) <= _TIMES_DIGITS else 1
    told = {MOVED_FROM: node, MOVED_ATTEMPTS: str(attempts), MOVED_TIMES: str(times)}
    return replace(opened, headers={**opened.headers, **told})
