"""The interval of a report, in ms since 1970. Must not know what happened in it."""

from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

# Step widths that people read without counting, in ms.
_WIDTHS: Final = (
    *(1, 2, 5, 10, 20, 50, 100, 200, 500),
    *(seconds * 1000 for seconds in (1, 2, 5, 10, 15, 30)),
    *(minutes * 60_000 for minutes in (1, 2, 5, 10, 15, 30)),
    *(hours * 3_600_000 for hours in (1, 2, 3, 6, 12, 24)),
)
_MOMENTS: Final = 150
"""The most steps in a report: as many points as a line across a screen can show."""


@dataclass(frozen=True, slots=True)
class Span:
    """From `begin`, included, to `end`, excluded; both in ms since 1970."""

    begin: int
    end: int

    @property
    def seconds(self) -> float:
        """Return its length."""
        return (self.end - self.begin) / 1000

    @property
    def width_ms(self) -> int:
        """Choose the width of its steps."""
        length = self.end - self.begin
        return next((width for width in _WIDTHS if length <= width * _MOMENTS), -(-length // _MOMENTS))

    @property
    def steps(self) -> int:
        """Count its steps; the last may be cut short."""
        return max(1, -(-(self.end - self.begin) // self.width_ms))


def moment(ms: int) -> datetime:
    """Turn a time of the journal into a date."""
    return datetime.fromtimestamp(ms / 1000, UTC)
