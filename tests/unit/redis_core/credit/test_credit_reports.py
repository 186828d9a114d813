"""Which coordinators are asked for credit, and when: a partition that wants some must not be forgotten."""

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

import pytest

from broker.model.names import Partition
from broker.model.problems import CoreUnavailable
from broker.redis_core.commands.credit import CreditReport, HeldCredit
from broker.redis_core.credit.collections import OWN, CreditReports

JOBS = Partition("jobs", "i1", 1)
ABOVE = "7:all@i2/0"


class Coordinators:
    """The node's own coordinator and that of a collection above it, which answer when a test says so."""

    def __init__(self) -> None:
        """Begin with nobody asked."""
        self.asked: list[str] = []
        self.answers: asyncio.Queue[int | Exception | None] = asyncio.Queue()
        self.swept: list[int] = []
        self.tasks: list[asyncio.Task[Any]] = []
        own: Any = SimpleNamespace(deliver=list, report=lambda *_: None, request_credit=lambda _: self._ask(OWN))
        above = SimpleNamespace(request_credit=lambda pool, *_: self._ask(pool), on_report=lambda *_: None)
        routers = cast("Any", lambda _node: SimpleNamespace(pool=above))
        self.reports = CreditReports(own, routers, self._background, self.swept.append)

    async def _ask(self, pool: str) -> int | None:
        self.asked.append(pool)
        answer = await self.answers.get()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def _background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        self.tasks.append(asyncio.ensure_future(work()))

    def report(self, version: int, wanted: int = 1, *granted_by: str) -> None:
        """Let a script say how much is wanted, and whose grants it had."""
        rows = tuple(HeldCredit("5", 1, version, pool) for pool in granted_by)
        pools = (ABOVE,) if wanted else ()
        self.reports.handle(JOBS, 2, CreditReport(version, wanted, "1" if wanted else "", "A", rows, pools, ()))

    async def answer(self, granted: int | Exception | None) -> None:
        """Answer the next question, and let it have its effect."""
        self.answers.put_nowait(granted)
        for _ in range(5):
            await asyncio.sleep(0)


async def test_one_after_another() -> None:
    """Each coordinator is asked once for a demand, until one has enough."""
    some = Coordinators()
    some.report(1)
    some.report(2)
    for _ in range(2):
        await some.answer(0)
    some.report(3)
    await some.answer(0)
    assert some.asked == [OWN, ABOVE]


async def test_granted_while_others_are_asked() -> None:
    """Q35: a coordinator whose grant was used while another was asked is asked again, for it knows of no demand any more."""
    some = Coordinators()
    some.report(1, 2)
    await some.answer(0)
    some.report(2, 1, OWN)
    await some.answer(0)
    assert some.asked == [OWN, ABOVE, OWN]


async def test_nothing_wanted_any_more() -> None:
    """Nobody is asked again for a demand that ended while others were asked."""
    some = Coordinators()
    some.report(1, 2)
    await some.answer(0)
    some.report(2, 1, OWN)
    some.report(3, 0)
    await some.answer(0)
    assert some.asked == [OWN, ABOVE]


@pytest.mark.parametrize("fault", [None, CoreUnavailable("away")])
async def test_a_coordinator_that_cannot_be_asked(fault: Exception | None) -> None:
    """Guarantee 3: a coordinator that could not be told is told after the next sweep, and others are asked meanwhile."""
    some = Coordinators()
    some.report(1)
    await some.answer(fault)
    await some.answer(0)
    some.reports.tick()
    assert some.swept == [1]
    some.report(2)
    await some.answer(0)
    assert some.asked == [OWN, ABOVE, OWN]
