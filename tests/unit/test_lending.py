"""How credit is looked for: everybody in need at once, and nobody asked in vain again and again."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from broker.redis_core.credit import Deposit, Gift, Withdraw, Withdrawn
from broker.redis_core.internal import Outcome
from broker.redis_core.lending import DOUBTED, Lending

COUNT = 300


class Partitions:
    """Partitions with some credit to spare; keeps count of who was asked and who was given how much."""

    def __init__(self) -> None:
        """Begin with nothing to spare."""
        self.spare: Counter[int] = Counter()
        self.asked: Counter[int] = Counter()
        self.given: Counter[int] = Counter()
        self.tasks: set[asyncio.Task[Any]] = set()
        self.lending = Lending("node", self.ask, lambda _command: None, self.board, self.background)

    def ask(self, number: int, command: Any) -> asyncio.Future[Outcome]:  # noqa: ANN401  (any that a partition takes)
        """Answer at once."""
        future: asyncio.Future[Outcome] = asyncio.get_running_loop().create_future()
        gifts: tuple[Gift, ...] = ()
        if isinstance(command, Deposit):
            self.given[number] += command.amount
        if isinstance(command, Withdraw):
            self.asked[number] += 1
            amount = min(command.most, self.spare[number])
            self.spare[number] -= amount
            gifts = (Gift("1", "7", amount),) if amount else ()
        future.set_result(Withdrawn(gifts))
        return future

    async def board(self, _rows: list[dict[str, Any]]) -> list[list[int]]:
        """Know of nobody else in need."""
        return []

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Begin it at once."""
        task = asyncio.get_running_loop().create_task(work())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def settled(self) -> None:
        """Wait until nothing is under way."""
        while self.tasks:
            await asyncio.gather(*self.tasks)

    def in_need(self, *numbers: int, wanted: int = 1) -> None:
        """Let partitions say that they want credit."""
        for number in numbers:
            self.lending.learned(number, COUNT, [wanted, 0, 0, [], [], [], []])


@pytest.fixture
async def partitions() -> Partitions:
    """Give partitions without credit."""
    return Partitions()


async def test_nobody_is_asked_for_each_in_need(partitions: Partitions) -> None:
    """X7: a backlog without credit costs one question to each partition, and with each breath a few; not one for each in need."""
    partitions.in_need(*range(100))
    await partitions.settled()
    assert sum(partitions.asked.values()) <= COUNT
    partitions.in_need(*range(100))
    for breath in range(1, 4):
        partitions.asked.clear()
        partitions.lending.breathe()
        await partitions.settled()
        assert sum(partitions.asked.values()) <= DOUBTED, breath


async def test_all_are_asked_in_time(partitions: Partitions) -> None:
    """What others freed unheard is found: every partition is asked again, a part of them with each breath."""
    partitions.in_need(3)
    await partitions.settled()
    partitions.spare[217] = 1
    for _breath in range(-(-COUNT // DOUBTED)):
        partitions.lending.breathe()
        await partitions.settled()
    assert partitions.given == {3: 1}


async def test_shared_evenly_and_the_rest_returned(partitions: Partitions) -> None:
    """Guarantee 3: what a partition could spare is shared by those in need, and nothing of it is lost or made."""
    partitions.spare.update({200: 7, 201: 7})
    partitions.in_need(0, 1, 2, wanted=3)
    await partitions.settled()
    assert [partitions.given[number] for number in (0, 1, 2)] == [3, 3, 3]
    assert partitions.given.total() + partitions.spare.total() == 14


async def test_what_has_credit_is_not_in_need(partitions: Partitions) -> None:
    """A partition that was thought to be in need and could spare some is given none of it back as a gift to itself."""
    partitions.in_need(0)
    await partitions.settled()
    partitions.in_need(1)
    await partitions.settled()
    partitions.spare[0] = 1
    for _breath in range(-(-COUNT // DOUBTED)):
        partitions.lending.breathe()
        await partitions.settled()
    assert partitions.given == {1: 1}
