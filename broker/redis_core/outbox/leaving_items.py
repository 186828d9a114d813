"""Delivers dead letters, and items that an owner moves, from the outbox of their partition to their new node.

`AcceptEntry` stores each item once by its ticket, `EndEntry` removes it from the old partition, and `ExpireTicket` lets the
new one forget the ticket. After a crash another frontend repeats the steps, with the target that the first attempt has noted.
Must not know when an item leaves: operations decide that.
"""

import asyncio
import random
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from typing import Any, Final

import structlog

from broker import codec
from broker.model.frozen import frozen
from broker.model.items import attempts
from broker.model.items.attempts import Attempt
from broker.model.items.items import Envelope
from broker.model.names import Jid, Partition, is_group
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig, PublishModel
from broker.model.results import Done, Published, Refused
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, Entry, ExpireTicket, OutboxPage
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

_FIRST: Final = 8
"""Items that are offered first, to see whether the target takes any."""

PAUSE_SECONDS: Final = 4.5
"""How long a node that took nothing is left alone: a little less than until the next attempt."""


@frozen
class LeavingItem:
    """An item on its way, with its entry; a moved item has `>NODE` in place of its last holder."""

    entry: Entry
    item_id: str
    publisher: Jid
    envelope: bytes
    attempts: int
    holder: bytes
    reason: str
    key: str
    target: str
    history: tuple[Attempt, ...]

    @property
    def is_moved(self) -> bool:
        """Whether an owner moves it; else it is a dead letter."""
        return self.holder.startswith(_NODE_MARK)


class ItemDeliverer:
    """Brings items to their nodes; creates missing nodes for dead letters."""

    def __init__(self, store: NodeStore, nodes: NodeService, core: HandlerPort) -> None:
        """Move items through `core`, which counts the dead letters that arrive."""
        self._store = store
        self._nodes = nodes
        self._ask: Callable[[Any], Awaitable[Any]] = core.ask_partition
        self._count = core.count
        self._paused: dict[str, float] = {}

    async def deliver(self, partition: Partition, page: OutboxPage) -> None:
        """Bring items to their targets."""
        # The stored record: a pipeline's record counts administrators as owners, and they are owners of every node.
        source = await self._store.read(partition.node)
        if source is None or source.incarnation != partition.incarnation:
            return
        routes: dict[tuple[str, bool], list[LeavingItem]] = {}
        for item in map(_read_item, page.entries):
            routes.setdefault((item.target, item.is_moved), []).append(item)
        some = [self._bring(source, partition, name, routes[name, moved], page.until) for name, moved in routes]
        await asyncio.gather(*some)

    def held(self) -> tuple[str, ...]:
        """Return the nodes that have just taken nothing."""
        return tuple(name for name, until in self._paused.items() if until > time.monotonic())

    async def _bring(
        self, source: NodeRecord, partition: Partition, name: str, items: list[LeavingItem], ends: float
    ) -> None:
        """Bring items to one node, until `ends`. What it does not take goes later, perhaps to a node that was chosen since."""
        if not items:
            return
        moved = items[0].is_moved
        wanted = source.name if moved else source.dead_letter_target
        target = await self._find_target(source, name, moved=moved, make=name == wanted)
        if target is None and name != wanted:
            # It is gone, with any item that had arrived there.
            await self._bring(source, partition, wanted, await self._aim(partition, items, wanted), ends)
            return
        if target is None:
            log.warning("dead letters held back: their node belongs to another, or exceeds the quota", node=source.name)
            return
        began, until = time.monotonic(), self._paused.get(target.name, 0.0)
        if began < until:
            return
        if until:
            # Where some partitions are full, a random order keeps items for a full one from blocking those for others.
            random.shuffle(items)
        for some in (items[:_FIRST], items[_FIRST:]):
            if time.monotonic() > ends:
                # Somebody else may have them now.
                return
            left = await self._store_items(source, partition, target, some)
            refused = [item for item, why in left if why.problem.is_unstored]
            if refused and not moved and name != wanted:
                await self._bring(source, partition, wanted, await self._aim(partition, refused, wanted), ends)
            if some and len(left) == len(some):
                self._pause(target.name, began)
                return
        self._paused.pop(target.name, None)

    async def _aim(self, partition: Partition, items: Sequence[LeavingItem], target: str) -> list[LeavingItem]:
        """Give items another target, since they have certainly not arrived; returns those that have it now."""
        asked = [EndEntry.of(partition, item.entry.name, target, item.entry.attempt) for item in items]
        aimed = await asyncio.gather(*map(self._ask, asked))
        return [item for item, done in zip(items, aimed, strict=True) if isinstance(done, Done)]

    async def _store_items(
        self, source: NodeRecord, partition: Partition, target: NodeRecord, items: Sequence[LeavingItem]
    ) -> list[tuple[LeavingItem, Refused]]:
        """Store items in their target; returns those that it refuses."""
        commands = [_acceptance(source, partition.number, target, item) for item in items]
        results = await asyncio.gather(*(self._ask(command) for command in commands))
        pairs = list(zip(items, commands, results, strict=True))
        left = [(item, result) for item, _, result in pairs if isinstance(result, Refused)]
        if left:
            about = {"node": source.name, "to": target.name, "count": len(left)}
            log.warning("items not delivered yet", **about, problem=left[0][1].problem.value)
        arrived = [(item, command) for item, command, result in pairs if isinstance(result, Published)]
        ended = await asyncio.gather(*(self._ask(EndEntry.of(partition, item.entry.name)) for item, _ in arrived))
        known = [pair for pair, end in zip(arrived, ended, strict=True) if isinstance(end, Done)]
        for item, _ in known:
            if not item.is_moved and target.name != source.name:
                self._count("dead_lettered", 1, source.name)
        await asyncio.gather(
            *(self._ask(ExpireTicket(command.node, command.ticket, command.partition)) for _, command in known)
        )
        return left

    def _pause(self, node: str, began: float) -> None:
        """Leave a node alone, counted from the begin of the try: a slow answer must not make it miss its next one."""
        self._paused = {each: until for each, until in self._paused.items() if until > began - 2 * PAUSE_SECONDS}
        self._paused[node] = began + PAUSE_SECONDS

    async def _find_target(self, source: NodeRecord, name: str, *, moved: bool, make: bool) -> NodeRecord | None:
        """Return the node of this name, if it can take the items; with `make` one for dead letters is created."""
        if name == source.name:
            # What cannot go anywhere else returns to its own node.
            return source
        target = await self._store.read_node(name)
        if moved:
            return None if target is None or target.config.collects else target
        return await self._dead_letter_node(source, name, target, make=make)

    async def _dead_letter_node(
        self, source: NodeRecord, name: str, candidate: NodeRecord | None, *, make: bool
    ) -> NodeRecord | None:
        """Return the dead-letter node if it shares an owner with the source: anyone may have created a node of that name."""
        owners = [jid for jid, affiliation in source.affiliations.items() if affiliation is Affiliation.OWNER]
        # An account creates it where there is one.
        owners.sort(key=is_group)
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
        return candidate if candidate is not None and candidate.shares_owner(source) else None


def _read_item(entry: Entry) -> LeavingItem:
    """Read what an operation returns of an item (lua/lib/outbox/outbox_items.lua)."""
    item, by, body, tries, holder, reason, key, target, lines = entry.content
    named = (
        entry,
        item.decode(),
        Jid(by.decode()),
        body,
        tries,
        holder,
        reason.decode(),
        key.decode(),
    )
    return LeavingItem(*named, target.decode(), attempts.read(lines))


def _acceptance(source: NodeRecord, partition: int, target: NodeRecord, item: LeavingItem) -> AcceptEntry:
    """Build the command that stores an item in its target."""
    # Unique for ever, and the same at each repetition.
    ticket = f"{source.incarnation}-{partition}-{item.entry.about}"
    # An unreadable item goes too, as plain bytes.
    unpacked = codec.unpack_any(item.envelope)
    if target.name == source.name:
        item_id, envelope = item.item_id, item.envelope
    elif item.is_moved:
        # A dead letter that returns to its old node gets its old id.
        home = unpacked.headers.get(DEAD_NODE) == target.name
        item_id = (unpacked.headers.get(DEAD_ITEM, "") if home else item.item_id) or ticket
        envelope = codec.pack(_add_move_headers(unpacked, source.name, item.attempts))
    else:
        item_id, envelope = ticket, codec.pack(_add_death_headers(unpacked, source.name, item))
    place = arrival(item_id, item.key, target.config.partitions)
    return AcceptEntry(target.name, target.incarnation, place, item_id, ticket, item.key, item.publisher, envelope)


def headers(envelope: bytes) -> dict[str, str]:
    """Return the headers of an item."""
    return dict(codec.unpack_any(envelope).headers)


def _add_death_headers(unpacked: Envelope, node: str, item: LeavingItem) -> Envelope:
    """Add headers that say why and where the item died."""
    values = (item.reason, item.holder.decode(), str(item.attempts), node, item.item_id, item.publisher)
    named = {f"stanzaq-dead-{name}": text for name, text in zip(DEAD, values, strict=True)}
    # Also without an attempt, as of a full node's oldest item: the item may have the history of an earlier death.
    named[DEAD_HISTORY] = attempts.to_header(item.history)
    return replace(unpacked, headers={**unpacked.headers, **named})


def _add_move_headers(unpacked: Envelope, node: str, attempts: int) -> Envelope:
    """Add headers that say where the item comes from; headers of an earlier death stay."""
    before = unpacked.headers.get(MOVED_TIMES, "0")
    # A publisher may have written anything into this header.
    times = int(before) + 1 if before.isascii() and before.isdigit() and len(before) <= _TIMES_DIGITS else 1
    values = {MOVED_FROM: node, MOVED_ATTEMPTS: str(attempts), MOVED_TIMES: str(times)}
    return replace(unpacked, headers={**unpacked.headers, **values})
