"""The evidence: what publishers and workers saw, a line of JSON for each fact. Knows files; judges nothing.

Each line is one write to a file opened for appending, so a player that is killed leaves whole lines.
"""

import json
import os
import time
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final


class What(StrEnum):
    """Kinds of facts that are seen from outside of the service."""

    PUBLISHED = "published"
    """The service answered a publish: from now on the item must not be lost."""
    RECEIVED = "received"
    """A delivery came."""
    ACKNOWLEDGING = "acknowledging"
    """The worker is about to request an item's deletion: from now on it may have no lock."""
    RELEASING = "releasing"
    """The worker is about to release an item."""
    ACKNOWLEDGED = "acknowledged"
    """The service confirmed that the item is deleted."""
    RELEASED = "released"
    """The service confirmed that the item is released."""
    REFUSED = "refused"
    """The service refused either."""
    SEVERED = "severed"
    """The worker, or everybody if it names none, lost its connection between `at_ms` and `until_ms`: its locks may be free."""
    FORGOTTEN = "forgotten"
    """Redis lost what was written between `at_ms` and `until_ms`."""


@dataclass(frozen=True, slots=True)
class Fact:
    """One fact; `at_ms` is the machine's clock, which is Redis's too."""

    what: What
    at_ms: int
    who: str = ""
    item: str = ""
    token: int = 0
    attempt: int = 0
    expires_ms: int = 0
    until_ms: int = 0
    detail: str = ""


def now_ms() -> int:
    """Read the clock that Redis reads."""
    return time.time_ns() // 1_000_000


class Notebook:
    """The file of one player."""

    def __init__(self, path: Path) -> None:
        """Open the file, which may have facts of an earlier player."""
        self._file: Final = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def note(self, fact: Fact) -> None:
        """Write a fact at once."""
        os.write(self._file, json.dumps(asdict(fact)).encode() + b"\n")


class Evidence:
    """All facts in a directory, read as it grows."""

    def __init__(self, directory: Path) -> None:
        """Begin with nothing read."""
        self.directory = directory
        self._read: dict[Path, int] = {}
        self.facts: list[Fact] = []

    def note(self, fact: Fact) -> None:
        """Add a fact of the test itself."""
        self.facts.append(fact)

    def refresh(self) -> None:
        """Read what is new."""
        for path in sorted(self.directory.glob("*.facts")):
            with path.open("rb") as file:
                file.seek(self._read.get(path, 0))
                data = file.read()
            whole = data[: data.rfind(b"\n") + 1]
            self._read[path] = self._read.get(path, 0) + len(whole)
            self.facts += [_fact(line) for line in whole.splitlines()]

    def accounts(self, player: str) -> set[str]:
        """Return the accounts of a player."""
        return {_fact(line).who for line in (self.directory / f"{player}.facts").read_bytes().splitlines()}

    def items(self, what: What) -> set[str]:
        """Return the items with a fact of this kind."""
        return {fact.item for fact in self.facts if fact.what is what}

    def acknowledged_since(self, at_ms: int) -> int:
        """Count the acknowledgements confirmed since then."""
        return sum(fact.what is What.ACKNOWLEDGED and fact.at_ms >= at_ms for fact in self.facts)


def _fact(line: bytes) -> Fact:
    read = json.loads(line)
    return Fact(**{**read, "what": What(read["what"])})
