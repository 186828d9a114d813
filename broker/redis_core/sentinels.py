"""Redis Sentinel: asks the sentinels who is the master, and again before each new connection to it.

So nothing is written to one that was master, was away and does not know yet that it is none. Must not know what is sent.
"""

from collections.abc import Callable, Sequence
from typing import Final

from redis.asyncio.connection import AbstractConnection
from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError
from redis.maint_notifications import MaintNotificationsConfig

from broker.model.problems import CoreUnavailable
from broker.redis_core.master import Master
from broker.redis_core.masters import Found
from broker.redis_url import Address


class Sentinels:
    """The sentinels that watch one service."""

    fresh_seconds: Final = 0.5
    """A master that was replaced while it lives hears of it as late as ten seconds after: clients have to ask."""

    def __init__(self, seeds: Sequence[Address], service: str, meet: Callable[..., Master], timeout: float) -> None:
        """Name the sentinels to ask, each of which answers within `timeout` seconds or not at all."""
        self._service = service
        self._meet = meet
        self._sentinel = Sentinel(  # type: ignore[no-untyped-call]
            seeds,
            sentinel_kwargs={
                "socket_timeout": timeout,
                "socket_connect_timeout": timeout,
                "retry": Retry(NoBackoff(), 0),
                "maint_notifications_config": MaintNotificationsConfig(enabled=False),
            },
        )

    async def find(self) -> Found:
        """Give the master for all slots; raises CoreUnavailable when no sentinel knows one that is up."""
        try:
            return [(0, REDIS_CLUSTER_HASH_SLOTS - 1, await self._master())]
        except (RedisError, OSError, TimeoutError) as error:
            msg = f"no sentinel knows a master of {self._service!r} that is up"
            raise CoreUnavailable(msg) from error

    def meet(self, address: Address) -> Master:
        """Make what reaches the master: each new connection goes on only if the sentinels call him so, and he agrees."""

        async def greet(connection: AbstractConnection) -> None:
            if await self._master() != address:
                msg = "another is the master now"
                raise RedisConnectionError(msg)
            await connection.on_connect()
            await connection.send_command("ROLE")
            if (await connection.read_response())[0] != b"master":
                msg = "the master is none any more"
                raise RedisConnectionError(msg)

        return self._meet(address, greet)

    async def _master(self) -> Address:
        return Address(*await self._sentinel.discover_master(self._service))

    async def close(self) -> None:
        """Close the connections to the sentinels."""
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()
