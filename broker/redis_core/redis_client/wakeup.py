"""How a process that cannot send wakes one frontend at once: a list in Redis at which frontends wait.

A list that frontends wait at, so that each ring is heard by one of them, and by the next to come when all are busy. Nothing
depends on it: what a lost ring was for is found half a second later. Must not know what there is to do.
"""

from typing import Final

from broker import keys
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.connections import Line

_WAIT_SECONDS: Final = 5.0


def wakeup_commands() -> list[Line]:
    """Give the commands that ring; many rings that nobody has heard are one."""
    wakeup = keys.of_service("wakeup")
    return [("RPUSH", wakeup, "1"), ("LTRIM", wakeup, -1, -1)]


class Wakeup:
    """Where a frontend waits."""

    def __init__(self, server: Server, timeout: float) -> None:
        """Wait by `server`, whose answers are due within `timeout` seconds."""
        self._server = server
        self._seconds = min(_WAIT_SECONDS, timeout / 2)

    async def wait(self) -> bool:
        """Wait for a while; tells whether it has rung. Raises CoreUnavailable."""
        return await self._server.wait("BLPOP", keys.of_service("wakeup"), str(self._seconds)) is not None
