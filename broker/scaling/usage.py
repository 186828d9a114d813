"""Samples of what processes have used: their form in Redis. Pure; must not know who writes or reads them."""

import contextlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Final

REDIS: Final = "redis"
"""The kind of a Redis master, where frontends have the name of their door."""

MINUTE_MS: Final = 60_000
MINUTES: Final = 60


@dataclass(frozen=True, slots=True, order=True)
class Usage:
    """What one process has used since its start, at a time: processor time, and the jobs that ended there (0 of Redis)."""

    kind: str
    name: str
    at_ms: int
    cpu_ms: int
    jobs: int = 0

    @property
    def field(self) -> str:
        """Its field: the sample of the same minute of the next hour replaces it."""
        return f"{self.at_ms // MINUTE_MS % MINUTES} {self.kind} {self.name}"

    @property
    def value(self) -> str:
        """Its value."""
        return f"{self.at_ms} {self.cpu_ms} {self.jobs}"


def read_all(fields: Iterable[tuple[bytes, bytes]]) -> Iterator[Usage]:
    """Read samples; skips fields of another form, which a newer version may have written."""
    for field, value in fields:
        with contextlib.suppress(ValueError):
            _minute, kind, name = field.decode().split(" ", 2)
            at_ms, cpu_ms, jobs = map(int, value.split()[:_WORDS])
            yield Usage(kind, name, at_ms, cpu_ms, jobs)


_WORDS: Final = 3
