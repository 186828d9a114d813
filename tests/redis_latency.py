"""A Redis with varying latency: a seeded random wait beside each call. Must not know what is called.

With `REDIS_LATENCY` set to a seed, tests/conftest.py delays the cores of its process, and this file runs frontends.
"""

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

from broker.redis_core.redis_client.connections import Connection, Line

NAME: Final = "REDIS_LATENCY"
SEED: Final = os.environ.get(NAME, "")

FRONTEND: Final = "tests.redis_latency" if SEED else "frontends.cli"
"""The module that Python runs as `stanzaq`."""

USUAL_SECONDS: Final = 0.02
RARE_SECONDS: Final = 0.2
RARELY: Final = 0.03

_SHARE: Final = 0.1
"""The part of the time-out that a wait may take: one that used it up would be an absent Redis."""


class Latency:
    """Waits, the same ones for the same seed and the same order of calls."""

    def __init__(self, seed: str) -> None:
        """Begin."""
        self._chance = random.Random(seed)

    def waits(self, timeout: float | None) -> tuple[float, float]:
        """Return the seconds before a call and after it, one of which is 0."""
        seconds = RARE_SECONDS if self._chance.random() < RARELY else self._chance.uniform(0, USUAL_SECONDS)
        if timeout is not None:
            seconds = min(seconds, _SHARE * timeout)
        return (seconds, 0.0) if self._chance.random() < 0.5 else (0.0, seconds)


@contextmanager
def late(seed: str) -> Iterator[None]:
    """Delay every call of this process."""
    latency, replies = Latency(seed), Connection.replies

    async def waited(self: Connection, lines: Sequence[Line], blocked: float = 0) -> list[Any]:
        before, after = latency.waits(self.socket_timeout)
        await asyncio.sleep(before)
        answered = await replies(self, lines, blocked)
        await asyncio.sleep(after)
        return answered

    Connection.replies = waited  # type: ignore[method-assign]
    try:
        yield
    finally:
        Connection.replies = replies  # type: ignore[method-assign]


if __name__ == "__main__":
    from frontends.cli import app

    with late(SEED):
        app(prog_name="stanzaq")
