"""Watches the memory of each Redis: how full it is, and whether it would evict keys. Must not know which keys there are."""

from broker.model.problems import Forbidden
from broker.redis_core.metrics import Metrics
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.diagnostics import Finding, evicting
from broker.redis_core.redis_client.failure_log import FailureLog


class Memory:
    """The masters' reports of their memory."""

    def __init__(self, server: Server, metrics: Metrics) -> None:
        """Ask through `server`."""
        self._server = server
        self._metrics = metrics
        self._failures = FailureLog("the memory of Redis is not known")

    async def measure(self) -> None:
        """Set the gauges."""
        try:
            self._metrics.memory((await self._reports()).values())
        except Forbidden as error:
            # The user may not ask; everything else works.
            self._failures.report(error)
        else:
            self._failures.note_success()

    async def evicting(self) -> list[Finding]:
        """Return the masters that would evict keys; raises CoreUnavailable."""
        return evicting(await self._reports())

    async def _reports(self) -> dict[str, bytes]:
        return await self._server.everywhere("INFO", "memory")
