"""Positions in a stream: an entry's id, and how many entries came before it. Pure text and numbers; must not know Redis."""

import re
from typing import Final, NamedTuple, Self

MOST: Final = 2**64 - 1
"""The maximum of either half of an id."""

_OFFSET: Final = re.compile(r"(\d{1,20})(?:-(\d{1,20}))?(?:/(\d{1,20}))?")


class Id(NamedTuple):
    """The id of an entry: milliseconds since 1970 and a number within them."""

    ms: int
    number: int = 0

    def __str__(self) -> str:
        """Write it as Redis does."""
        return f"{self.ms}-{self.number}"

    @classmethod
    def parse(cls, text: bytes | str) -> Self:
        """Parse an id that Redis wrote."""
        ms, _, number = (text if isinstance(text, str) else text.decode()).partition("-")
        return cls(int(ms), int(number or 0))

    def next(self) -> "Id":
        """Return the next greater id."""
        return Id(self.ms, self.number + 1) if self.number < MOST else Id(self.ms + 1)

    def predecessor(self) -> "Id":
        """Return the next smaller id."""
        if self.number:
            return Id(self.ms, self.number - 1)
        return Id(self.ms - 1, MOST) if self.ms else self


START: Final = Id(0)
"""Before every entry."""

ABSENT_MS: Final = 30 * 86_400_000
"""How long the offset of a missing stream is known: it may be on a Redis process that somebody repairs."""


class Offset(NamedTuple):
    """How far a stream was read: the last entry, and how many were read or dropped by then (None: not counted)."""

    after: Id
    read: int | None = None

    def __str__(self) -> str:
        """Write it as `ms-number/read`, the form of checkpoints."""
        return str(self.after) if self.read is None else f"{self.after}/{self.read}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse what `str` wrote, or an entry's id alone; raises ValueError on anything else."""
        found = _OFFSET.fullmatch(text)
        if found is None:
            msg = f"{text[:60]!r} is not an offset such as 1700000000000-0"
            raise ValueError(msg)
        ms, number, read = found.groups()
        if max(int(ms), int(number or 0)) > MOST:
            msg = f"{text[:60]!r} is larger than any offset"
            raise ValueError(msg)
        return cls(Id(int(ms), int(number or 0)), None if read is None else int(read))
