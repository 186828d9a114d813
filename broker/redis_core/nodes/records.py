"""The records that several handlers use, as one value."""

from broker.model.frozen import frozen
from broker.redis_core.quotas.stored import Quotas
from broker.redis_core.records.store import NodeStore
from broker.redis_core.records.tree import Tree


@frozen
class Records:
    """The records of nodes, of the tree between them, and of owners' quotas."""

    store: NodeStore
    tree: Tree
    quotas: Quotas
