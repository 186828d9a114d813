"""Growing, jittered delays between attempts. Pure."""

import random


class Backoff:
    """Delays in seconds that double with each attempt, each shortened at random by up to half."""

    def __init__(self, first: float, longest: float) -> None:
        """Start with `first`."""
        self._first = first
        self._longest = longest
        self._next = first

    def delay(self) -> float:
        """Return the next delay."""
        length, self._next = self._next, min(self._longest, self._next * 2)
        return length * random.uniform(0.5, 1.0)  # noqa: S311  (guards nothing)

    def reset(self) -> None:
        """Start again with the first delay, after a success."""
        self._next = self._first
