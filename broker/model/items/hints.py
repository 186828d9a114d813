"""What a publisher may request: a delay, a priority, a time to live, a reply, items to wait for, durability. Values only."""

import time
from dataclasses import field
from typing import Final, Self

from broker.model.frozen import frozen
from broker.model.items.dependencies import NO_DEPENDENCIES, Dependencies
from broker.model.items.durability import Durability
from broker.model.items.outcomes import ReplyMode
from broker.model.problems import MalformedRequest, Problem
from broker.model.times import read_moment

USUAL_PRIORITY: Final = 4
"""The default of JMS and AMQP: 0 is the lowest, 9 the highest."""

MOST_PRIORITY: Final = 9
MOST_SECONDS: Final = 366 * 86_400
"""The longest delay, and the longest time to live."""


@frozen
class Hints:
    """Delay, priority and time to live; both times count from the publish, and a time to live of 0 is none.

    `reply` is how the publisher wants to learn of the end of the item; `after` names items that it waits for. `at_ms` is the
    time that it gave in place of a delay, which is what was left of it. `confirm` says how durable the item is to be before the
    publish is answered, None: as its node says; it is of the publish and not of the item, so records do not have it.
    """

    delay_ms: int = 0
    priority: int = USUAL_PRIORITY
    ttl_ms: int = 0
    reply: ReplyMode = ReplyMode.NONE
    after: Dependencies = NO_DEPENDENCIES
    at_ms: int | None = field(default=None, compare=False)
    confirm: Durability | None = field(default=None, compare=False)

    @classmethod
    def validate(  # noqa: PLR0913  (what a client may give)
        cls,
        delay_ms: int | None,
        priority: int | None,
        ttl_ms: int | None,
        reply: ReplyMode = ReplyMode.NONE,
        after: Dependencies = NO_DEPENDENCIES,
        *,
        at: str | int | None = None,
        confirm: str | None = None,
    ) -> Self:
        """Check a client's values, None for those it does not give; raises MalformedRequest.

        `at` is a time as text or in ms; one in the past is no delay. `confirm` is the name of a durability.
        """
        at_ms = None if at is None else _moment(at)
        if at_ms is not None and delay_ms is not None:
            raise MalformedRequest(Problem.BAD_REQUEST, "give a delay or a time, not both")
        delay = (delay_ms or 0) if at_ms is None else ms_until(at_ms)
        rank = USUAL_PRIORITY if priority is None else priority
        if not 0 <= rank <= MOST_PRIORITY:
            raise MalformedRequest(Problem.BAD_REQUEST, f"a priority is 0 to {MOST_PRIORITY}")
        if not 0 <= delay <= MOST_SECONDS * 1000:
            raise MalformedRequest(Problem.BAD_REQUEST, f"a delay is 0 to {MOST_SECONDS} seconds")
        if ttl_ms is not None and not delay < ttl_ms <= MOST_SECONDS * 1000:
            said = f"a time to live is longer than the delay, and at most {MOST_SECONDS} seconds"
            raise MalformedRequest(Problem.BAD_REQUEST, said)
        return cls(delay, rank, ttl_ms or 0, reply, after, at_ms, None if confirm is None else _durability(confirm))

    def __str__(self) -> str:
        """Return them as in records: nothing for the defaults, else three numbers, one for a reply, and a word for `after`.

        A time stands, after an `@`, for its delay, so that it stays the same however late it is read.
        """
        if self.at_ms is None and self == NO_HINTS:
            return ""
        times = self.times if self.at_ms is None else f"@{self.at_ms} {self.priority} {self.ttl_ms}"
        if self.after:
            return f"{times} {self.reply:d} {self.after}"
        return f"{times} {self.reply:d}" if self.reply else times

    @property
    def times(self) -> str:
        """Return delay, priority and time to live, as three numbers."""
        return f"{self.delay_ms} {self.priority} {self.ttl_ms}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote."""
        if not text:
            return cls()
        delay, priority, ttl, *others = text.split(" ")
        reply, after = (*others, *("0", "")[len(others) :])
        at_ms = int(delay[1:]) if delay.startswith("@") else None
        delay_ms = int(delay) if at_ms is None else ms_until(at_ms)
        return cls(delay_ms, int(priority), int(ttl), ReplyMode(int(reply)), Dependencies.parse(after), at_ms)


NO_HINTS: Final = Hints()


def _moment(at: str | int) -> int:
    try:
        return read_moment(at) if isinstance(at, str) else at
    except ValueError as wrong:
        raise MalformedRequest(Problem.BAD_REQUEST, str(wrong)) from None


def _durability(name: str) -> Durability:
    try:
        return Durability(name)
    except ValueError:
        known = ", ".join(each.value for each in Durability)
        raise MalformedRequest(Problem.BAD_REQUEST, f"confirm is one of {known}") from None


def ms_until(at_ms: int) -> int:
    """Return how long it is until a time, 0 if it is past."""
    return max(0, at_ms - int(time.time() * 1000))
