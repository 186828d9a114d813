"""A copy of the data is put back under load: what docs/operations.md says comes again, is gone or is refused; nothing else."""

import asyncio
import signal
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from tests.contract.shell import Shell
from tests.faults import verdict
from tests.faults.conftest import Play
from tests.faults.copies import Copy, Held
from tests.faults.facts import Fact, What, now_ms
from tests.faults.player import CREDIT
from tests.faults.stage import Stage
from tests.faults.strikes import SHORT
from tests.faults.verdict import Violation

AGE_SECONDS: Final = 60.0
AWAY_SECONDS: Final = 2.0
"""So long Redis is away: what was answered before is noted by then."""

_ASKING: Final = {What.ACKNOWLEDGING, What.RELEASING}
_ENDED: Final = {What.ACKNOWLEDGED, What.RELEASED}

Lock = tuple[str, int]
"""An item and a token."""


class Lives:
    """The facts of before Redis ended and of after it was back, which begins with what the copy has."""

    def __init__(self, facts: Sequence[Fact], held: Held, ended_ms: int, back_ms: int) -> None:
        """Part them: locks by Redis's time, all else by when it was noted."""
        self._facts, self._held, self._back_ms = facts, held, back_ms
        begun = {lock(fact): fact.expires_ms - SHORT * 1000 for fact in facts if fact.what is What.RECEIVED}
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

    def violations(self, left: Sequence[str], dead: Sequence[str]) -> list[Violation]:
        """Return what is not as the page says."""
        there = {fact.item for fact in self.after if fact.what is What.PUBLISHED}
        late = {lock(fact) for fact in self.since_back(_ASKING)} & (self.former - self.kept)
        most = max(token for _, token in self.former | self.kept)
        return [
            *verdict.violations(self.after, SHORT * 1000, CREDIT),
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


def stop_frontends(stage: Stage) -> None:
    """Stop all of them in order; they are started again by the supervisor."""
    for frontend in stage.house.frontends:
        frontend.doomed = True
        frontend.process._child.send_signal(signal.SIGTERM)
    for frontend in stage.house.frontends:
        frontend.process._child.wait()


@pytest.mark.soak
@pytest.mark.parametrize("stopped", [False, True], ids=["running", "stopped"])
def test_a_copy_is_put_back(play: Play, tmp_path: Path, *, stopped: bool) -> None:
    """Issue 56: a copy that is a minute old; frontends run on, and recover by themselves, or are stopped as they should be."""
    with play(SHORT) as stage:
        server = stage.house.redis
        # So that items wait and are held in the copy.
        for worker in stage.workers:
            worker.process.pause()
        stage.rest(0.5)
        copy = Copy(server, tmp_path / "copy")
        with stage.forgetting():
            for worker in stage.workers:
                worker.process.resume()
            held = copy.held(stage.node)
            stage.rest(AGE_SECONDS)
            # What this worker has been given it acknowledges late.
            slow = stage.workers[0].process
            slow.pause()
            stage.rest(0.5)
            if stopped:
                stop_frontends(stage)
            ended_ms = now_ms()
            server.kill()
        copy.put_back()
        time.sleep(AWAY_SECONDS)
        back_ms = now_ms()
        server.start()
        restored = asyncio.run(Shell(server.url)("restore", "--json"))
        assert restored.json["partitions"], restored
        slow.resume()
        stage.heal()
        stage.recover()
        stage.settle()
        stage.evidence.refresh()
        lives = Lives(stage.evidence.facts, held, ended_ms, back_ms)
        found = lives.violations(*asyncio.run(stage._left()))
        assert not found, stage._story({each.about for each in found}) + "\n".join(map(str, found))
        assert all(lives.met().values()), lives.met()
