"""The memory of each Redis: how full it is, and whether it would drop what the queue holds. Must not know what it holds."""

from broker.model.problems import Forbidden
from broker.redis_core.metrics import Metrics
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.diagnostics import Finding, evicting
from broker.redis_core.redis_client.failure_log import FailureLog


class Memory:
    """What the masters say of their memory."""

    def __init__(self, server: Server, metrics: Metrics) -> None:
        """Ask over the connections there are."""
        self._server = server
        self._metrics = metrics
        self._unknown = FailureLog("the memory of Redis is not known")

    async def measure(self) -> None:
        """Set the gauges."""
        try:
            self._metrics.memory((await self._told()).values())
        except Forbidden as error:
            # Its user may not ask: all else goes on.
            self._unknown.report(error)
        else:
            self._unknown.recovered()

    async def evicting(self) -> list[Finding]:
        """Find the masters that would drop what the queue holds; raises CoreUnavailable."""
        return evicting(await self._told())

    async def _told(self) -> dict[str, bytes]:
        return await self._server.everywhere("INFO", "memory")
