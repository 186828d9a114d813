"""The text of a failure: the course of the test, and all facts about whatever went wrong. Pure."""

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from tests.faults.facts import Fact

_LOG_CHARACTERS: Final = 4_000
_KEY_CHARACTERS: Final = 2_000
_MOST: Final = 10
"""More failures than this have one cause."""


def told(facts: Sequence[Fact], about: Collection[str], logs: Mapping[str, str]) -> str:
    """Return the events of each second, the life of the items and accounts in question, and the logs."""
    return "\n".join([*_course(facts), *_lives(facts, about), *_ends(logs)])


def kept(keys: Mapping[str, str]) -> str:
    """Return Redis's keys and values."""
    return "\n".join(f"--- {key}\n{value[:_KEY_CHARACTERS]}" for key, value in keys.items())


def _course(facts: Sequence[Fact]) -> Iterator[str]:
    seconds: dict[int, Counter[str]] = {}
    for fact in facts:
        seconds.setdefault(fact.at_ms // 1000, Counter())[fact.what.value] += 1
    for second, seen in sorted(seconds.items()):
        yield f"{second}: " + ", ".join(f"{number} {what}" for what, number in sorted(seen.items()))


def _lives(facts: Sequence[Fact], about: Collection[str]) -> Iterator[str]:
    for name in sorted(about)[:_MOST]:
        yield f"--- {name}"
        for fact in sorted(facts, key=lambda fact: fact.at_ms):
            if name in {fact.item, fact.who}:
                yield str(fact)


def _ends(logs: Mapping[str, str]) -> Iterator[str]:
    for name, text in logs.items():
        yield f"--- the end of what {name} said\n{text[-_LOG_CHARACTERS:]}"
