"""The interval of a report and its steps."""

from hypothesis import given
from hypothesis import strategies as st

from broker.analytics.span import Span


@given(st.integers(1, 400 * 86_400_000))
def test_steps_cover_the_interval(length: int) -> None:
    """However long an interval is, its steps are few, equally wide, and cover it without one too many."""
    span = Span(1_700_000_000_000, 1_700_000_000_000 + length)
    assert span.steps <= 150
    assert (span.steps - 1) * span.width_ms < length <= span.steps * span.width_ms
