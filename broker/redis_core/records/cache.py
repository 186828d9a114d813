"""A frontend's cached record of one node, shared by the pipelines of its partitions.

The cached record may be old: every operation receives its revision and refuses to act on an old one. Must not know pipelines.
"""

from broker.model.nodes.nodes import NodeRecord
from broker.redis_core.records.store import NodeStore


class NodeCache:
    """A node's record, read when first needed."""

    def __init__(self, node: str, store: NodeStore) -> None:
        """Begin without a record of `node`."""
        self.node = node
        self.record: NodeRecord | None = None
        self._newest: NodeRecord | None = None
        self.store = store

    async def read(self) -> NodeRecord | None:
        """Return the record; None when there is no such node. Raises CoreUnavailable or CorruptRecord."""
        return self.record or await self.renew()

    async def renew(self) -> NodeRecord | None:
        """Read the record from Redis."""
        found = await self.store.read(self.node)
        if found and self._newest and _is_older(self._newest, found):
            # Either this read is older than the newest one, or Redis has lost the last change: the operation decides which.
            await self.store.advance(found, self._newest.revision)
            found = await self.store.read(self.node)
        self._newest = found
        self.record = found and found.add_roles(self.store.roles)
        # Return this read: another task may forget the record while others wait for Redis.
        return self.record

    def store_record(self, record: NodeRecord) -> None:
        """Cache a record that was just read elsewhere."""
        self.record = record.add_roles(self.store.roles)

    def forget(self) -> None:
        """Drop the record; the next caller reads it again."""
        self.record = None


def _is_older(newest: NodeRecord, record: NodeRecord) -> bool:
    """Return whether a record is older than one of the same incarnation."""
    return newest.incarnation == record.incarnation and record.revision < newest.revision
