"""Retired words stay retired; docs/glossary.md has those that are the project's own."""

import re
from collections.abc import Iterable
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
"""Words that tests and examples use in their plain meanings: the resource of a JID."""

ALLOWED: Final = {
    ("README.md", "roster"): "an access model of XEP-0060",
    ("deploy/local/ejabberd.yml", "roster"): "a module of ejabberd",
    ("docs/ejabberd.md", "roster"): "a module of ejabberd",
    ("docs/prosody.md", "roster"): "a module of Prosody",
}
"""Where a word has another, standard meaning, and which."""


def _files() -> list[Path]:
    kinds = {".py", ".md", ".lua", ".js", ".css", ".html", ".yml", ".yaml", ".json", ".sh", ".tpl", ".toml", ".patch"}
    return sorted([*_in("broker", "frontends", "lua", "stanzaq", "docs", "deploy", kinds=kinds), *ROOT.glob("*.md")])


def _in(*folders: str, kinds: set[str]) -> list[Path]:
    # Not what is installed there.
    return [
        path
        for folder in folders
        for path in (ROOT / folder).rglob("*")
        if path.suffix in kinds and not {".venv", "node_modules"} & set(path.parts)
    ]


def _said(text: str) -> set[str]:
    """Return the words of a text, and each part of its names."""
    parted = re.sub(r"(?<=[a-z])(?=[A-Z])", " ", text)
    return {_WORDS[word] for word in re.findall(r"[a-z]+", parted.lower()) if word in _WORDS}


def _found(files: Iterable[Path]) -> set[tuple[str, str]]:
    """Return the retired words in files and in their names."""
    names = {path.relative_to(ROOT).as_posix(): path for path in files}
    return {(name, word) for name, path in names.items() for word in _said(f"{name} {path.read_text()}")}


def test_retired_words() -> None:
    """No code, comment, document, metric or log event has a retired word, except in another meaning."""
    found = _found(_files())
    assert sorted(f"{path}: {word} (say {RETIRED[word]})" for path, word in found - ALLOWED.keys()) == []
    assert sorted(ALLOWED.keys() - found) == [], "no more exceptions than there are"


def test_retired_words_in_tests() -> None:
    """No test, example or comparison with others has a retired word, except those that it has in a plain meaning."""
    files = set(_in("tests", "examples", "bench", kinds={".py", ".md", ".sh"})) - {Path(__file__).resolve()}
    found = _found(files)
    assert sorted(f"{path}: {word} (say {RETIRED[word]})" for path, word in found if word not in EVERYDAY) == []


def test_words_of_names() -> None:
    """A word is found in a name of any case."""
    assert _said("NodeLane") == _said("a_lane") == _said("LANES") == {"lane"}
    assert _said("planes, seating") == set()
