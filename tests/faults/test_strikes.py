"""Whatever fails under load: nothing answered is lost, no item has two holders, no credit is exceeded, and work goes on.

Publishers and workers are programs over real ejabberd; Redis writes every change to disk at once. Each test strikes at
moments of its own choosing, by a seed that it prints.
"""

import pytest

from tests.faults.conftest import Play
from tests.faults.strikes import SHORT, STRIKES, Strike

# Not in `make test` yet: the evidence of single runs still has to be told apart from the harness's own faults.
pytestmark = [pytest.mark.xdist_group("faults"), pytest.mark.soak]

_LEGS = 12
_STRIKES_OF_A_LEG = 8


@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: strike.act.__name__)
def test_a_strike(play: Play, strike: Strike) -> None:
    """Guarantees 1 to 4 of design §4 hold through one kind of fault, and the queue flows again by itself."""
    with play(strike.lock_seconds) as stage:
        stage.pause(0, 1)
        strike.act(stage)
        stage.recover()
        stage.settle()
        stage.judge()


@pytest.mark.parametrize("leg", range(_LEGS))
def test_strike_after_strike(play: Play, leg: int) -> None:
    """They hold through one fault after another, of all kinds; locks are short, because no fault may find them all long."""
    with play(SHORT) as stage:
        for strike in stage.random.choices(STRIKES, k=_STRIKES_OF_A_LEG):
            strike.act(stage)
            stage.recover()
        stage.settle()
        stage.judge()
