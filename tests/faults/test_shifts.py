"""Data moves between several Redis servers under load: the guarantees hold, except for unreplicated writes."""

import pytest

from tests.faults.conftest import Play
from tests.faults.house import Kind
from tests.faults.shifts import SHIFTS
from tests.faults.strikes import LONG, SHORT

_KINDS = pytest.mark.parametrize("kind", [Kind.CLUSTER, Kind.SENTINELS], ids=lambda kind: kind.name.lower())


@_KINDS
def test_shifts(play: Play, kind: Kind) -> None:
    """Guarantees 1 to 4 hold through every change of masters, and afterwards the queue flows again by itself."""
    with play(LONG, kind) as stage:
        for shift in SHIFTS:
            if shift.kind is kind:
                stage.pause(0, 1)
                shift.act(stage)
                stage.recover()
        stage.settle()
        stage.judge()


@pytest.mark.soak
@_KINDS
@pytest.mark.parametrize("leg", range(3))
def test_shift_after_shift(play: Play, kind: Kind, leg: int) -> None:
    """They hold through one change after another."""
    with play(SHORT, kind) as stage:
        for shift in stage.random.choices([shift for shift in SHIFTS if shift.kind is kind], k=8):
            shift.act(stage)
            stage.recover()
        stage.settle()
        stage.judge()
