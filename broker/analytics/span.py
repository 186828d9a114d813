"""The interval that a report speaks of. Knows milliseconds since 1970 and nothing of what happened in them."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

# What people read off a clock or a chart without counting, in ms.
_WIDTHS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(seconds * 1000 for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60_000 for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600_000 for hours in (1, 2, 3, 6, 12, 24)),
)
_MOMENTS: Final = 150
"""So many points a line across a screen can show; a report has at most so many of them."""


@dataclass(frozen=True, slots=True)
class Span:
    """From a moment, included, to another, excluded; both in ms since 1970."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """Tell how long it is."""
        return (self.end - self.begin) / 1000

    @property
    def width_ms(self) -> int:
        """Choose the width of the steps in which it is shown."""
        length = self.end - self.begin
        return next((width for width in _WIDTHS if length <= width * _MOMENTS), -(-length // _MOMENTS))

    @property
    def steps(self) -> int:
        """Count the steps that it has; the last may be cut short."""
        return max(1, -(-(self.end - self.begin) // self.width_ms))


def moment(ms: int) -> datetime:
    """Give a time of the journal as a date."""
    return datetime.fromtimestamp(ms / 1000, UTC)
