"""The verdict on a node, in a word and a sentence."""

from dataclasses import replace

import pytest

from broker.analytics.figures import Node
from broker.analytics.verdict import State, verdict
from tests.analytics.pictured import node


def _with(**capacity: object) -> Node:
    return replace(node(), capacity=replace(node().capacity, **capacity))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "state", "words"),
    [
        (node(), State.ENOUGH, "needs 4 workers for p95 wait ≤ 2 s; has credit for 6"),
        (
            _with(headroom=0.1),
            State.TIGHT,
            "needs 4 workers for p95 wait ≤ 2 s; has credit for 6: 10 % more would be too much",
        ),
        (
            _with(credit=3, most_per_s=11.0, headroom=-0.2),
            State.SHORT,
            "needs 4 workers for p95 wait ≤ 2 s; has credit for 3",
        ),
        (
            _with(credit=2, most_per_s=9.0, headroom=-0.4),
            State.UNSTABLE,
            "needs 4 workers for p95 wait ≤ 2 s; has credit for 2: unstable, more comes in than they can do",
        ),
        (
            _with(workers_needed=None),
            State.SHORT,
            "no number of workers is known to suffice for p95 wait ≤ 2 s; has credit for 6",
        ),
        (
            _with(credit=0),
            State.IDLE,
            "needs 4 workers for p95 wait ≤ 2 s; no subscriber has credit now, up to 5 were at work",
        ),
        (_with(credit=None), State.GONE, "needs 4 workers for p95 wait ≤ 2 s; the node was deleted"),
        (
            replace(
                node(), waste=replace(node().waste, attempts=0), backlog=replace(node().backlog, waiting=1, in_flight=0)
            ),
            State.IDLE,
            "nothing was delivered; 1 item waiting",
        ),
        (
            replace(
                node(), waste=replace(node().waste, attempts=0), backlog=replace(node().backlog, waiting=0, in_flight=1)
            ),
            State.NO_DATA,
            "no delivery has ended yet; 1 in flight, 0 items waiting",
        ),
    ],
    ids=["enough", "tight", "short", "unstable", "never", "no credit", "gone", "nothing delivered", "nothing ended"],
)
def test_verdict(of: Node, state: State, words: str) -> None:
    """Each state has its sentence: what is needed, for what, and what there is."""
    judged = verdict(of, 2.0)
    assert (judged.state, judged.words) == (state, words)


WAITS = "p95 wait was 1.2 s, and the formula predicts for credit of 6"


def _expected(wait_s: float | None, **more: object) -> Node:
    given = _with(wait_p95_s=wait_s)
    return replace(given, **{part: replace(getattr(given, part), **values) for part, values in more.items()})  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("of", "words"),
    [
        (_expected(0.9), f"{WAITS} 900 ms: they agree"),
        (_expected(None), f"{WAITS} unlimited growth: the measured wait only shows how long that has lasted"),
        (_expected(9.0), f"{WAITS} 9 s: the interval was too short for that, or credit was higher in it"),
        (
            _expected(0.1, backlog={"growth_per_s": 2.0}),
            f"{WAITS} 100 ms: the queue was not in balance, what waits grew by 2/s",
        ),
        (
            _expected(0.1, backlog={"growth_per_s": -2.0}),
            f"{WAITS} 100 ms: the queue was not in balance, what waits shrank by 2/s",
        ),
        (
            _expected(0.1, demand={"peak_per_s": 50.0}),
            f"{WAITS} 100 ms: at its peak 52/s were asked for, more than credit can do",
        ),
        (
            _expected(0.1, capacity={"busiest": 3.0, "wait_p95_s": 0.1}),
            f"{WAITS} 100 ms: no more than 3 were at work, so credit was lower or not for what waited",
        ),
        (
            _expected(0.1, capacity={"busiest": 6.0, "wait_p95_s": 0.1}),
            f"{WAITS} 100 ms: items waited for their delay, their group or a subscriber that may have them",
        ),
        (_with(credit=0), ""),
    ],
    ids=["agree", "unstable", "short", "grew", "shrank", "peak", "idle", "held back", "no credit"],
)
def test_waits(of: Node, words: str) -> None:
    """One sentence compares the measured wait with the formula's."""
    assert verdict(of, 2.0).waits == words
