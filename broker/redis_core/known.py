"""One node's record as this frontend knows it, shared by the lanes of the node's partitions.

It may be old at any time: every script is told its revision and refuses to act on an old one. Must not know lanes.
"""

from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.redis_core.directory import Directory
from broker.redis_core.nodes import with_admins


class Known:
    """A node's record, read when it is first asked for."""

    def __init__(self, node: str, directory: Directory, admins: frozenset[Jid]) -> None:
        """Know nothing yet of `node`."""
        self.node = node
        self.record: NodeRecord | None = None
        self.directory = directory
        self._admins = admins

    async def read(self) -> NodeRecord | None:
        """Give the record; None when there is no such node. Raises CoreUnavailable or CorruptRecord."""
        return self.record or await self.renew()

    async def renew(self) -> NodeRecord | None:
        """Read the record anew."""
        found = await self.directory.read(self.node)
        self.record = found and with_admins(found, self._admins)
        # As it was read: while others wait for Redis, somebody may have it forgotten.
        return self.record

    def forget(self) -> None:
        """Read it anew when it is next asked for."""
        self.record = None
