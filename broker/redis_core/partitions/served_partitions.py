"""The partitions that may hand something to this frontend, in Redis under its name: if it dies, others look at these alone.

A partition is noted before the first call that may hand something out, so that none is missed, whenever the frontend dies. Must
not know what was handed out.
"""

import asyncio
import time
from collections.abc import Iterable
from typing import Final

from broker import keys
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable
from broker.redis_core.redis_client.client import Server, Value
from broker.tasks import start

KEPT_SECONDS: Final = 86_400
"""How long the notes of a process are kept after it has ended: others take over from it long before."""

RENEW_SECONDS: Final = 3_600
"""How often a process writes all its notes again; those that it did not write twice are removed."""

_KEY: Final = "served_partitions"
_PAUSE_SECONDS: Final = 5.0
_AT_ONCE: Final = 1_000


class ServedPartitions:
    """The notes of one frontend."""

    def __init__(self, server: Server, frontend: str) -> None:
        """Begin without notes."""
        self._server = server
        self._name = keys.of_process(_KEY, frontend)
        self._noted: set[Partition] = set()
        self._wanted: set[Partition] = set()
        self._noting: asyncio.Task[None] | None = None
        self._renewed = time.monotonic()
        self._again_at = float("-inf")

    @property
    def noted(self) -> list[Partition]:
        """All that are noted now."""
        return list(self._noted)

    async def note(self, partition: Partition) -> None:
        """Note a partition; all that come up in one turn of the event loop are noted together. Raises CoreUnavailable.

        For a while after a failure it fails at once: the master with the notes may be away alone, and no call waits for it.
        """
        if time.monotonic() < self._again_at:
            msg = "notes of served partitions failed a moment ago"
            raise CoreUnavailable(msg)
        self._wanted.add(partition)
        if self._noting is None:
            self._noting = start(self._note_wanted())
        await asyncio.shield(self._noting)

    async def _note_wanted(self) -> None:
        wanted, self._wanted, self._noting = self._wanted, set(), None
        try:
            await self._write(wanted)
        except CoreUnavailable:
            self._again_at = time.monotonic() + _PAUSE_SECONDS
            raise
        self._noted |= wanted

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Let the notes of these go, since all that they have handed out is sent; whoever calls there notes them again."""
        self._noted.difference_update(partitions)

    async def renew(self) -> None:
        """Write all notes again, since Redis may have lost some, and remove old ones. Raises CoreUnavailable."""
        self._renewed = time.monotonic()
        try:
            await self._write(self._noted)
            await self._run(2 * RENEW_SECONDS)
        except BaseException:
            self.doubt()
            raise

    def doubt(self) -> None:
        """Let the notes be renewed soon: Redis may have lost some."""
        self._renewed = float("-inf")

    @property
    def due(self) -> bool:
        """Whether the notes are to be renewed."""
        return time.monotonic() - self._renewed > RENEW_SECONDS

    async def _write(self, partitions: Iterable[Partition]) -> None:
        names = list(map(str, partitions))
        for first in range(0, len(names), _AT_ONCE):
            await self._run("", names[first : first + _AT_ONCE])

    async def _run(self, old_seconds: int | str, names: Iterable[str] = ()) -> None:
        fixed: dict[str, Value] = {"now": "", "keep_seconds": KEPT_SECONDS, "old_seconds": old_seconds}
        rows = [{"partition": name} for name in names]
        await self._server.run(self._server.write_call("note_served", [self._name], fixed, rows))

    async def clear(self) -> None:
        """Remove all notes of a frontend that has nothing to be taken over. Raises CoreUnavailable."""
        await self._server.command("UNLINK", self._name)

    async def of(self, frontend: str) -> list[Partition]:
        """Return the partitions that may have handed something to another frontend. Raises CoreUnavailable."""
        name, found = keys.of_process(_KEY, frontend), list[Partition]()
        while some := await self._server.command("ZRANGE", name, len(found), len(found) + _AT_ONCE - 1):
            found += [Partition.parse(each.decode()) for each in some]
        return found
