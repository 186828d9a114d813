"""Redis Cluster: learns which master serves which slots from any node that calls the cluster healthy.

All known nodes and the seeds are asked at once, so a dead or hanging node delays nothing. Must not send anything else.
"""

import math
from collections.abc import Callable, Sequence
from typing import Final

from redis.exceptions import RedisError

from broker.address import Address, read_node
from broker.model.problems import CoreUnavailable
from broker.redis_core.first_answer import FirstAnswer
from broker.redis_core.redis_client.cluster_router import Found
from broker.redis_core.redis_client.connections import Line
from broker.redis_core.redis_client.node import RedisNode, fault

_QUESTION: Final[Sequence[Line]] = (("CLUSTER INFO",), ("CLUSTER SLOTS",))


class Cluster:
    """The nodes of one cluster."""

    fresh_seconds: Final = math.inf
    """A node that is no longer master says so itself: MOVED."""

    def __init__(self, seeds: Sequence[Address], client_of: Callable[[Address], RedisNode]) -> None:
        """Begin with the seeds; connect to a node by `client_of`."""
        self._seeds = seeds
        self.client_of = client_of
        self._addresses: frozenset[Address] = frozenset()
        self._answers = FirstAnswer()

    async def find(self) -> Found:
        """Return each range of slots with its master; raises CoreUnavailable when no node knows."""
        last_fault = CoreUnavailable("no node of the cluster is known")
        for answer in self._answers.ask(self._ask(address) for address in {*self._seeds, *self._addresses}):
            try:
                found, self._addresses = await answer
            except CoreUnavailable as error:
                last_fault = error
            else:
                return found
        raise last_fault

    async def close(self) -> None:
        """Wait for outstanding answers."""
        await self._answers.close()

    async def _ask(self, address: Address) -> tuple[Found, frozenset[Address]]:
        node = self.client_of(address)
        try:
            state, slots = await node.send(_QUESTION)
        finally:
            await node.close()
        for reply in (state, slots):
            # A server that is no cluster node answers with an error.
            if isinstance(reply, RedisError):
                raise CoreUnavailable(str(reply), report=f"Redis at {address}: {fault(reply)}")
        if b"cluster_state:ok" not in state:
            msg = "the cluster is down"
            raise CoreUnavailable(msg)
        found = [(first, last, read_node(master, address.host)) for first, last, master, *_replicas in slots]
        return found, frozenset(read_node(node, address.host) for _first, _last, *nodes in slots for node in nodes)
