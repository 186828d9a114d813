"""Packages operations for Redis: each as a script, or all of them as one library of functions.

A library is built once, when Redis loads it; a script builds the functions that it may use at each call. Both have the same
content. The values of one call are created at its begin and are all that it changes. A second library has the functions for
redis-cli. Pure text; must not know how it is sent.
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
"""How the names of all versions' libraries of operations begin."""

DIGEST: Final = 12
"""Number of hexadecimal digits after it."""

_CALL: Final = "local call, key, arg, rows"
"""The variables of one call."""

_PLACE: Final = "<library>"
"""Placeholder for a library's name in its text, since the name is a digest of the text."""

_VERSION: Final = re.compile(r"^-- version (\S+)", re.MULTILINE)
"""The line in the library for redis-cli with the version that wrote it."""


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
    """All operations as functions. Names carry a digest of the text: two versions live side by side during an upgrade."""

    name: str
    text: str

    def function(self, operation: str) -> str:
        """Return the function's name of an operation: it must be unique among all libraries of a server."""
        return f"{self.name}_{operation}"


@dataclass(frozen=True, slots=True)
class Inspection:
    """The library for redis-cli. All versions use one name, and the newest one stays."""

    name: str
    version: tuple[int, ...]
    text: str

    def replaces(self, text: str) -> bool:
        """Return whether it replaces a library that Redis has: one of another text and of no later version."""
        written = _VERSION.search(text)
        return text != self.text and (written is None or _numbers(written[1]) <= self.version)


def _numbers(version: str) -> tuple[int, ...]:
    """Read the leading numbers of a version: a release and its pre-releases count as equal, so the last one loaded stays."""
    leading = re.match(r"\d+(\.\d+)*", version)
    return tuple(map(int, leading[0].split("."))) if leading else ()


def _made_anew(found: Operation, known: Mapping[str, Module]) -> str:
    """Return the code that sets an operation's variables from KEYS and ARGV."""
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
    """Return a module's code with only the named functions; its local functions stay private."""
    functions = {name: piece for name, piece in module.functions.items() if name in only}
    # A table constructed with its function names need not grow.
    own = [f"{name.partition('.')[2]} = nil" for name in functions if "." in name]
    table = ", ".join([*([module.constants] if module.constants else []), *own])
    body = "\n".join([*([module.rest] if module.rest else []), *(piece.text for piece in functions.values())])
    return f"local {module.name} = {{{table}}}\ndo\n{body}\nend"


@cache
def script(folder: Path, name: str) -> Script:
    """Package one operation as a script."""
    return alone(folder, operation(folder, name))


def alone(folder: Path, found: Operation) -> Script:
    """Return an operation as a script, with the functions of modules that it may use."""
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
    """Package the functions for redis-cli, marked with this program's version."""
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
