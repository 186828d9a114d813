"""Drops libraries of functions that no version uses: each frontend names its own now and then, and drops unnamed ones.

A frontend loads a missing library again, so a wrong drop costs one load. Heartbeats do not name libraries: that would be
two writes a second for each frontend, and a drop asks all masters anyway. Must not know what is in a library.
"""

import time
from typing import Final

import structlog

from broker import keys
from broker.model.problems import Forbidden, OperationDefect
from broker.redis_core.redis_client.client import Server, Value
from broker.redis_core.redis_client.packages import library_field
from broker.scripts.packaging import DIGEST, family

log = structlog.get_logger()

KEPT_MS: Final = 86_400_000
"""How long a library stays after it was last named."""

_EVERY_SECONDS: Final = 3_600.0


class Libraries:
    """The libraries of all versions."""

    def __init__(self, server: Server) -> None:
        """Do nothing until asked to."""
        self._server = server
        self._next = 0.0

    async def tidy(self) -> None:
        """Once an hour, name the library in use and drop those unnamed for a day. Raises CoreUnavailable."""
        if time.monotonic() < self._next:
            return
        self._next = time.monotonic() + _EVERY_SECONDS
        try:
            await self._tidy()
        except (Forbidden, OperationDefect):
            # The user may not use functions, or another frontend has dropped one just now: the next call does the rest.
            return

    async def _tidy(self) -> None:
        server, named = self._server, keys.of_service("libraries")
        # The pattern excludes the library for redis-cli and libraries of other programs, and of services with other prefixes.
        told = await server.everywhere("FUNCTION LIST", "LIBRARYNAME", family(keys.prefix()) + "[0-9a-f]" * DIGEST)
        there = {library_field(each, b"library_name").decode() for found in told.values() for each in found}
        if not there:
            return
        seconds, _micros = await server.command("TIME")
        now = int(seconds) * 1000
        # A library that is seen for the first time may have been loaded just now.
        lines: list[tuple[Value, ...]] = [("ZADD", named, "NX", now, name) for name in sorted(there)]
        if server.library in there:
            lines.append(("ZADD", named, now, server.library))
        *_, unused = await server.commands([*lines, ("ZRANGEBYSCORE", named, "-inf", now - KEPT_MS)])
        for name in (each.decode() for each in unused):
            if name in there:
                await server.everywhere("FUNCTION DELETE", name)
                log.info("unused library dropped", library=name)
            await server.command("ZREM", named, name)
