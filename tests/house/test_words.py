"""Retired words stay retired; docs/glossary.md has those that are the project's own."""

import re
import tokenize
from collections.abc import Iterable
from io import StringIO
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]

RETIRED: Final = {
    "lane": "pipeline",
    "bank": "coordinator",
    "seat": "subscription",
    "bell": "wake-up",
    "bond": "reader ownership",
    "tide": "tail of a log",
    "pulse": "heartbeat",
    "breath": "tick",
    "desk": "request link",
    "wish": "request",
    "hunger": "demand",
    "gift": "grant",
    "sit": "register",
    "vicinity": "collections",
    "lending": "balancer",
    "barren": "exhausted",
    "attendance": "presence",
    "roster": "membership",
    "rounds": "sweeper",
    "muster": "instances",
    "stride": "batch",
    "allotment": "grant",
    "freest": "least loaded",
    "grip": "lock details",
    "blind": "state unknown",
    "checkup": "diagnostics",
    "disown": "ownership loss",
    "enrol": "register",
    "entrust": "move into flight",
    "errand": "pending command",
    "expel": "end subscriptions",
    "foretell": "is due",
    "forgive": "give back credit",
    "hindrance": "validation",
    "inquiry": "first answer",
    "manner": "read options",
    "rescue": "takeover",
    "sights": "views",
    "surroundings": "ports",
    "uproot": "detach",
    "gate": "router",
}
"""Each with its replacement."""

_FORMS: Final = {
    "breath": ("breathe", "breathes"),
    "hunger": ("hungry",),
    "inquiry": ("inquiries",),
    "rescue": ("rescued",),
    "uproot": ("uprooted",),
    "proxy": ("proxies",),
    "seat": ("seated",),
    "sit": ("sitting",),
    "wish": ("wishes", "wished"),
}
_WORDS: Final = {form: word for word in RETIRED for form in (word, f"{word}s", *_FORMS.get(word, ()))}

EVERYDAY: Final = {"bell", "blind", "desk", "roster", "rounds"}
"""Words that tests, examples and benchmarks use in their plain meanings, such as the resource of a JID."""

_NO_NAMES: Final = {
    ".lua": re.compile(r"--[^\n]*|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\""),
    ".js": re.compile(r"//[^\n]*|/\*.*?\*/|'(?:\\.|[^'\\\n])*'|\"(?:\\.|[^\"\\\n])*\"", re.DOTALL),
}
"""Comments and strings: prose may say what it wants."""


def _in(*folders: str) -> list[Path]:
    kinds = {".py", *_NO_NAMES}
    # Not what is installed there.
    return [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and not {".venv", "node_modules"} & set(path.parts)
    ]


def _identifiers(path: Path) -> str:
    """Return the names in a file."""
    text = path.read_text()
    if path.suffix != ".py":
        return _NO_NAMES[path.suffix].sub(" ", text)
    tokens = tokenize.generate_tokens(StringIO(text).readline)
    return " ".join(token.string for token in tokens if token.type == tokenize.NAME)


def _retired(names: str) -> set[str]:
    """Return the retired words in names, and in each part of them."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", names)
    return {_WORDS[word] for word in re.findall(r"[a-z]+", parted.lower()) if word in _WORDS}


def _found(files: Iterable[Path]) -> list[str]:
    """Return the retired words in names of files and in files."""
    names = {path.relative_to(ROOT).as_posix(): path for path in files}
    return sorted(
        f"{name}: {word} (say {RETIRED[word]})"
        for name, path in names.items()
        # A file without such a word at all need not be divided into names and prose.
        if _retired(f"{name} {path.read_text()}")
        for word in _retired(f"{name} {_identifiers(path)}")
    )


def test_retired_words() -> None:
    """No name in the product is of a retired word."""
    assert _found(_in("broker", "frontends", "lua", "stanzaq", "deploy")) == []


def test_retired_words_in_tests() -> None:
    """No name in a test, an example or a benchmark is of a retired word, except those that it has in a plain meaning."""
    found = _found(_in("tests", "examples", "bench"))
    assert [line for line in found if line.rpartition(": ")[2].split()[0] not in EVERYDAY] == []


def test_words_of_names() -> None:
    """A word is found in a name of any case, and not in prose."""
    assert _retired("NodeLane") == _retired("a_lane") == _retired("LANES") == {"lane"}
    assert _retired("planes, seating") == set()
    assert _NO_NAMES[".lua"].sub(" ", "x = 'lane' -- a lane").split() == ["x", "="]
