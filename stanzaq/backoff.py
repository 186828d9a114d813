"""Growing, jittered delays between tries. Pure."""

import random


class Backoff:
    """Delays in seconds that double from try to try, each between half of its length and all of it."""

    def __init__(self, first: float, longest: float) -> None:
        """Begin with `first`."""
        self._first = first
        self._longest = longest
        self._next = first

    def delay(self) -> float:
        """Give the next delay."""
        length, self._next = self._next, min(self._longest, self._next * 2)
        return length * random.uniform(0.5, 1.0)  # noqa: S311  (guards nothing)

    def reset(self) -> None:
        """Begin anew, after a success."""
        self._next = self._first
