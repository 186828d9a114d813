"""A copy of the data is put back under load: what docs/operations.md says comes again, is gone or is refused; nothing else."""

import asyncio
import signal
import time
from pathlib import Path
from typing import Final

import pytest

from tests.contract.shell import Shell
from tests.faults.conftest import Play
from tests.faults.copies import Copy
from tests.faults.facts import Fact, What, now_ms
from tests.faults.lives import Held, Lives
from tests.faults.player import CREDIT
from tests.faults.stage import Stage
from tests.faults.strikes import SHORT

AGE_SECONDS: Final = 60.0
AWAY_SECONDS: Final = 2.0
"""So long Redis is away: what was answered before is noted by then."""


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
        lives = Lives(stage.evidence.facts, held, ended_ms, back_ms, SHORT * 1000)
        found = lives.violations(*asyncio.run(stage._left()), CREDIT)
        assert not found, stage._story({each.about for each in found}) + "\n".join(map(str, found))
        assert all(lives.met().values()), lives.met()


ENDED_MS, BACK_MS, LOCK_MS = 20_000, 30_000, SHORT * 1000
HELD = Held({"waits", "held"}, {"held": 10_000}, {"dead"})
A, B = "a@x/1", "b@x/1"


def received(item: str, token: int, who: str = A, *, attempt: int = 1) -> Fact:
    """Return a delivery; its token tells when it was made."""
    return Fact(What.RECEIVED, token + 5, who, item, token, attempt, token + LOCK_MS)


def said(what: What, item: str, token: int, at: int) -> Fact:
    """Return what a worker asked for, or was told."""
    return Fact(what, at, A, item, token)


def done(item: str, token: int, at: int) -> list[Fact]:
    """Return an acknowledgement."""
    return [said(What.ACKNOWLEDGING, item, token, at), said(What.ACKNOWLEDGED, item, token, at + 1)]


BEFORE = [
    received("held", 10_000),
    *done("held", 10_000, 12_000),
    received("waits", 13_000),
    *done("waits", 13_000, 13_500),
    Fact(What.PUBLISHED, 14_000, item="gone"),
    received("gone", 19_000),
]
AFTER = [
    received("waits", 31_000),
    *done("waits", 31_000, 31_500),
    received("held", 32_000, attempt=2),
    *done("held", 32_000, 32_500),
    said(What.ACKNOWLEDGING, "gone", 19_000, 33_000),
    said(What.REFUSED, "gone", 19_000, 33_001),
]


@pytest.mark.parametrize(
    ("more", "found"),
    [
        ([], []),
        ([Fact(What.PUBLISHED, 34_000, item="gone"), received("gone", 35_000), *done("gone", 35_000, 35_500)], []),
        ([received("gone", 35_000)], ["was gone, and came"]),
        ([Fact(What.PUBLISHED, 34_000, item="new")], ["lost"]),
        ([said(What.ACKNOWLEDGED, "gone", 19_000, 33_002)], ["a lock of after the copy counted"]),
        ([received("waits", 36_000, attempt=2)], ["came back after its end"]),
        ([received("held", 31_000, B, attempt=2)], ["two held it at one time"]),
    ],
)
def test_lives(more: list[Fact], found: list[str]) -> None:
    """What comes though it was gone, is lost, counts though it was given after the copy, or is held twice is found."""
    lives = Lives([*BEFORE, *AFTER, *more], HELD, ENDED_MS, BACK_MS, LOCK_MS)
    assert [each.what.partition(":")[0] for each in lives.violations([], ["dead"], CREDIT)] == found


def test_lives_of_what_is_not_there() -> None:
    """What the copy had and nobody gets is lost; a token below an earlier one is found."""
    lives = Lives([*BEFORE, received("waits", 31_000)], HELD, ENDED_MS, BACK_MS, LOCK_MS)
    assert {(each.about, each.what) for each in lives.violations([], ["dead"], CREDIT)} == {
        ("waits", "lost"),
        ("held", "lost"),
    }
    early = Fact(What.RECEIVED, 31_000, A, "waits", 9_000, 1, 31_000 + LOCK_MS)
    lives = Lives([*BEFORE, *AFTER[2:], early, *done("waits", 9_000, 31_500)], HELD, ENDED_MS, BACK_MS, LOCK_MS)
    assert [each.what for each in lives.violations([], ["dead"], CREDIT)] == ["token 9000 is not above 19000"]
