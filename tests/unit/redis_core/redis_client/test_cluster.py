"""What nodes of a cluster report, and which of them to believe."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from redis.exceptions import ResponseError

from broker.address import Address
from broker.model.problems import CoreUnavailable
from broker.redis_core.redis_client.cluster import Cluster
from broker.redis_core.redis_client.connections import Line
from broker.redis_core.redis_client.node import RedisNode, Unsent
from tests.waiting import PATIENCE_SECONDS

A, B, C = (Address(host, 1) for host in "abc")
WELL, ILL = b"cluster_state:ok\r\ncluster_slots_assigned:16384\r\n", b"cluster_state:fail\r\n"
SLOTS = [
    [0, 99, [b"?", 1, b"id", [b"ip", b"a"]], [b"c", 1, b"id", []]],
    [200, 299, [b"", 2, b"id", []], [None, 3, b"id", []]],
]
FOUND = [(0, 99, A), (200, 299, Address("b", 2))]
HANGS = "hangs"


class Told:
    """A node that answers as told, and records that it was closed."""

    def __init__(self, answer: Any) -> None:  # noqa: ANN401  (what Redis answers)
        """Take the answer: a fault is raised."""
        self._answer = answer
        self.closed = False

    async def send(self, _lines: Sequence[Line]) -> list[Any]:
        """Answer, or never."""
        if self._answer is HANGS:
            await asyncio.Event().wait()
        if isinstance(self._answer, CoreUnavailable):
            raise self._answer
        return list(self._answer)

    async def close(self) -> None:
        """Note it."""
        self.closed = True


class Met:
    """A cluster whose nodes answer as a test says; seeds are A and B."""

    def __init__(self, **answers: Any) -> None:  # noqa: ANN401  (what Redis answers)
        """Take the answers by host."""
        self.answers = answers
        self.asked: list[Address] = []
        self.told: list[Told] = []
        self.cluster = Cluster([A, B], self._meet)

    def _meet(self, address: Address) -> RedisNode:
        self.asked.append(address)
        self.told.append(Told(self.answers.get(address.host, Unsent("dead"))))
        return cast("RedisNode", self.told[-1])


@pytest.mark.parametrize(
    "other", [Unsent("dead"), (ILL, SLOTS[:1]), (ResponseError("ERR"), ResponseError("ERR")), HANGS], ids=str
)
async def test_one_that_knows(other: object) -> None:
    """One node that finds the cluster well is enough; without a host it means itself."""
    met = Met(a=other, b=(WELL, SLOTS))
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await met.cluster.find() == FOUND


async def test_all_are_asked_again() -> None:
    """Nodes of the last answer are asked as well: all seeds may be gone by then."""
    met = Met(b=(WELL, SLOTS))
    await met.cluster.find()
    met.answers = {"c": (WELL, SLOTS[:1])}
    met.asked.clear()
    assert await met.cluster.find() == FOUND[:1]
    assert set(met.asked) == {A, B, C, Address("b", 2), Address("b", 3)}
    await met.cluster.close()
    assert all(each.closed for each in met.told)


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        ((ILL, SLOTS), "the cluster is down"),
        ((ResponseError("ERR disabled"), ResponseError("ERR disabled")), "disabled"),
    ],
    ids=["ill", "none"],
)
async def test_nobody_knows(answer: object, why: str) -> None:
    """A cluster that is down, or none, is reported as such."""
    with pytest.raises(CoreUnavailable, match=why):
        await Met(a=answer, b=answer).cluster.find()
