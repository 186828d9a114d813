"""Checks queues for problems: items that wait in partitions which nobody owns. Reads only, by plain commands, which load nothing.

Must not know how a finding is shown, nor what Redis itself lacks.
"""

from collections.abc import AsyncIterator, Sequence
from typing import Final

from broker import keys
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable
from broker.model.roles import Roles
from broker.redis_core.records.store import NodeStore, in_pages
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.diagnostics import Finding, Level
from broker.scripts.location import lua_directory

_NAMED: Final = 10
"""Queues that a finding names, and partitions of each."""

_NOT_WAITING: Final = ("inflight", "outbox_items", "replaced", "successors")
"""Keys of a partition with an entry for each one of the log that does not wait, as stats.lua counts."""

_REMEDY: Final = (
    "start members of a group (Worker(…, group=…)) or subscribers that name these partitions; or receive from them over HTTP or"
    " AMQP without naming a partition, or by a subscription to a collection above"
)


async def examine_nodes(url: str, seconds: float) -> list[Finding]:
    """Check all queues, each answer due within `seconds`; nothing is found where `examine` finds why nothing can be read."""
    if url.startswith("embedded:"):
        return []
    server = Server.connect(url, lua_directory(), seconds)
    try:
        return [await _examine_owners(server, NodeStore(server, 0, Roles(frozenset(), {}, {})))]
    except CoreUnavailable:
        return []
    finally:
        await server.close()


async def _examine_owners(server: Server, store: NodeStore) -> Finding:
    await store.check_format()
    found: dict[str, list[int]] = {}
    async for page in _partitions(store):
        for each in await _find_unserved(server, page):
            found.setdefault(each.node, []).append(each.number)
    if not found:
        return Finding(Level.FINE, "all", "owners", "no item waits in a partition that needs an owner and has none")
    named = _listed([f"{node} ({_listed(numbers)})" for node, numbers in found.items()])
    return Finding(Level.WARNING, "all", "owners", f"items wait in partitions without an owner: {named}", _REMEDY)


def _listed(those: Sequence[object]) -> str:
    more = [f"and {len(those) - _NAMED} more"] if len(those) > _NAMED else []
    return ", ".join([*map(str, those[:_NAMED]), *more])


async def _partitions(store: NodeStore) -> AsyncIterator[list[Partition]]:
    """Yield the partitions that need owners, in pages."""
    first = 0
    while names := await store.names(first):
        first += len(names)
        records = await store.records(names)
        for page in in_pages(each for record in records if record.config.needs_owners for each in record.partitions):
            yield page


async def _find_unserved(server: Server, partitions: list[Partition]) -> list[Partition]:
    """Return the partitions in which items wait and that have no owner."""
    counts = [
        ("XLEN" if name == "log" else "HLEN", keys.of_partition(name, each))
        for each in partitions
        for name in ("log", *_NOT_WAITING)
    ]
    metas = [("HMGET", keys.of_partition("meta", each), "owner", "kept") for each in partitions]
    replies = await server.reads([*metas, *counts])
    # A key that somebody has written by hand reads as None.
    numbers = iter([reply or 0 for reply in replies[len(metas) :]])
    found = []
    for each, meta in zip(partitions, replies, strict=False):
        entries, *others = (next(numbers) for _ in ("log", *_NOT_WAITING))
        owner, kept = meta or (b"", 0)
        if not owner and entries - sum(others) - int(kept or 0) > 0:
            found.append(each)
    return found
