"""What a sender does about each answer, and about silence. Knows the steps of a message; must not know a stream or a clock.

Two rules keep "exactly once" honest. A message that the receiver does not know when it is to deliver it was lost there and
is sent anew, but only while the receiver would still know it if it had delivered it. And whoever cannot be sure says so.
"""

from dataclasses import dataclass, replace
from enum import Enum, auto
from typing import Final

from frontends.xep_qos.elements import Error, Result
from frontends.xep_qos.outbox import Outstanding, Step

_PASSING: Final = frozenset({"remote-server-not-found", "remote-server-timeout", "service-unavailable"})
"""What servers answer in place of a receiver that cannot be reached. It says nothing of earlier copies, and will pass."""


class Undelivered(Exception):  # noqa: N818  (what became of a message)
    """A message of which its sender must be told; `condition` and `text` are those of the last error, if there was one."""

    def __init__(self, sent: Outstanding, condition: str, text: str = "") -> None:
        """Say what became of a message."""
        super().__init__(f"message {sent.msg_id} to {sent.to}: {condition}{text and f' ({text})'}")
        self.sent = sent
        self.condition = condition
        self.text = text


class Refused(Undelivered):
    """Somebody said no, the receiver or a server on the way: this message was not taken."""


class Unconfirmed(Undelivered):
    """The message may have been taken, or not: it was sent, and nobody ever said yes to it."""


@dataclass(frozen=True, slots=True)
class Timing:
    """How often a request is sent: the first wait for an answer, the longest, and the number of tries of each step.

    `remembered` is how long receivers are sure to know what they have delivered, in seconds as all of these.
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
    """The same, but not sooner than half the time for which the answer would have been waited for."""
    PROCEED = auto()
    """Keep what is sent now, and send its request."""
    DONE = auto()
    """The message is delivered."""


class Exchange:
    """One message, from its first request to its end."""

    def __init__(self, sent: Outstanding, timing: Timing, *, resumed: bool = False) -> None:
        """Begin; or go on, `resumed`, at the step that was reached."""
        self.sent = sent
        self._timing = timing
        self._failures = 0
        self._anew = False
        # Whether a request may have been carried out whose answer was not heard.
        self._unheard = resumed

    @property
    def patience(self) -> float:
        """How many seconds to wait for the answer to this try."""
        # The exponent is bounded because floats are.
        return min(self._timing.first * 2.0 ** min(self._failures, 64), self._timing.cap)

    def speak_as(self, sender: str) -> None:
        """Go on under the full JID that the stream has now; Unconfirmed where the receiver would not recognise it.

        Nothing is delivered before `deliver`, so until then a msgId is as good under a new JID.
        """
        if sender == self.sent.sender:
            return
        if self.sent.step is Step.DELIVER:
            raise Unconfirmed(self.sent, "not-authorized", f"the stream is now {sender}, not {self.sent.sender}")
        self.sent = replace(self.sent, sender=sender)

    def lost(self) -> None:
        """Note that the stream broke before an answer came."""
        self._unheard = True

    def heard(self, answer: Result | Error | None, now: float) -> Move:
        """Judge an answer, None when there was none in time; raise Undelivered when there is nothing left to do."""
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
                # Once only: a receiver that says so again right after <received/> means something else by it.
                self._anew = True
                return self._proceed(Step.ASSURED, now)
            case Error(kind, condition, text), _ if kind == "wait" or condition in _PASSING:
                return self._failed(Move.PAUSE, condition, text)
        assert isinstance(answer, Error)
        # A server on the way that says no to this copy knows nothing of an earlier one. Before `deliver` it does not matter.
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
