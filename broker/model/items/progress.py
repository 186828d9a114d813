"""How far a worker is with an item: a share of the work, a note, or both. Values only."""

from typing import Final, Self

from broker.model.frozen import frozen
from broker.model.nodes.fields import Decimal
from broker.model.problems import MalformedRequest, Problem
from broker.model.times import moment

NOTE_CHARACTERS: Final = 200

_SHARE: Final = Decimal(0, 1)


@frozen
class Progress:
    """What a worker has told; the share is from 0 to 1. `at_ms` is when it did, by Redis's clock."""

    share: float | None
    note: str = ""
    at_ms: int = 0

    @classmethod
    def validate(cls, share: str | None, note: str) -> Self | None:
        """Validate what a worker tells; None if it tells nothing. Raises MalformedRequest."""
        if share is None and not note:
            return None
        if len(note) > NOTE_CHARACTERS or not (note.isprintable() or not note):
            raise MalformedRequest(Problem.BAD_REQUEST, f"note must be a line of at most {NOTE_CHARACTERS} characters")
        try:
            return cls(None if share is None else _SHARE(share), note)
        except ValueError as wrong:
            raise MalformedRequest(Problem.BAD_REQUEST, f"progress {wrong}") from None

    @classmethod
    def read(cls, line: str) -> Self | None:
        """Read it as operations keep it, after the time; None from an empty line."""
        at_ms, _, rest = line.partition(" ")
        share, _, note = rest.partition(" ")
        return cls(None if share == "-" else float(share), note, int(at_ms)) if line else None

    def to_json(self) -> dict[str, str | float]:
        """Return it for JSON."""
        said: dict[str, str | float] = {"at": moment(self.at_ms)}
        if self.share is not None:
            said["share"] = self.share
        return said | ({"note": self.note} if self.note else {})

    def __str__(self) -> str:
        """Return it as operations keep it, without the time."""
        return f"{'-' if self.share is None else self.share} {self.note}"
