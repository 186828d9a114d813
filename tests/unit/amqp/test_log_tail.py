"""The end of a log, polled for its readers: how soon again, and whom it wakes."""

import asyncio
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Refused, Replay, Result
from frontends.amqp.links import log_tail
from frontends.amqp.links.log_tail import LogTails
from tests.waiting import PATIENCE_SECONDS

if TYPE_CHECKING:
    from broker.model.core import Core


class _Reader:
    """A reader that counts how often it is woken."""

    sender = Jid("alice@example.org")
    after = "5"

    def __init__(self) -> None:
        """Sleep."""
        self.woken = 0

    def wake(self) -> None:
        """Count."""
        self.woken += 1


class _Polled:
    """A core that answers in order, and then never."""

    def __init__(self, answers: list[Result]) -> None:
        """Keep the answers."""
        self._answers = iter(answers)
        self.done = asyncio.Event()

    async def ask(self, _command: object) -> Result:
        """Answer."""
        for answer in self._answers:
            return answer
        self.done.set()
        await asyncio.Event().wait()
        raise AssertionError


@pytest.fixture
def pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the pauses before the polls, which take no time."""
    found: list[float] = []

    async def sleep(seconds: float) -> None:
        found.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(log_tail, "asyncio", SimpleNamespace(sleep=sleep))
    return found


def _read(latest: str) -> Replay:
    return Replay(0, (), "0", latest, latest, gap=False, more=False)


async def _polled(*answers: Result) -> int:
    """Poll until these answers are given, and return how often the reader was woken."""
    core, reader = _Polled(list(answers)), _Reader()
    tails = LogTails(cast("Core", core))
    tails.enter("log", 0, reader)
    try:
        await asyncio.wait_for(core.done.wait(), PATIENCE_SECONDS)
    finally:
        tails.leave("log", 0, reader)
    return reader.woken


async def test_idle(pauses: list[float]) -> None:
    """E16: a log without news is polled less and less often; news wake its readers, and it is polled soon again."""
    assert await _polled(*[_read("5")] * 9, _read("6"), _read("5")) == 1
    assert pauses[0] == pauses[10] < pauses[1] <= pauses[9] == max(pauses)


async def test_behind(pauses: list[float]) -> None:
    """Guarantee 6: a reader without credit stays behind, which is no news: the log is polled as seldom as one without."""
    assert await _polled(*[_read("6")] * 9) == 9
    behind, pauses[:] = pauses[:], []
    await _polled(*[_read("5")] * 9)
    assert behind[1:] == pauses[:-1]


@pytest.mark.parametrize(("problem", "woken"), [(Problem.UNAVAILABLE, 0), (Problem.NODE_GONE, 9)])
async def test_refused(pauses: list[float], problem: Problem, woken: int) -> None:
    """Guarantee 6: a log that cannot be read is not polled more often than one without news.

    A refusal that will pass is no news. Of any other, each reader finds the reason by its own read.
    """
    assert await _polled(*[Refused(problem)] * 9) == woken
    refused, pauses[:] = pauses[:], []
    await _polled(*[_read("5")] * 9)
    assert refused == pauses
