"""Attempts on an item that ended without an acknowledgement, and how a dead letter's header tells them. Pure."""

import json
import re
from collections.abc import Iterable
from typing import Final

from broker.model.frozen import frozen
from broker.model.names import Jid
from broker.model.times import moment

_LINE: Final = re.compile(rb"([0-9]{1,13}) ([a-z]+) ([0-9]{1,4}) (.*)", re.DOTALL)


@frozen
class Attempt:
    """One attempt: its end by Redis's clock, its outcome (`released`, `expired` or `bounced`), its holder, and the reason."""

    ended_ms: int
    outcome: str
    holder: Jid
    reason: str

    def to_json(self) -> dict[str, str]:
        """Return it as clients see it."""
        return {
            "ended": moment(self.ended_ms),
            "outcome": self.outcome,
            "holder": self.holder,
            "reason": self.reason,
        }


def read(lines: bytes) -> tuple[Attempt, ...]:
    """Read the lines of an operation (lua/lib/locks/attempt_history.lua); a corrupt one must not hold up a dead letter."""
    found = map(_LINE.fullmatch, lines.split(b"\n"))
    return tuple(_attempt(*line.groups()) for line in found if line)


def _attempt(ended: bytes, outcome: bytes, length: bytes, rest: bytes) -> Attempt:
    holder, reason = rest[: int(length)], rest[int(length) + 1 :]
    return Attempt(int(ended), outcome.decode(), Jid(holder.decode(errors="replace")), reason.decode(errors="replace"))


def to_header(attempts: Iterable[Attempt]) -> str:
    """Return them as the value of a header: a list of objects in JSON, in ASCII, the oldest first."""
    return json.dumps([each.to_json() for each in attempts], separators=(",", ":"))


def from_header(value: str) -> list[dict[str, str]]:
    """Read what `to_header` wrote; empty for anything else."""
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        return []
    names = Attempt(0, "", Jid(""), "").to_json().keys()
    fits = isinstance(found, list) and all(
        isinstance(each, dict) and each.keys() == names and all(isinstance(text, str) for text in each.values())
        for each in found
    )
    return found if fits else []
