"""What figures come to, in a word and a sentence."""

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
            "needs 4 workers for p95 wait ≤ 2 s; nobody has credit now, up to 5 were at work",
        ),
        (_with(credit=None), State.GONE, "needs 4 workers for p95 wait ≤ 2 s; is not there any more"),
        (
            replace(node(), waste=replace(node().waste, attempts=0), backlog=replace(node().backlog, waiting=1)),
            State.IDLE,
            "nothing was delivered; 1 item waiting",
        ),
    ],
    ids=["enough", "tight", "short", "unstable", "never", "no credit", "gone", "nothing delivered"],
)
def test_verdict(of: Node, state: State, words: str) -> None:
    """Each state has its sentence: what is needed, for what, and what there is."""
    judged = verdict(of, 2.0)
    assert (judged.state, judged.words) == (state, words)
