"""The record of one node as this frontend knows it, shared by the pipelines of the node's partitions.

It may be old at any time: every script is told its revision and refuses to act on an old one. Must not know pipelines.
"""

from broker.model.nodes import NodeRecord
from broker.redis_core.records.store import NodeStore


class NodeCache:
    """A node's record, read when it is first asked for."""

    def __init__(self, node: str, store: NodeStore) -> None:
        """Know nothing yet of `node`."""
        self.node = node
        self.record: NodeRecord | None = None
        self._newest: NodeRecord | None = None
        self.store = store

    async def read(self) -> NodeRecord | None:
        """Give the record; None when there is no such node. Raises CoreUnavailable or CorruptRecord."""
        return self.record or await self.renew()

    async def renew(self) -> NodeRecord | None:
        """Read the record anew."""
        found = await self.store.read(self.node)
        if found and self._newest and _went_back(self._newest, found):
            # Either this was read before the newest, or Redis has lost what was changed last: the script can tell.
            await self.store.advance(found, self._newest.revision, self._newest.config.partitions)
            found = await self.store.read(self.node)
        self._newest = found
        self.record = found and found.with_admins(self.store.admins)
        # As it was read: while others wait for Redis, somebody may have it forgotten.
        return self.record

    def met(self, record: NodeRecord) -> None:
        """Take the record as somebody has just read it."""
        self.record = record.with_admins(self.store.admins)

    def forget(self) -> None:
        """Read it anew when it is next asked for."""
        self.record = None


def _went_back(newest: NodeRecord, found: NodeRecord) -> bool:
    """Tell whether a record is older than one of the same life that was read before; a node never has fewer partitions."""
    if newest.incarnation != found.incarnation:
        return False
    return found.revision < newest.revision or found.config.partitions < newest.config.partitions
