"""Redis Cluster: learns which master serves which slots, from any node that says that the cluster is well.

All known nodes and the seeds are asked at once, so none that is dead or hangs delays the answer. Must not send anything else.
"""

import asyncio
import math
from collections.abc import Callable, Sequence
from typing import Any, Final

from redis.exceptions import RedisError

from broker.model.problems import CoreUnavailable
from broker.redis_core.master import Line, Master, fault
from broker.redis_core.masters import Found
from broker.redis_url import Address

_QUESTION: Final[Sequence[Line]] = (("CLUSTER INFO",), ("CLUSTER SLOTS",))


class Cluster:
    """The nodes of one cluster."""

    fresh_seconds: Final = math.inf
    """Who is no master any more says so: MOVED."""

    def __init__(self, seeds: Sequence[Address], meet: Callable[[Address], Master]) -> None:
        """Begin with the nodes that somebody has named; reach any by `meet`."""
        self._seeds = seeds
        self.meet = meet
        self._known: frozenset[Address] = frozenset()
        self._asked: set[asyncio.Task[Any]] = set()

    async def find(self) -> Found:
        """Give each range of slots with its master; raises CoreUnavailable when no node can say."""
        asked = [asyncio.ensure_future(self._ask(address)) for address in {*self._seeds, *self._known}]
        # Nobody waits for those that answer later, or never; what is under way must not be cancelled (redis-py #2624).
        self._asked.update(asked)
        for each in asked:
            each.add_done_callback(self._done)
        trouble = CoreUnavailable("no node of the cluster is known")
        for answer in asyncio.as_completed(asked):
            try:
                found, self._known = await answer
            except CoreUnavailable as error:
                trouble = error
            else:
                return found
        raise trouble

    def _done(self, asked: "asyncio.Task[Any]") -> None:
        self._asked.discard(asked)
        if not asked.cancelled():
            asked.exception()

    async def close(self) -> None:
        """Wait for who has not answered yet."""
        await asyncio.gather(*self._asked, return_exceptions=True)

    async def _ask(self, address: Address) -> tuple[Found, frozenset[Address]]:
        node = self.meet(address)
        try:
            state, slots = await node.send(_QUESTION)
        finally:
            await node.close()
        if isinstance(slots, RedisError):
            # Whoever is no node of a cluster says so.
            raise CoreUnavailable(str(fault(slots)))
        if b"cluster_state:ok" not in state:
            msg = "the cluster is down"
            raise CoreUnavailable(msg)
        found = [(first, last, _address(master, address)) for first, last, master, *_replicas in slots]
        return found, frozenset(_address(node, address) for _first, _last, *nodes in slots for node in nodes)


def _address(node: Sequence[Any], asked: Address) -> Address:
    """Read an address; who does not know its own is where it was asked."""
    return Address(node[0].decode() if node[0] else asked.host, int(node[1]))
