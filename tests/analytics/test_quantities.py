"""Quantities are written as people write them."""

import pytest

from broker.analytics.quantities import duration, number, rate, share, size, write_count


@pytest.mark.parametrize(
    ("seconds", "written"),
    [
        (0.0, "0 ms"),
        (0.0164, "16.4 ms"),
        (0.9, "900 ms"),
        (1.0, "1 s"),
        (119.4, "119 s"),
        (150.0, "2.5 min"),
        (7200.0, "2 h"),
        (259_200.0, "3 d"),
        (None, "\N{EN DASH}"),
    ],
)
def test_duration(seconds: float | None, written: str) -> None:
    """A duration has a suitable unit and three significant digits."""
    assert duration(seconds) == written


@pytest.mark.parametrize(
    ("per_s", "written"),
    [(2932.4, "2,932/s"), (10.02, "10/s"), (-0.0039, "-0.23/min"), (0.0001, "0.36/h"), (1e-6, "0.09/d"), (0.0, "0/s")],
)
def test_rate(per_s: float, written: str) -> None:
    """Rare events are counted by the minute, the hour or the day."""
    assert rate(per_s) == written


def test_others() -> None:
    """Whole numbers are whole, parts are in percent, sizes in powers of a thousand, and one is one."""
    assert (number(12_345), number(1.005), number(-0.0001)) == ("12,345", "1", "0")
    assert (share(0.874), size(2996.4), size(3e9), size(12)) == ("87.4 %", "3 kB", "3 GB", "12 B")
    assert (write_count(1, "worker"), write_count(1200, "worker")) == ("1 worker", "1,200 workers")
