"""A replay's waits and workers are those of the simulated queue, whatever the shape of the load."""

from collections.abc import Callable, Iterable
from itertools import pairwise

import pytest

from broker.analytics.measures.traces import Record, Window, gather
from broker.analytics.replay import Item, Replayed, Rules, Trace, p95, replay
from tests.analytics import shapes
from tests.analytics.shapes import Shape
from tests.analytics.simulator import BEGAN_MS, Laws, Mishaps, Run, exponential, simulate

TARGET_MS = 2_000
_NONE = Rules()


def records(run: Run) -> Iterable[Record]:
    """Give what a run has recorded, as reports gather it."""
    turns = {id(each): int(each.position.partition("-")[2]) for each in run.attempts}
    for each in sorted(run.attempts, key=lambda each: (each.ready, turns[id(each)])):
        yield Record(
            *(hash(each.position), turns[id(each)], each.attempt, each.type), each.ready, each.delivered, each.closed
        )


def again(run: Run, workers: int = 1, rules: Rules = _NONE) -> tuple[Trace, Replayed]:
    """Replay all of a run."""
    last = max(each.closed for each in run.attempts)
    trace = gather(records(run), Window(BEGAN_MS, BEGAN_MS, last + 1, rules, workers))
    return trace, replay(trace, TARGET_MS, workers)


@pytest.mark.parametrize("make", [shapes.young, shapes.daily, shapes.bursts, shapes.batches])
def test_shapes(make: Callable[[], Shape]) -> None:
    """Young, rising and falling, in bursts, in batches: the workers needed are within one, and every p95 within 10 %."""
    shape = make()
    _, found = again(shape.run(40))
    assert found.needed is not None and shape.holds(TARGET_MS, found.needed)
    for workers, wait in found.curve[::3]:
        assert wait == pytest.approx(shape.p95_ms(workers), rel=0.1, abs=2)


def test_seen_short() -> None:
    """What was measured with far too few workers shows how many would have been enough."""
    shape = shapes.bursts()
    _, found = again(shape.run(4))
    assert found.needed is not None and shape.holds(TARGET_MS, found.needed)


def test_returns() -> None:
    """Items that came back wait again after each attempt: the replay with as many workers waits as the queue did."""
    laws = Laws(exponential(100), exponential(400), (1,) * 6, Mishaps(0.02, 0.1, lock_ms=2_000, max_deliveries=5))
    run = simulate(laws, 8_000, seed=4)
    trace, _ = again(run)
    assert sum(len(item.held) for item in trace.items) == len(run.attempts)
    measured = p95([each.delivered - each.ready for each in run.attempts])
    assert p95(trace.waits(6)) == pytest.approx(measured, rel=0.1)


def test_bounds() -> None:
    """The node's own bounds hold the replay back as they hold the queue: then no number of workers is enough."""
    shape = shapes.batches()
    _, found = again(shape.run(20), 20, Rules(max_in_flight=4))
    assert found.needed is None and shape.holds(TARGET_MS, found.needed_unbound)
    assert dict(found.curve)[20] == pytest.approx(shape.p95_ms(4), rel=0.1)
    # 20 items in two seconds come at twice the rate.
    trace = Trace([Item(2_000.0 * (n // 20), (1.0,)) for n in range(2_000)], rules=Rules(interval_ms=200, burst=1))
    waits = trace.waits(1_000)
    assert max(waits) == pytest.approx(200 * 2_000 - 2_000 * 100, rel=0.01)
    begun = sorted(ready + wait for ready, wait in zip((item.ready for item in trace.items), waits, strict=True))
    assert all(later - before >= 199 for before, later in pairwise(begun))


def test_rest() -> None:
    """An item that came back rests as long as its node says, twice as long after its second attempt."""
    trace = Trace([Item(0.0, (10.0, 10.0, 10.0))], rules=Rules(rest_ms=100, backoff=2.0, longest_rest_ms=150))
    second, third = Item(5.0, (500.0,)), Item(115.0, (1.0,))
    assert trace.waits(1) == [0, 0, 0]
    # The second one is under way when the first comes back.
    assert Trace([*trace.items, second, third], rules=trace.rules).waits(1) == [0, 5, 400, 405, 0]


def test_perished() -> None:
    """An item that nobody gets in time expires, and takes no worker's time."""
    items = [Item(0.0, (1_000.0,)), Item(1.0, (1_000.0,), 501.0), Item(2.0, (1_000.0,))]
    assert Trace(items).waits(1) == [0, 500, 998]
    assert Trace(items).waits(2) == [0, 0, 998]


def test_what_came_before() -> None:
    """What waited and who was at work when the window begins count, but the waits of that are not counted."""
    before = [Record(1, 0, 1, "acknowledged", 0, 10, 1_500), Record(2, 0, 1, "acknowledged", 500, 1_500, 2_500)]
    here = Record(3, 0, 1, "acknowledged", 1_100, 2_500, 2_600)
    trace = gather([*before, here], Window(1_000, 1_000, 3_000, Rules(), 1))
    assert (trace.busy, [item.ready for item in trace.items]) == ((1_500,), [500, 1_100])
    assert (trace.waits(1), trace.waits(2)) == ([1_400], [400])


def test_what_has_no_end() -> None:
    """Open attempts and items that wait are work like any other; without any ended attempt nothing is known."""
    known, opened = Record(1, 0, 1, "acknowledged", 0, 0, 300), Record(2, 0, 1, None, 1, 1, None)
    waiting = Record(3, 0, 1, None, 2, None, None)
    trace = gather([known, opened, waiting], Window(0, 0, 1_000, Rules(), 1))
    assert [item.held for item in trace.items] == [(300,)] * 3
    assert not gather([opened, waiting], Window(0, 0, 1_000, Rules(), 1)).items


def test_growth() -> None:
    """The demand that a credit carries is that at which the simulated queue with so much more of it misses the target."""
    found = again(shapes.daily(0.1).run(13), 13)[1].growth
    assert found is not None
    for factor, holds in ((0.93 * found, True), (1.07 * found, False)):
        assert (shapes.daily(0.1 * factor).p95_ms(13) <= TARGET_MS) == holds
