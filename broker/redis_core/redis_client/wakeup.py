"""How a process that cannot send wakes one frontend at once: frontends wait at a list in Redis (BLPOP).

One frontend takes each wake-up; if all are busy, the next one that waits takes it. A lost wake-up costs half a second at most,
until the next heartbeat. Must not know what there is to do.
"""

from typing import Final

from broker import keys
from broker.redis_core.redis_client.client import Server

_WAIT_SECONDS: Final = 5.0


class Wakeup:
    """Waits for wake-ups."""

    def __init__(self, server: Server, timeout: float) -> None:
        """Wait through `server`, whose answers are due within `timeout` seconds."""
        self._server = server
        self._seconds = min(_WAIT_SECONDS, timeout / 2)

    async def wait(self) -> bool:
        """Wait for a while and return whether a wake-up came. Raises CoreUnavailable."""
        return await self._server.wait("BLPOP", keys.of_service("wakeup"), str(self._seconds)) is not None
