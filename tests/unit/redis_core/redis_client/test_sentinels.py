"""Which master the sentinels name, when they disagree, know nothing or hang."""

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest
from redis.exceptions import ResponseError

from broker.address import Address
from broker.model.problems import CoreUnavailable
from broker.redis_core.redis_client.connections import Line
from broker.redis_core.redis_client.node import RedisNode, Unsent
from broker.redis_core.redis_client.sentinel import Sentinels
from tests.waiting import PATIENCE_SECONDS

OLD, NEW = [b"127.0.0.1", b"1"], [b"127.0.0.1", b"2"]
HANGS = "hangs"


class Told:
    """A sentinel that answers what it is told."""

    def __init__(self, answer: Any) -> None:  # noqa: ANN401  (what Redis answers)
        """Take the answer: a fault is raised."""
        self._answer = answer

    async def send(self, lines: Sequence[Line]) -> list[Any]:
        """Answer, or never."""
        assert list(lines) == [("SENTINEL GET-MASTER-ADDR-BY-NAME", "jobs")]
        if self._answer is HANGS:
            await asyncio.Event().wait()
        if isinstance(self._answer, CoreUnavailable):
            raise self._answer
        return [self._answer]


def sentinels(*answers: Any) -> Sentinels:  # noqa: ANN401  (what Redis answers)
    """Make sentinels that answer so."""
    return Sentinels("jobs", [cast("RedisNode", Told(answer)) for answer in answers], cast("Any", None))


@pytest.mark.parametrize(
    "answers",
    [
        (NEW,),
        (NEW, OLD, NEW),
        (OLD, NEW, NEW),
        (NEW, Unsent("dead"), Unsent("dead")),
        (None, NEW, ResponseError("ERR unknown command")),
        (HANGS, NEW, NEW),
    ],
    ids=str,
)
async def test_most_of_them(answers: Sequence[Any]) -> None:
    """The master is the one that most name; the dead, strangers and those without the service do not count."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await sentinels(*answers).find() == [(0, 16_383, Address("127.0.0.1", 2))]


@pytest.mark.parametrize("answers", [(None, None), (Unsent("dead"), ResponseError("ERR"))], ids=str)
async def test_none_of_them(answers: Sequence[Any]) -> None:
    """When none knows a master there is none."""
    with pytest.raises(CoreUnavailable, match="no sentinel knows a master of 'jobs'"):
        await sentinels(*answers).find()
