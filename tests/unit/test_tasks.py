"""Background tasks: whatever happens to one, whoever waits for it gets one answer."""

import asyncio
from typing import Any

import pytest

from broker import tasks
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Refused
from broker.tasks import FAILED, STOPPED, Answer, Request, Tasks, keep_running, serve, then
from tests.waiting import PATIENCE_SECONDS


async def fails(error: BaseException | None) -> str:
    """Fail with an error, or return."""
    await asyncio.sleep(0)
    if error is not None:
        raise error
    return "done"


def broken(*_about: Any) -> None:  # noqa: ANN401  (takes anything)
    """Be a step that fails."""
    msg = "broken"
    raise RuntimeError(msg)


def test_one_answer() -> None:
    """Guarantee 8: the first answer counts, and one that cannot be delivered disturbs nobody."""
    heard: list[Any] = []
    answer = Answer(heard.append)
    answer("first")
    answer("second")
    Answer(broken)("third")
    assert heard == ["first"]


def test_passed_on() -> None:
    """Guarantee 8: a command that is passed on is answered from there alone, or else here."""
    heard: list[Any] = []
    request = Request("command", heard.append)
    request.pass_on(lambda command, reply: reply(f"{command} done"))
    request(FAILED)
    Request("command", heard.append).pass_on(broken)
    assert heard == ["command done", FAILED]


def test_a_step_that_fails() -> None:
    """Guarantee 8: an outcome that cannot be processed is an answer all the same."""
    heard: list[Any] = []
    then(heard.append, broken, "about")("outcome")
    then(heard.append, lambda about, reply, outcome: reply(about + outcome), "a")("b")
    assert heard == [FAILED, "ab"]


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (None, "done"),
        (CoreUnavailable("away", Problem.TIMED_OUT), Refused(Problem.TIMED_OUT, "away")),
        (RuntimeError("broken"), FAILED),
        (asyncio.CancelledError(), STOPPED),
    ],
    ids=repr,
)
async def test_works_are_answered(error: BaseException | None, answer: object) -> None:
    """Guarantee 8: whatever a task comes to is answered once."""
    kept, heard = Tasks(), asyncio.Queue[Any]()
    kept.answer(fails(error), heard.put_nowait)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await heard.get() == answer
    await asyncio.sleep(0)
    assert heard.empty() and not kept


@pytest.mark.parametrize("turns", [0, 1, 2])
async def test_cancelled_works_are_answered(turns: int) -> None:
    """Guarantee 8: a cancelled task is answered, also when it had not begun."""
    kept, heard = Tasks(), asyncio.Queue[Any]()
    kept.answer(asyncio.sleep(60), heard.put_nowait)
    kept.background(lambda: asyncio.sleep(60))
    for _ in range(turns):
        await asyncio.sleep(0)
    kept.cancel()
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert await heard.get() == STOPPED
    await asyncio.sleep(0)
    assert not kept


async def test_a_peer_is_told() -> None:
    """Guarantee 8: a failed task of one peer is reported, so that the peer is not left attached to nothing."""
    heard = asyncio.Queue[Exception]()

    async def works() -> None:
        await fails(RuntimeError("broken"))

    serve(works(), heard.put_nowait)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert str(await heard.get()) == "broken"
    # One that never begins is closed without a warning.
    serve(works(), heard.put_nowait).cancel()
    await asyncio.sleep(0)
    assert heard.empty()


async def test_runs_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    """Guarantee 4: an endless task starts again after a failure."""
    monkeypatch.setattr(tasks, "_PAUSE_SECONDS", 0)
    begun = asyncio.Queue[int]()

    async def beats() -> None:
        begun.put_nowait(1)
        await fails(RuntimeError("broken"))

    task = keep_running(beats)
    async with asyncio.timeout(PATIENCE_SECONDS):
        assert [await begun.get() for _ in range(3)] == [1, 1, 1]
    task.cancel()
