"""Where an item stands in a node: the order in which its items are listed, and where a list goes on. Pure text rules.

A place stays one when its item has gone, so a list that is read in parts loses and repeats nothing.
"""

import re
from dataclasses import dataclass

_FORM = re.compile(r"([0-9]{1,4})-([0-9]{1,18})-([0-9]{1,18})", re.ASCII)


@dataclass(frozen=True, slots=True, order=True)
class Place:
    """A position in the log of a partition; of equal positions that of the lower partition comes first."""

    ms: int
    sequence: int
    partition: int

    def __str__(self) -> str:
        """Write it as the service writes the ids of items that it names itself."""
        return f"{self.partition}-{self.ms}-{self.sequence}"

    @staticmethod
    def parse(text: str) -> "Place":
        """Read what `str` wrote; raises ValueError on anything else."""
        found = _FORM.fullmatch(text)
        if not found:
            msg = f"not a place: {text[:80]!r}"
            raise ValueError(msg)
        partition, ms, sequence = map(int, found.groups())
        return Place(ms, sequence, partition)
