"""Counts of nodes, added up over their partitions, a bounded number of these at a time. Must not know who wants them."""

from collections.abc import Sequence
from itertools import groupby

from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Counted
from broker.redis_core.records.store import NodeStore, in_pages
from broker.redis_core.registry.merge import added_up


async def count_nodes(store: NodeStore, records: Sequence[NodeRecord]) -> dict[str, Counted]:
    """Return the counts by node; a node without a partition that can be counted is left out."""
    found: dict[str, Counted] = {}
    for page in in_pages(each for record in records for each in record.partitions):
        counts = await store.counts(page)
        for node, parts in groupby(counts, lambda partition: partition.node):
            before = [found[node]] if node in found else []
            found[node] = added_up([*before, *(counts[each] for each in parts)])
    return found
