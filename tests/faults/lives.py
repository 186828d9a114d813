"""Judges the evidence of a play in which a copy of the data was put back, by what docs/operations.md says of that. Pure.

What happened until Redis ended counts no more, but for what the copy has: with that a second life begins, in which the
guarantees hold as in any other. What was in neither must not come, and no lock that was given meanwhile may count.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from tests.faults import verdict
from tests.faults.facts import Fact, What
from tests.faults.verdict import Violation

_ASKING: Final = {What.ACKNOWLEDGING, What.RELEASING}
_ENDED: Final = {What.ACKNOWLEDGED, What.RELEASED}

Lock = tuple[str, int]
"""An item and a token."""


@dataclass(frozen=True, slots=True)
class Held:
    """What a copy has of a queue: its items, the tokens of those that are locked, and its dead letters."""

    items: set[str]
    tokens: dict[str, int]
    dead: set[str]


class Lives:
    """The facts of before Redis ended and of after it was back, which begins with what the copy has."""

    def __init__(self, facts: Sequence[Fact], held: Held, ended_ms: int, back_ms: int, lock_ms: int) -> None:
        """Part them: locks by Redis's time, all else by when it was noted."""
        self._facts, self._held, self._back_ms, self._lock_ms = facts, held, back_ms, lock_ms
        begun = {lock(fact): fact.expires_ms - lock_ms for fact in facts if fact.what is What.RECEIVED}
        self.kept: set[Lock] = set(held.tokens.items())
        self.former = {each for each, since_ms in begun.items() if since_ms < ended_ms}
        self.new = begun.keys() - self.former
        self.answered = {lock(fact) for fact in self.since_back({*_ENDED, What.REFUSED})}
        self.after = [*self._from_copy(), *filter(self._is_after, facts)]

    def _from_copy(self) -> list[Fact]:
        return [Fact(What.PUBLISHED, self._back_ms, item=item) for item in self._held.items | self._held.dead]

    def _is_after(self, fact: Fact) -> bool:
        if not fact.token:
            return fact.at_ms >= self._back_ms
        if lock(fact) not in self.kept:
            return lock(fact) in self.new
        asked_again = fact.what in _ASKING and lock(fact) in self.answered
        return fact.what is What.RECEIVED or asked_again or fact.at_ms >= self._back_ms

    def violations(self, left: Sequence[str], dead: Sequence[str], credit: int) -> list[Violation]:
        """Return what is not as the page says; `left` and `dead` are as for `verdict.lost`."""
        there = {fact.item for fact in self.after if fact.what is What.PUBLISHED}
        late = {lock(fact) for fact in self.since_back(_ASKING)} & (self.former - self.kept)
        most = max(token for _, token in self.former | self.kept)
        return [
            *verdict.violations(self.after, self._lock_ms, credit),
            *verdict.lost(self.after, left, dead),
            *(Violation(item, "was gone, and came") for item, _ in self.new if item not in there),
            *(Violation(item, f"token {token} is not above {most}") for item, token in self.new if token <= most),
            *(
                Violation(fact.item, f"a lock of after the copy counted: {fact}")
                for fact in self.since_back(_ENDED)
                if lock(fact) in late
            ),
        ]

    def met(self) -> dict[str, int]:
        """Count the items that lines of the page are about."""
        asked = {lock(fact) for fact in self.since_back(_ASKING)}
        refused = {lock(fact) for fact in self.since_back({What.REFUSED})}
        return {
            "came again": len(self._lost(What.ACKNOWLEDGED) & self._held.items),
            "gone": len(self._lost(What.PUBLISHED) - self._held.items - self._held.dead),
            "refused": len(asked & refused & (self.former - self.kept)),
            "published afterwards": len(self.since_back({What.PUBLISHED})),
        }

    def _lost(self, what: What) -> set[str]:
        """Return the items of which Redis has lost this."""
        (loss,) = (fact for fact in self._facts if fact.what is What.FORGOTTEN)
        return {fact.item for fact in self._facts if fact.what is what and loss.at_ms <= fact.at_ms < self._back_ms}

    def since_back(self, kinds: set[What]) -> list[Fact]:
        """Return the facts of these kinds that were noted after Redis was back."""
        return [fact for fact in self._facts if fact.what in kinds and fact.at_ms >= self._back_ms]


def lock(fact: Fact) -> Lock:
    """Return the lock that a fact is about."""
    return fact.item, fact.token
