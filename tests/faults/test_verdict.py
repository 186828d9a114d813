"""The verdict finds each kind of violation, and nothing when all is well."""

from collections.abc import Sequence

import pytest

from tests.faults.facts import Fact, What
from tests.faults.story import kept, told
from tests.faults.verdict import lost, violations

LOCK_MS = 4_000
CREDIT = 2
ITEM = "job"
A, B = "a@x/1", "b@x/1"


def received(who: str, since: int, token: int, *, attempt: int = 1, item: str = ITEM) -> Fact:
    """Return the delivery of a lock that was made at `since`; it arrives a little later."""
    return Fact(What.RECEIVED, since + 5, who, item, token, attempt, since + LOCK_MS)


def loss(since: int, until: int) -> Fact:
    """Return the loss of what Redis was told in that time."""
    return Fact(What.FORGOTTEN, since, until_ms=until)


def said(what: What, who: str, at: int, token: int, item: str = ITEM) -> Fact:
    """Return a worker's fact about a lock of its own."""
    return Fact(what, at, who, item, token)


def cut(who: str, at: int, until: int) -> Fact:
    """Return the loss of a connection."""
    return Fact(What.SEVERED, at, who, until_ms=until)


def named(facts: Sequence[Fact]) -> list[tuple[str, str]]:
    """Return the subject and the words of each violation."""
    return [(found.about, found.what.partition(":")[0]) for found in violations(facts, LOCK_MS, CREDIT)]


GOOD = {
    "acknowledged": [
        received(A, 1000, 1),
        said(What.ACKNOWLEDGING, A, 1010, 1),
        said(What.ACKNOWLEDGED, A, 1020, 1),
    ],
    "sent twice": [received(A, 1000, 1), received(A, 1000, 1)],
    "expired": [received(A, 1000, 1), received(B, 1000 + LOCK_MS, 2, attempt=2)],
    "given back": [received(A, 1000, 1), said(What.RELEASING, A, 1010, 1), received(B, 1010, 2, attempt=2)],
    "its worker cut off": [received(A, 1000, 1), cut(A, 1010, 1010), received(B, 1010, 2, attempt=2)],
    "all cut off": [received(A, 1000, 1), cut("", 1010, 1010), received(B, 1010, 2, attempt=2)],
    "made while its worker was cut off": [cut(A, 990, 1010), received(A, 1000, 1), received(B, 1005, 2, attempt=2)],
    "as much as credit": [received(A, 1000, 1, item="i1"), received(A, 1000, 2, item="i2")],
    "one for another": [
        received(A, 1000, 1, item="i1"),
        received(A, 1000, 2, item="i2"),
        said(What.ACKNOWLEDGING, A, 1010, 1, item="i1"),
        received(A, 1010, 3, item="i3"),
    ],
    "done in a second that Redis forgot": [
        received(A, 1000, 1),
        said(What.ACKNOWLEDGING, A, 1010, 1),
        said(What.ACKNOWLEDGED, A, 1020, 1),
        loss(1000, 2000),
        received(B, 2100, 2),
    ],
    "acknowledged late and in vain": [
        received(A, 1000, 1),
        received(B, 1000 + LOCK_MS, 2, attempt=2),
        said(What.ACKNOWLEDGING, A, 1010 + LOCK_MS, 1),
        said(What.REFUSED, A, 1010 + LOCK_MS, 1),
        said(What.ACKNOWLEDGED, B, 1020 + LOCK_MS, 2),
    ],
}

TWO = (ITEM, "two held it at one time")
NO_LATER = (ITEM, "a higher token is no later lock")
OTHER_LOCK = (ITEM, "token 1 names two locks")
BEYOND = (A, "held 3 items at 1001, the credit is 2")

BAD = {
    "two holders": ([received(A, 1000, 1), received(B, 1000 + LOCK_MS - 1, 2, attempt=2)], [TWO]),
    "two holders of what was done before Redis forgot": (
        [loss(9000, 9500), received(A, 1000, 1), received(B, 1000 + LOCK_MS - 1, 2, attempt=2)],
        [TWO],
    ),
    "one token twice, before and after Redis forgot": (
        [received(A, 1000, 1), loss(1000, 2000), received(B, 3000, 1)],
        [OTHER_LOCK],
    ),
    "two holders, one of them twice": ([received(A, 1000, 1), received(A, 1001, 2, attempt=2)], [TWO]),
    "freed before it was given back": (
        [received(A, 1000, 1), said(What.RELEASING, A, 1010, 1), received(B, 1009, 2, attempt=2)],
        [TWO],
    ),
    "freed before its worker was cut off": (
        [received(A, 1000, 1), cut(A, 1010, 1020), received(B, 1009, 2, attempt=2)],
        [TWO],
    ),
    "freed though another was cut off": (
        [received(A, 1000, 1), cut(B, 1010, 1020), received(B, 1030, 2, attempt=2)],
        [TWO],
    ),
    "cut off before it was given": ([cut(A, 900, 999), received(A, 1000, 1), received(B, 1001, 2, attempt=2)], [TWO]),
    "an attempt that is forgotten": ([received(A, 1000, 1, attempt=2), received(B, 1000 + LOCK_MS, 2)], [NO_LATER]),
    "a token that falls": ([received(A, 1000, 2), received(B, 1000 + LOCK_MS, 1, attempt=2)], [TWO, NO_LATER]),
    "one token for two holders": ([received(A, 1000, 1), received(B, 1000, 1)], [OTHER_LOCK]),
    "one token for two deadlines": ([received(A, 1000, 1), received(A, 2000, 1)], [OTHER_LOCK]),
    "more than the credit": ([received(A, 999 + n, n, item=f"i{n}") for n in range(3)], [BEYOND]),
    "acknowledged twice": (
        [
            received(A, 1000, 1),
            received(B, 1000 + LOCK_MS, 2, attempt=2),
            said(What.ACKNOWLEDGED, A, 1010 + LOCK_MS, 1),
            said(What.ACKNOWLEDGED, B, 1020 + LOCK_MS, 2),
        ],
        [(ITEM, "acknowledged twice")],
    ),
    "back after its end": (
        [
            received(A, 1000, 1),
            said(What.ACKNOWLEDGING, A, 1010, 1),
            said(What.ACKNOWLEDGED, A, 1020, 1),
            received(B, 1021, 2, attempt=2),
        ],
        [(ITEM, "came back after its end")],
    ),
}


@pytest.mark.parametrize("name", GOOD)
def test_nothing_to_complain_of(name: str) -> None:
    """A correct service is no violation."""
    assert named(GOOD[name]) == []


@pytest.mark.parametrize("name", BAD)
def test_violations(name: str) -> None:
    """Each kind of violation of guarantees 2 and 3 is found, each by its own name."""
    facts, found = BAD[name]
    assert named(facts) == found


PUBLISHED = Fact(What.PUBLISHED, 1000, item=ITEM)


@pytest.mark.parametrize(
    ("facts", "left", "dead", "found"),
    [
        ([PUBLISHED], [], [], ["lost"]),
        ([], [], [], []),
        ([PUBLISHED], [ITEM], [], []),
        ([PUBLISHED], [], [ITEM], []),
        ([PUBLISHED], [], [ITEM, ITEM], ["doubled"]),
        ([PUBLISHED], [ITEM], [ITEM], ["doubled"]),
        ([PUBLISHED, said(What.ACKNOWLEDGED, A, 1020, 1)], [], [], []),
        ([PUBLISHED, loss(900, 1900)], [], [], []),
        ([PUBLISHED, loss(1001, 1900)], [], [], ["lost"]),
        # Requested and disconnected before the answer: the request may have been carried out.
        ([PUBLISHED, said(What.ACKNOWLEDGING, A, 1010, 1)], [], [], []),
        # Requested and refused.
        ([PUBLISHED, said(What.ACKNOWLEDGING, A, 1010, 1), said(What.REFUSED, A, 1020, 1)], [], [], ["lost"]),
        # A release does not finish an item.
        ([PUBLISHED, said(What.RELEASING, A, 1010, 1), said(What.RELEASED, A, 1020, 1)], [], [], ["lost"]),
    ],
)
def test_lost(facts: list[Fact], left: list[str], dead: list[str], found: list[str]) -> None:
    """Guarantee 1: an item whose publish was answered has an end that somebody saw, or is in one place."""
    assert [each.what for each in lost(facts, left, dead)] == found


def test_story() -> None:
    """A failure has the course of the test, the life of its subject and of no other, the logs, and the keys."""
    facts = [received(A, 1000, 1), received(B, 2000, 2, item="other"), received(A, 1200, 3, item="third")]
    lines = told(facts, {ITEM}, {"frontend 1": "it said so"}).splitlines()
    assert lines[:3] == ["1: 2 received", "2: 1 received", f"--- {ITEM}"]
    assert "token=1" in lines[3]
    assert lines[4:] == ["--- the end of what frontend 1 said", "it said so"]
    assert kept({"sq:a": "1" * 3_000, "sq:b": "2"}).splitlines() == ["--- sq:a", "1" * 2_000, "--- sq:b", "2"]
