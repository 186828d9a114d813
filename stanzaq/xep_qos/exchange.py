"""Decides what a sender does after each answer or time-out. Knows the steps of a message; must not know a stream or a clock.

Two rules make "exactly once" true. If the receiver does not know a message at `deliver`, it was lost there and is sent again,
but only while the receiver would still remember a delivery. In doubt, the sender is told so.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from stanzaq.xep_qos.elements import Error, Result
from stanzaq.xep_qos.outbox import Outstanding, Step

_PASSING: Final = frozenset({"remote-server-not-found", "remote-server-timeout", "service-unavailable"})
"""Errors of servers for a receiver that cannot be reached: temporary, and no statement about earlier copies."""


class Undelivered(Exception):  # noqa: N818  (named after the fate of a message)
    """A message failed and its sender must know; `condition` and `text` are those of the last error, if any."""

    def __init__(self, sent: Outstanding, condition: str, text: str = "") -> None:
        """Describe the failure."""
        super().__init__(f"message {sent.msg_id} to {sent.to}: {condition}{text and f' ({text})'}")
        self.sent = sent
        self.condition = condition
        self.text = text


class Refused(Undelivered):
    """The receiver or a server on the way refused the message: it was not accepted."""


class Unconfirmed(Undelivered):
    """Nobody confirmed the message: it may have been accepted or not."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How often a request is sent: the first wait for an answer, the longest, and the attempts of each step.

    `remembered` is how long receivers remember their deliveries. All times are in seconds.
    """

    first: float
    cap: float
    tries: int
    remembered: float


class Move(Enum):
    """What to do next."""

    REPEAT = auto()
    """Send the same request again."""
    PAUSE = auto()
    """Send it again, but not before half the time-out of the answer has passed."""
    PROCEED = auto()
    """Save the new state, then send its request."""
    DONE = auto()
    """The message is delivered."""


class Exchange:
    """One message, from its first request to its end."""

    def __init__(self, sent: Outstanding, timing: Timing, *, resumed: bool = False) -> None:
        """Begin; with `resumed`, continue at the step that was reached."""
        self.sent = sent
        self._timing = timing
        self._failures = 0
        self._anew = False
        # Whether a request may have succeeded although its answer was lost.
        self._unheard = resumed

    @property
    def patience(self) -> float:
        """The seconds to wait for the answer to this attempt."""
        # The exponent is bounded because floats are.
        return min(self._timing.first * 2.0 ** min(self._failures, 64), self._timing.cap)

    def speak_as(self, sender: str) -> None:
        """Use the stream's new full JID; raises Unconfirmed if the receiver would not recognise it.

        Nothing is delivered before `deliver`, so until then a msgId is valid under a new JID.
        """
        if sender == self.sent.sender:
            return
        if self.sent.step is Step.DELIVER:
            raise Unconfirmed(self.sent, "not-authorized", f"the stream is now {sender}, not {self.sent.sender}")
        self.sent = replace(self.sent, sender=sender)

    def lost(self) -> None:
        """Record that the stream broke before an answer."""
        self._unheard = True

    def heard(self, answer: Result | Error | None, now: float) -> Move:
        """Process an answer, None for a time-out; raises Undelivered when nothing is left to do."""
        match answer, self.sent.step:
            case None, _:
                self._unheard = True
                return self._failed(Move.REPEAT, "remote-server-timeout")
            case Result(received), Step.ASSURED:
                if received != self.sent.msg_id:
                    return self._failed(Move.PAUSE, "undefined-condition", "the answer lacks the message's <received/>")
                return self._proceed(Step.DELIVER, now)
            case Result(), _:
                return Move.DONE
            case Error(condition="item-not-found"), Step.DELIVER if not self._anew:
                if now - self.sent.since > self._timing.remembered:
                    raise Unconfirmed(self.sent, "item-not-found", "too late to tell loss from delivery")
                # Only once: a receiver that repeats it right after <received/> means something else.
                self._anew = True
                return self._proceed(Step.ASSURED, now)
            case Error(kind, condition, text), _ if kind == "wait" or condition in _PASSING:
                return self._failed(Move.PAUSE, condition, text)
        assert isinstance(answer, Error)
        # A server that refuses this copy says nothing about an earlier one. Before `deliver` that does not matter.
        ended = Unconfirmed if self._unheard and self.sent.step is not Step.ASSURED else Refused
        raise ended(self.sent, answer.condition, answer.text)

    def _failed(self, move: Move, condition: str, text: str = "") -> Move:
        self._failures += 1
        if self._failures == self._timing.tries:
            raise Unconfirmed(self.sent, condition, text)
        return move

    def _proceed(self, step: Step, now: float) -> Move:
        self.sent = replace(self.sent, step=step, since=now)
        self._failures = 0
        self._unheard = False
        return Move.PROCEED
