"""Whatever fails under load: nothing answered is lost, no item has two holders, no credit is exceeded, and work goes on.

Publishers and workers are programs over real ejabberd; Redis writes every change to disk at once. Each test strikes at
moments of its own choosing, by a seed that it prints.
"""

from functools import partial

import pytest

from tests.faults.conftest import Play
from tests.faults.facts import Evidence, What
from tests.faults.house import Kind
from tests.faults.player import CREDIT
from tests.faults.stage import WORKERS
from tests.faults.strikes import LONG, SHORT, STRIKES, Strike, frontends_killed, network_swallows_replies

_LEGS = [
    pytest.param(2, id="short"),
    *(pytest.param(8, id=f"long{number}", marks=pytest.mark.soak) for number in range(12)),
]
"""Each is so many strikes."""

_HARD = {frontends_killed, network_swallows_replies}
"""What loses credit on its way from one partition to another."""


@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: strike.act.__name__)
def test_a_strike(play: Play, strike: Strike) -> None:
    """Guarantees 1 to 4 of design §4 hold through one kind of fault, and the queue flows again by itself."""
    with play(strike.lock_seconds) as stage:
        stage.pause(0, 1)
        strike.act(stage)
        stage.recover()
        stage.settle()
        stage.judge()


def test_a_loss_is_found(play: Play) -> None:
    """The evidence is enough to find a service out that does lose items: here somebody deletes them in Redis."""
    with play(LONG) as stage:
        for worker in stage.workers:
            worker.process.pause()
        stage.until(partial(_none_waits, stage.evidence), 10, "too few items")
        trim = "for _, log in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('XTRIM', log, 'MAXLEN', 0) end"
        stage.house.command("EVAL", trim, "0", f"sq:{{{stage.node}@*:log")
        for worker in stage.workers:
            worker.process.resume()
        with pytest.raises(AssertionError, match=r"job-\S+: lost"):
            stage.judge()


def _none_waits(evidence: Evidence) -> list[str]:
    """Say so while all that nobody has seen may be on its way to the workers."""
    evidence.refresh()
    unseen = evidence.items(What.PUBLISHED) - evidence.items(What.RECEIVED)
    return [] if len(unseen) > WORKERS * CREDIT else ["items that wait"]


@pytest.mark.parametrize(
    "strike",
    [
        strike if strike.act in _HARD else pytest.param(strike, marks=pytest.mark.soak)
        for strike in STRIKES
        if strike.kind is Kind.ONE
    ],
    ids=lambda strike: strike.act.__name__,
)
def test_a_strike_at_a_collection(play: Play, strike: Strike) -> None:
    """H5 to H7: they hold for workers of a collection, whose one credit lies in parts in all partitions below."""
    with play(strike.lock_seconds, leaves=3) as stage:
        stage.pause(0, 1)
        strike.act(stage)
        stage.recover()
        stage.settle()
        stage.judge()


@pytest.mark.parametrize("strikes", _LEGS)
def test_strike_after_strike(play: Play, strikes: int) -> None:
    """They hold through one fault after another, of all kinds; locks are short, because no fault may find them all long."""
    with play(SHORT) as stage:
        for strike in stage.random.choices(STRIKES, k=strikes):
            strike.act(stage)
            stage.recover()
        stage.settle()
        stage.judge()
