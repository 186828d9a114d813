"""Limits each JID's request rate at this frontend, by token buckets. Pure but for its clock; must not know requests."""

import math
import time
from collections.abc import Callable
from typing import Final

from broker.model.names import Jid

KNOWN_MOST: Final = 10_000
"""The most buckets to keep; beyond that, full ones are dropped, which changes nothing."""


class RateLimit:
    """The buckets, each for one second's requests."""

    def __init__(self, rate: float, clock: Callable[[], float] = time.monotonic) -> None:
        """Allow each JID `rate` requests a second; 0 means no limit."""
        self._rate = rate
        self._most = max(1.0, rate)
        self._clock = clock
        self._buckets: dict[Jid, tuple[float, float]] = {}

    def wait(self, jid: Jid) -> int:
        """Take a token; returns 0 if there was one, else the whole seconds until there is."""
        if not self._rate:
            return 0
        now = self._clock()
        level = self._level(jid, now)
        if level < 1:
            return math.ceil((1 - level) / self._rate)
        if len(self._buckets) >= KNOWN_MOST and jid not in self._buckets:
            self._buckets = {
                each: bucket for each, bucket in self._buckets.items() if self._level(each, now) < self._most
            }
        self._buckets[jid] = (level - 1, now)
        return 0

    def _level(self, jid: Jid, now: float) -> float:
        level, since = self._buckets.get(jid, (self._most, now))
        return min(self._most, level + (now - since) * self._rate)
