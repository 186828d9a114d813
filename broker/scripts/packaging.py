"""Writes operations as Redis takes them: each as a script of its own, or all of them as one library of functions.

A library is built once, when Redis loads it; a script makes the functions that it may come to anew with each call. Both say the
same. What belongs to one call is made first thing in it, and is all that a call changes. Beside them is one library that people
call by redis-cli. Pure text; must not know how it is sent.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from broker.scripts.source import Module, Operation, modules, operation, operations

FAMILY: Final = "stanzaq_"
"""What the names of all versions' libraries of operations begin with."""

DIGEST: Final = 12
"""So many hexadecimal digits follow it."""

_CALL: Final = "local call, key, arg, rows"
"""What belongs to one call."""

_PLACE: Final = "<library>"
"""Stands in a library's text for its name, which is made of that text."""

_VERSION: Final = re.compile(r"^-- version (\S+)", re.MULTILINE)
"""The line of the library for people that says which version wrote it."""


@dataclass(frozen=True, slots=True)
class Script:
    """An operation as a script that is called by its digest; `flags` are in its first line."""

    sha: str
    text: str

    @property
    def plain(self) -> str:
        """The text without its first line, for servers that do not know `#!lua` (fakeredis)."""
        return self.text.partition("\n")[2]


@dataclass(frozen=True, slots=True)
class Library:
    """All operations as functions. The names carry a digest of the text: two versions live side by side during an upgrade."""

    name: str
    text: str

    def function(self, operation: str) -> str:
        """Name the function of an operation: no two libraries of a server may have one of the same name."""
        return f"{self.name}_{operation}"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The library of what people ask by redis-cli. All versions call it by one name, and the newest one stays."""

    name: str
    version: tuple[int, ...]
    text: str

    def replaces(self, text: str) -> bool:
        """Tell whether it is to stand in the place of a library that Redis has: of another text, and of no later version."""
        written = _VERSION.search(text)
        return text != self.text and (written is None or _numbers(written[1]) <= self.version)


def _numbers(version: str) -> tuple[int, ...]:
    """Read a version up to what is no number: of a release and what was tried out before it, the last one to come stays."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _made_anew(found: Operation, known: Mapping[str, Module]) -> str:
    """Write what makes the values of one call of an operation from KEYS and ARGV."""
    key = ", ".join(f"{name} = KEYS[{i}]" for i, name in enumerate(found.keys, 1))
    arg = ", ".join(f"{name} = ARGV[{i}]" for i, name in enumerate(found.arguments, 1))
    values = ", ".join(
        f"{name} = {value}" for module in known.values() for name, value in module.call.items() if name in found.keeps
    )
    lines = [f"key, arg, rows = {{{key}}}, {{{arg}}}, {{}}"]
    if found.columns:
        row = ", ".join(f"{name} = ARGV[i + {i}]" for i, name in enumerate(found.columns))
        first, step = len(found.arguments) + 1, len(found.columns)
        lines.append(f"for i = {first}, #ARGV, {step} do rows[#rows + 1] = {{{row}}} end")
    return "\n".join([*lines, f"call = {{{values}}}"])


def _written(module: Module, only: Collection[str]) -> str:
    """Write a module with those of its functions that are named; its own functions are seen by nobody else."""
    functions = {name: piece for name, piece in module.functions.items() if name in only}
    # A table that knows its functions from the start need not grow.
    own = [f"{name.partition('.')[2]} = nil" for name in functions if "." in name]
    table = ", ".join([*([module.constants] if module.constants else []), *own])
    body = "\n".join([*([module.rest] if module.rest else []), *(piece.text for piece in functions.values())])
    return f"local {module.name} = {{{table}}}\ndo\n{body}\nend"


@cache
def script(folder: Path, name: str) -> Script:
    """Package one operation as a script."""
    return alone(folder, operation(folder, name))


def alone(folder: Path, found: Operation) -> Script:
    """Write an operation as a script, with those functions of modules that it may come to."""
    known = modules(folder)
    pieces = [_written(known[name], found.reaches) for name in known if name in found.meets]
    shebang = f"#!lua flags={','.join(found.flags)}" if found.flags else "#!lua"
    text = "\n".join((shebang, _CALL, *pieces, _made_anew(found, known), found.body))
    return Script(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), text)


@cache
def library(folder: Path) -> Library:
    """Package all operations as one library."""
    known = modules(folder)
    found = [operation(folder, name) for name in operations(folder)]
    tables = [_written(module, module.functions.keys()) for module in known.values()]
    body = "\n".join([_CALL, *tables, *(_function(each, known) for each in found)])
    name = f"{FAMILY}{hashlib.sha256(body.encode()).hexdigest()[:DIGEST]}"
    return Library(name, f"#!lua name={name}\n" + body.replace(_PLACE, name))


@cache
def inspection(folder: Path, version: str) -> Inspection:
    """Package what people ask by redis-cli, as it is written by a version of this program."""
    (path,) = (folder / "inspect").glob("*.lua")
    first, _, rest = path.read_text("utf-8").partition("\n")
    return Inspection(path.stem, _numbers(version), f"{first}\n-- version {version}\n{rest}")


def _function(found: Operation, known: Mapping[str, Module]) -> str:
    flags = ", ".join(f"'{flag}'" for flag in found.flags)
    return "\n".join(
        (
            "do",
            "local function operation()",
            found.body,
            "end",
            f"redis.register_function{{function_name = '{_PLACE}_{found.name}', flags = {{{flags}}},",
            "callback = function(KEYS, ARGV)",
            _made_anew(found, known),
            "return operation()",
            "end}",
            "end",
        )
    )
