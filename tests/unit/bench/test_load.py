"""The closed loop of the load. Its clients are not there: jobs end when the test says so."""

import asyncio

import pytest

from bench.doors import load
from bench.doors.load import Loop
from frontends.tools.servers.process import ServerError


async def turns() -> None:
    """Let all that can go on go on."""
    for _ in range(5):
        await asyncio.sleep(0)


async def test_a_slow_service_has_a_rate_too() -> None:
    """A measurement goes on until a window of jobs is done: none in its time is no rate of 0."""
    begun: list[int] = []
    loop = Loop(begun.append, window=3)
    measured = asyncio.create_task(loop.rate(0))
    await turns()
    assert begun == [1, 2, 3]
    loop.end(2)
    await turns()
    assert not measured.done() and begun == [1, 2, 3, 4, 5]
    loop.end()
    await turns()
    assert not measured.done() and len(begun) == 6
    loop.end(3)
    done, rate = await measured
    assert done == 6 and rate > 0


async def test_a_service_that_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever measures is told that nothing is done any more."""
    monkeypatch.setattr(load, "_DRAIN_SECONDS", 0.01)
    with pytest.raises(ServerError, match="2 are open"):
        await Loop(lambda _: None, window=2).rate(0)


async def test_a_refusal_ends_the_measurement() -> None:
    """An error is told at once, also before a window is done."""
    loop = Loop(lambda _: None, window=2)
    measured = asyncio.create_task(loop.rate(0))
    await turns()
    loop.check(b"id='p1' type='error'")
    with pytest.raises(ServerError, match="the service answered"):
        await measured
