"""Whatever fails under load: nothing answered is lost, no item has two holders, no credit is exceeded, and work continues.

Publishers and workers are programs over real ejabberd; Redis writes every change to disk at once. Each test causes its
faults at random moments, by a seed that it prints.
"""

from collections.abc import Iterable
from functools import partial
from itertools import groupby

import pytest
from _pytest.mark import ParameterSet

from tests.faults.conftest import Play
from tests.faults.facts import Evidence, What
from tests.faults.player import CREDIT
from tests.faults.stage import WORKERS
from tests.faults.strikes import LONG, SHORT, STRIKES, Strike, frontends_killed, network_swallows_replies

_MOST = 6
"""Faults in one play: they share its start and its end, and yet a failure names few."""


def _plays(strikes: Iterable[Strike]) -> list[ParameterSet]:
    """Divide faults into plays; all of a play have one lock time."""
    plays = []
    for _, alike in groupby(sorted(strikes, key=_lock_seconds), _lock_seconds):
        left = [*alike]
        while left:
            play, left = left[:_MOST], left[_MOST:]
            plays.append(pytest.param(play, id="-".join(strike.act.__name__ for strike in play)))
    return plays


def _lock_seconds(strike: Strike) -> int:
    return strike.lock_seconds


_HARD = [strike for strike in STRIKES if strike.act in {frontends_killed, network_swallows_replies}]
"""Faults that lose credit on its way from one partition to another."""


@pytest.mark.parametrize("strikes", _plays(STRIKES))
def test_strikes(play: Play, strikes: list[Strike]) -> None:
    """Guarantees 1 to 4 hold through each kind of fault, and afterwards the queue flows again by itself."""
    _played(play, strikes, leaves=0)


def _played(play: Play, strikes: list[Strike], leaves: int) -> None:
    with play(strikes[0].lock_seconds, leaves=leaves) as stage:
        for strike in strikes:
            stage.pause(0, 1)
            strike.act(stage)
            stage.recover()
        stage.settle()
        stage.judge()


def test_a_loss_is_found(play: Play) -> None:
    """The evidence reveals a service that loses items: here somebody deletes them in Redis."""
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
    """Return why the wait goes on: all unseen items may be on their way to the workers."""
    evidence.refresh()
    unseen = evidence.items(What.PUBLISHED) - evidence.items(What.RECEIVED)
    return [] if len(unseen) > WORKERS * CREDIT else ["items that wait"]


def test_strikes_at_a_collection(play: Play) -> None:
    """H5 to H7: they hold for workers of a collection, whose credit is shared by all partitions below."""
    _played(play, _HARD, leaves=3)


@pytest.mark.soak
@pytest.mark.parametrize("strikes", _plays(strike for strike in STRIKES if strike not in _HARD))
def test_all_strikes_at_a_collection(play: Play, strikes: list[Strike]) -> None:
    """They hold there through the other kinds of faults, too."""
    _played(play, strikes, leaves=3)


@pytest.mark.soak
@pytest.mark.parametrize("leg", range(12))
def test_strike_after_strike(play: Play, leg: int) -> None:
    """They hold through one fault after another, of all kinds; locks are short, because no single lock time suits all faults."""
    with play(SHORT) as stage:
        for strike in stage.random.choices(STRIKES, k=8):
            strike.act(stage)
            stage.recover()
        stage.settle()
        stage.judge()
