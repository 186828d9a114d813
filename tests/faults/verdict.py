"""Judges the evidence: the guarantees as questions to a list of facts. Pure; must not know who wrote it.

A lock began one lock time before it expires: both are Redis's time, and nothing here renews. It was *surely* held from
then until it expired, its holder ended it, or its holder was disconnected, whichever came first. An item that is surely
held twice at one time had two holders, and a surely held excess exceeds the credit, however late stanzas came.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

from tests.faults.facts import Fact, What

_GIVEN_UP = {What.ACKNOWLEDGING, What.RELEASING}

_LATE_MS = 2_000
"""A client may learn so much later of what Redis was told."""


@dataclass(frozen=True, slots=True)
class Hold:
    """A lock as its holder saw it, and the time in which it was surely in force."""

    who: str
    item: str
    token: int
    attempt: int
    since_ms: int
    until_ms: int


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation, and the item or account concerned."""

    about: str
    what: str


def violations(facts: Sequence[Fact], lock_ms: int, credit: int) -> list[Violation]:
    """Return the violations; none for a correct service."""
    forgiven = forgotten(facts)
    held = [hold for hold in holds(facts, lock_ms) if hold.item not in forgiven]
    return [*_ambiguous(facts), *_overlapping(held), *_beyond_credit(held, credit), *_done_twice(facts, held, forgiven)]


def forgotten(facts: Iterable[Fact]) -> set[str]:
    """Return the items with events that Redis may have lost."""
    known = list(facts)
    lost = [(fact.at_ms, fact.until_ms + _LATE_MS) for fact in known if fact.what is What.FORGOTTEN]
    return {fact.item for fact in known if fact.item and any(since <= fact.at_ms <= until for since, until in lost)}


def lost(facts: Iterable[Fact], left: Sequence[str], dead: Sequence[str]) -> list[Violation]:
    """Return items whose publish was answered and which are gone, though no worker has seen their end (guarantee 1).

    `left` are still in the queue, `dead` among its dead letters, where each may be once.

    A worker that asked and was disconnected before an answer counts too: its request may have been carried out.
    """
    published, confirmed, asked, told = set[str](), set[str](), set[tuple[str, int]](), set[tuple[str, int]]()
    known = list(facts)
    forgiven = forgotten(known)
    for fact in known:
        match fact.what:
            case What.PUBLISHED:
                published.add(fact.item)
            case What.ACKNOWLEDGED:
                confirmed.add(fact.item)
                told.add((fact.item, fact.token))
            case What.REFUSED:
                told.add((fact.item, fact.token))
            case What.ACKNOWLEDGING:
                asked.add((fact.item, fact.token))
    gone = published - confirmed - {*left, *dead} - {item for item, _token in asked - told} - forgiven
    several = {item for item, times in Counter([*left, *dead]).items() if times > 1} - forgiven
    return [
        *(Violation(item, "lost") for item in sorted(gone)),
        *(Violation(item, "doubled") for item in sorted(several)),
    ]


def holds(facts: Sequence[Fact], lock_ms: int) -> list[Hold]:
    """Return the locks in the facts, in the order of their tokens."""
    severed = sorted((fact.at_ms, fact.until_ms, fact.who) for fact in facts if fact.what is What.SEVERED)
    given_up: dict[tuple[str, int], int] = {}
    for fact in facts:
        if fact.what in _GIVEN_UP:
            given_up.setdefault((fact.item, fact.token), fact.at_ms)
    # A repeated delivery with the same token is the same lock.
    received = {(fact.item, fact.token): fact for fact in facts if fact.what is What.RECEIVED}
    found = []
    for name, fact in received.items():
        since = fact.expires_ms - lock_ms
        ends = [fact.expires_ms, given_up.get(name, fact.expires_ms)]
        # What was given out while connections were being cut may be free at once.
        ends += [max(at, since) for at, until, who in severed if who in {"", fact.who} and until >= since][:1]
        found.append(Hold(fact.who, fact.item, fact.token, fact.attempt, since, min(ends)))
    return sorted(found, key=lambda hold: hold.token)


def _ambiguous(facts: Iterable[Fact]) -> Iterator[Violation]:
    """Find tokens that name more than one lock: one holder, one attempt, one deadline."""
    seen: dict[tuple[str, int], tuple[str, int, int]] = {}
    for fact in facts:
        if fact.what is What.RECEIVED:
            lock = fact.who, fact.attempt, fact.expires_ms
            if seen.setdefault((fact.item, fact.token), lock) != lock:
                both = f"{seen[fact.item, fact.token]} and {lock}"
                yield Violation(fact.item, f"token {fact.token} names two locks: {both}")


def _overlapping(held: Iterable[Hold]) -> Iterator[Violation]:
    """One holder (guarantee 2), and later locks have higher tokens, and no lower attempts: some deliveries are none."""
    by_item: defaultdict[str, list[Hold]] = defaultdict(list)
    for hold in held:
        by_item[hold.item].append(hold)
    for item, locks in by_item.items():
        for first, second in pairwise(locks):
            if second.since_ms < first.until_ms:
                yield Violation(item, f"two held it at one time: {first} and {second}")
            if second.attempt < first.attempt or second.since_ms < first.since_ms:
                yield Violation(item, f"a higher token is no later lock: {first} and {second}")


def _beyond_credit(held: Iterable[Hold], credit: int) -> Iterator[Violation]:
    """At no instant does a subscriber hold more than its credit (guarantee 3)."""
    changes: defaultdict[str, list[tuple[int, int]]] = defaultdict(list)
    for hold in held:
        if hold.since_ms < hold.until_ms:
            # At one instant ends come before beginnings: the script that frees an item hands out the next.
            changes[hold.who] += [(hold.since_ms, 1), (hold.until_ms, -1)]
    for who, steps in changes.items():
        count = 0
        for at, step in sorted(steps):
            count += step
            if count > credit:
                yield Violation(who, f"held {count} items at {at}, the credit is {credit}")


def _done_twice(facts: Iterable[Fact], held: Iterable[Hold], forgiven: set[str]) -> Iterator[Violation]:
    """Return items that were delivered again after their acknowledgement, which must be gone."""
    done: dict[str, Fact] = {}
    for fact in facts:
        if fact.item in forgiven:
            continue
        if fact.what is What.ACKNOWLEDGED and done.setdefault(fact.item, fact).token != fact.token:
            yield Violation(fact.item, f"acknowledged twice: {done[fact.item]} and {fact}")
    for hold in held:
        end = done.get(hold.item)
        if end is not None and hold.since_ms > end.at_ms:
            yield Violation(hold.item, f"came back after its end: {end} and {hold}")
