"""The position of an item in its node: the order of lists, and where a list continues. Pure text rules.

A position stays valid when its item is gone, so a list that is read in pages loses and repeats nothing.
"""

import re
from dataclasses import dataclass

_FORM = re.compile(r"([0-9]{1,4})-([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Position:
    """A position in the log of a partition; equal positions are ordered by partition."""

    ms: int
    sequence: int
    partition: int

    def __str__(self) -> str:
        """Return the position in the form of the item ids that the service makes."""
        return f"{self.partition}-{self.ms}-{self.sequence}"

    @staticmethod
    def parse(text: str) -> "Position":
        """Read what `str` wrote; raises ValueError on anything else."""
        found = _FORM.fullmatch(text)
        if not found:
            msg = f"not a place: {text[:80]!r}"
            raise ValueError(msg)
        partition, ms, sequence = map(int, found.groups())
        return Position(ms, sequence, partition)
