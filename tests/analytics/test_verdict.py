"""The verdict on a node: a word, what was measured and why, and what would mend it; and what to do this week."""

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime

import pytest

from broker.analytics.figures import Cause, Node, Target
from broker.analytics.verdict import State, this_week, urgency, verdict
from tests.analytics.pictured import idle, node, report

SINCE = datetime(2026, 1, 31, 9, tzinfo=UTC)


def _with(**parts: Mapping[str, object]) -> Node:
    given = node()
    return replace(given, **{part: replace(getattr(given, part), **values) for part, values in parts.items()})


def _missed(cause: Cause, **parts: Mapping[str, object]) -> Node:
    return replace(_with(**parts), target=Target(0.23, 0.4, 24, 5, SINCE, cause))


SHORT = {"credit": 3, "workers_needed": 7, "workers_unbound": 7}
PRICE = {"workers": 4, "subscribers": 2}
HELD = "target held: p95 wait 1.2 s for a target of 2 s"
MISSED = "target missed in 5 of 24 hours since 2026-01-31 09:00 by"
LATE = "23 % of waits were too long, p95 wait 1.2 s for a target of 2 s"
LOAD = "at 12/s from 2026-01-31 12:00 (mean 10/s)"
COST = "all work takes 74.4 worker hours a day, and the queue itself 0.3 core hours"
NOTHING = {"attempts": 0, "perished": 0}


@pytest.mark.parametrize(
    ("of", "state", "words"),
    [
        (node(), State.ENOUGH, HELD),
        (_with(capacity={"headroom": 0.1}), State.TIGHT, f"{HELD}; 10 % more would be too much"),
        (_with(capacity=SHORT), State.SHORT, HELD),
        (_missed(Cause.CREDIT, capacity=SHORT), State.UNSTABLE, f"{MISSED} too little credit: {LATE}"),
        (_missed(Cause.SLOW), State.MISSED, f"{MISSED} slow workers: {LATE}"),
        (
            _missed(Cause.IN_FLIGHT, capacity={"max_in_flight": 2}),
            State.MISSED,
            f"{MISSED} stanzaq#max_in_flight = 2: {LATE}",
        ),
        (
            _with(waste={"perished": 250}),
            State.ENOUGH,
            f"{HELD}; 20 % of the items expired before anybody got them",
        ),
        (_with(waste={"dead_lettered": 30}), State.ENOUGH, f"{HELD}; 3 % of the items became dead letters"),
        (_with(capacity={"credit_now": 0}), State.IDLE, f"{HELD}; no subscriber has credit now"),
        (_with(capacity={"credit": None}), State.GONE, f"{HELD}; the node was deleted"),
        (
            _with(waste=NOTHING, backlog={"waiting": 1, "in_flight": 0}),
            State.IDLE,
            "nothing was delivered; 1 item waiting",
        ),
        (
            _with(waste=NOTHING, backlog={"waiting": 0, "in_flight": 1}),
            State.NO_DATA,
            "no delivery has ended yet; 1 in flight, 0 items waiting",
        ),
        (
            _with(waste={"attempts": 0, "perished": 40}),
            State.IDLE,
            "all of 40 items expired before anybody got one; 12 items waiting",
        ),
    ],
    ids=lambda value: value.value if isinstance(value, State) else "",
)
def test_verdict(of: Node, state: State, words: str) -> None:
    """Each state has its sentence: how the target was held, since when not, and by what."""
    judged = verdict(of, 2.0)
    assert (judged.state, judged.words) == (state, words)


@pytest.mark.parametrize(
    ("of", "remedy"),
    [
        (node(), ""),
        (
            _missed(Cause.CREDIT, capacity=SHORT, price=PRICE),
            f"p95 wait ≤ 2 s needs 7 workers {LOAD}; the credit was 3: add 4, 2 subscribers like those of now; {COST}",
        ),
        (
            _missed(Cause.CREDIT, capacity={**SHORT, "credit_seen": False}, price={"workers": 4, "subscribers": None}),
            f"p95 wait ≤ 2 s needs 7 workers {LOAD}; 3 were at work: add 4; {COST}",
        ),
        (
            _missed(Cause.RATE, capacity={"workers_needed": None, "max_rate_per_s": 5.0}),
            f"raise stanzaq#rate: without it 4 workers hold the target {LOAD}",
        ),
        (
            _missed(Cause.TIMEOUTS),
            f"let handlers renew their locks, or raise stanzaq#lock_seconds; then look again {LOAD}",
        ),
        (
            _missed(Cause.SLOW),
            f"p95 wait ≤ 2 s needs 4 workers {LOAD}; the credit was 6: look at slow workers",
        ),
        (_with(waste=NOTHING), "subscribe workers with credit"),
    ],
)
def test_remedy(of: Node, remedy: str) -> None:
    """What is missed is mended by what caused it, at a price."""
    of = replace(of, backlog=replace(of.backlog, in_flight=0))
    assert verdict(of, 2.0).remedy == remedy


def test_this_week() -> None:
    """The first line of a report names the most urgent nodes, and what will be soon."""
    bound = replace(_missed(Cause.IN_FLIGHT, capacity={"max_in_flight": 2}), node="mail")
    short = replace(_missed(Cause.CREDIT, capacity=SHORT, price=PRICE), node="pictures")
    soon = replace(_with(forecast={"target_missed_days": 6.0}), node="late")
    assert this_week(report(node())) == "Nothing to do this week: the node holds the target."
    assert this_week(report(node(), node("two"))) == "Nothing to do this week: all of 2 nodes hold the target."
    line = this_week(report(short, bound, idle(), soon, node()))
    assert line == "This week: pictures (add 4 workers), mail (stanzaq#max_in_flight = 2), idle (no credit) and 1 more."
    assert this_week(report(soon)) == "This week: late (target missed in 6 d)."


def test_urgency() -> None:
    """Growth without end comes first, then what was missed most; what holds is last but for what is gone."""
    worse = replace(_missed(Cause.SLOW), target=Target(0.5, 0.5, 24, 9, SINCE, Cause.SLOW))
    unstable, gone = _missed(Cause.CREDIT, capacity=SHORT), _with(capacity={"credit": None})
    given = [gone, node(), _missed(Cause.SLOW), worse, unstable]
    assert sorted(given, key=lambda each: urgency(each, 2.0)) == [unstable, worse, given[2], node(), gone]
