"""Redis Sentinel: asks the sentinels for the master before each new connection to it.

So nothing is written to an old master that was away and does not know yet that it was replaced. redis-py asks one sentinel, by
a command (SENTINEL MASTERS) that during a failover may still name the old master. Must not know what is sent.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from redis.asyncio.connection import AbstractConnection
from redis.crc import REDIS_CLUSTER_HASH_SLOTS
from redis.exceptions import ConnectionError as RedisConnectionError

from broker.address import Address
from broker.model.problems import CoreUnavailable
from broker.redis_core.first_answer import FirstAnswer
from broker.redis_core.redis_client.cluster_router import Found
from broker.redis_core.redis_client.node import SENTINEL, RedisNode

if TYPE_CHECKING:
    from broker.redis_core.redis_client.connections import Line


class SentinelNode(RedisNode):
    """One sentinel."""

    kind = SENTINEL


class Sentinels:
    """The sentinels that watch one service."""

    fresh_seconds: Final = 0.5
    """A live master that was replaced may learn of it ten seconds later, so clients must ask."""

    def __init__(self, service: str, sentinels: Sequence[RedisNode], client_of: Callable[..., RedisNode]) -> None:
        """Ask these sentinels; `client_of` makes a client of the master from its address and a greeting for its connections."""
        self._question: Line = ("SENTINEL GET-MASTER-ADDR-BY-NAME", service)
        self._service = service
        self._sentinels = sentinels
        self._client_of = client_of
        self._answers = FirstAnswer()

    async def find(self) -> Found:
        """Return the master that most sentinels name, for all slots. Raises CoreUnavailable when none knows one."""
        named, last_fault = Counter[Address](), CoreUnavailable("there is none")
        for answer in self._answers.ask(self._ask(sentinel) for sentinel in self._sentinels):
            try:
                named[await answer] += 1
            except CoreUnavailable as error:
                last_fault = error
                continue
            # More than half agree: do not wait for hanging ones.
            if 2 * max(named.values()) > len(self._sentinels):
                break
        if not named:
            msg = f"no sentinel knows a master of {self._service!r}"
            raise CoreUnavailable(msg, report=f"{msg}: {last_fault}")
        return [(0, REDIS_CLUSTER_HASH_SLOTS - 1, named.most_common(1)[0][0])]

    async def _ask(self, sentinel: RedisNode) -> Address:
        (named,) = await sentinel.send([self._question])
        if not isinstance(named, list):
            # A sentinel that does not watch the service answers None; a server that is no sentinel, an error.
            msg = "it watches no master of that name" if named is None else str(named)
            raise CoreUnavailable(msg)
        return Address(named[0].decode(), int(named[1]))

    def client_of(self, address: Address) -> RedisNode:
        """Make a client of the master; each new connection checks that the sentinels and the master itself confirm its role."""

        async def greet(connection: AbstractConnection) -> None:
            try:
                _first, _last, master = (await self.find())[0]
            except CoreUnavailable as error:
                raise RedisConnectionError(str(error)) from error
            if master != address:
                msg = "another is the master now"
                raise RedisConnectionError(msg)
            await connection.on_connect()
            await connection.send_command("ROLE")
            if (await connection.read_response())[0] != b"master":
                msg = "the node is no longer the master"
                raise RedisConnectionError(msg)

        return self._client_of(address, greet)

    async def close(self) -> None:
        """Close the connections to the sentinels."""
        await self._answers.close()
        for sentinel in self._sentinels:
            await sentinel.close()
