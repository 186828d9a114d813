"""The fate of an item whose handler fails: it is retried after a delay, or becomes a dead letter. Pure."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from stanzaq.durations import Duration, seconds

MAX_DELAY_SECONDS: Final = 43_200.0
"""The longest delay that the service accepts for a returned item."""


class Reject(Exception):  # noqa: N818  (it is raised to say what is to be done, as StopIteration is)
    """Raised by a handler: the item becomes a dead letter at once, with this reason."""


class Retry(Exception):  # noqa: N818
    """How failed items are retried: the policy of a task, or raised by a handler to choose the `delay` of this attempt.

    `attempts` is the most attempts per item; None leaves it to the node (`stanzaq#max_deliveries`). The first delay is
    `delay`, each further one is `backoff` times as long, up to `limit`. `jitter` shortens each at random by up to half.
    """

    def __init__(
        self,
        attempts: int | None = None,
        *,
        delay: Duration = "1s",
        backoff: float = 2.0,
        limit: Duration = "10m",
        jitter: bool = True,
    ) -> None:
        """Check the values; raises ValueError."""
        if attempts is not None and attempts < 1:
            msg = f"attempts={attempts}: an item is tried at least once"
            raise ValueError(msg)
        if backoff < 1:
            msg = f"backoff={backoff}: each delay is at least as long as the one before"
            raise ValueError(msg)
        self.attempts = attempts
        self.delay = seconds(delay)
        self.backoff = backoff
        self.limit = min(seconds(limit), MAX_DELAY_SECONDS)
        self.jitter = jitter
        # Exceptions are made again from these arguments when they come from another process.
        super().__init__(attempts)

    def __str__(self) -> str:
        """Return what it asks for."""
        return f"again after {self.delay:g} s"

    def delay_after(self, attempt: int, chance: Callable[[], float] = random.random) -> float:
        """Return the delay in seconds after a failed attempt, counted from 1; `chance` returns 0 to 1."""
        # The exponent is limited because a float holds at most 2^1023.
        delay = min(self.limit, self.delay * self.backoff ** min(attempt - 1, 64))
        return delay * (1 + chance()) / 2 if self.jitter else delay


@dataclass(frozen=True, slots=True)
class Release:
    """How an item is returned: for another attempt after `delay` seconds, or as a dead letter, with a reason.

    Where there are no dead letters, it is the node that says when a dead item comes again. `untried`: nobody has begun to work on
    it, so it does not count as an attempt.
    """

    reason: str
    delay: float = 0.0
    dead: bool = False
    untried: bool = False


class ProcessDiedError(RuntimeError):
    """The process of a job has died; nobody knows of what."""


class UnsentError(Exception):
    """What was raised in another process and cannot be made again here: its text, and its class as far as that is known here."""

    def __init__(self, kind: type[BaseException], name: str, text: str) -> None:
        """Keep the nearest known class, and the name of its own."""
        super().__init__(kind, name, text)
        self.kind = kind
        self.name = name

    def __str__(self) -> str:
        """Return what it said."""
        return str(self.args[2])


@dataclass(frozen=True, slots=True)
class Kinds:
    """Which exceptions are followed by another attempt, by their classes: all, or `only` some, but those of `never`.

    Who raises a Retry or a Reject decides it. A process that dies has raised nothing, and is treated as a worker that dies.
    """

    only: tuple[type[Exception], ...] | None = None
    never: tuple[type[Exception], ...] = ()

    def retries(self, fault: BaseException) -> bool:
        """Return whether an attempt that raised this is followed by another."""
        kind = fault.kind if isinstance(fault, UnsentError) else type(fault)
        if issubclass(kind, (Retry, Reject, ProcessDiedError)):
            return not issubclass(kind, Reject)
        return not issubclass(kind, self.never) and (self.only is None or issubclass(kind, self.only))


ALL_KINDS: Final = Kinds()


def decide_before(attempt: int, policy: Retry) -> Release | None:
    """Return how to return an item whose earlier attempts have used up the policy's; None if its handler may run."""
    if policy.attempts is None or attempt <= policy.attempts:
        return None
    return Release(
        f"attempt {attempt} of {policy.attempts}: the earlier ones ended without a word of the worker", dead=True
    )


def decide_return(
    fault: BaseException, attempt: int, max_attempts: int, policy: Retry, kinds: Kinds = ALL_KINDS
) -> Release:
    """Decide how to return an item whose handler raised `fault`; `max_attempts` 0 is no limit."""
    cause = fault.__cause__ if isinstance(fault, Retry) and fault.__cause__ else fault
    reason = f"{cause.name if isinstance(cause, UnsentError) else type(cause).__name__}: {_text(cause)}"
    if isinstance(fault, Reject):
        return Release(_text(fault) or "rejected", dead=True)
    if not kinds.retries(fault):
        return Release(f"not retried: {reason}", dead=True)
    if 0 < max_attempts <= attempt:
        return Release(f"attempt {attempt} of {max_attempts} failed: {reason}", dead=True)
    delay = fault.delay if isinstance(fault, Retry) else policy.delay_after(attempt)
    return Release(reason, min(delay, MAX_DELAY_SECONDS))


def _text(fault: BaseException) -> str:
    """Return what an exception says, even if it fails at that."""
    try:
        return str(fault)
    except Exception:  # noqa: BLE001  (it is anybody's)
        return f"a {type(fault).__name__} that has no text"
