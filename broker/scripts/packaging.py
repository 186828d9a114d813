"""Packages operations for Redis: each as a script, or all of them as one library of functions.

A library is built once, when Redis loads it; a script builds the functions that it may use at each call. Both have the same
content. The values of one call are created at its begin and are all that it changes. A second library has the functions for
redis-cli. Pure text; must not know how it is sent.
"""

import hashlib
import re
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Final

from broker.keys import PREFIX
from broker.scripts.source import Module, Operation, modules, operation, operations


def family(prefix: str) -> str:
    """Return how the names of all versions' libraries of operations begin: those of a service whose keys have this prefix."""
    return "stanzaq_" if prefix == PREFIX else f"stanzaq_{prefix}_"


DIGEST: Final = 12
"""Number of hexadecimal digits after it."""

_GIVEN: Final = "local key, arg, KEY, ARG, rows, call"
"""The variables of one call; KEY and ARG have the place of each name in `key` and `arg`."""

_WRITTEN: Final = (
    (re.compile(r"(?<![\w.])key\.(\w+)"), r"key[KEY.\1]"),
    (re.compile(r"(?<![\w.])arg\.(\w+)"), r"arg[ARG.\1]"),
)
"""How names in the sources are written: this fills no table of forty keys per call."""

_VARIABLE: Final = re.compile(r"(?<![\w.])call\.(\w+)")
"""A variable of one call. One with an initial value becomes a local, which Lua reads faster than a field. The others, which few
calls use, stay fields of one table, since Lua allows 200 locals."""

_AT_ONCE: Final = 50
"""Variables that one function sets: Lua allows a function sixty variables from outside."""

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
class InspectLibrary:
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


def _places(found: Operation) -> str:
    """Return the code of two tables: the places of an operation's keys, whose number is at 0, and of its arguments, by name."""
    key = ", ".join([f"[0] = {len(found.keys)}", *(f"{name} = {i}" for i, name in enumerate(found.keys, 1))])
    arg = ", ".join(f"{name} = {i}" for i, name in enumerate(found.arguments, 1))
    return f"{{{key}}}, {{{arg}}}"


def _rows(found: Operation) -> str:
    """Return the code that builds the rows of a call from ARGV."""
    if not found.columns:
        return "rows = {}"
    row = ", ".join(f"{name} = ARGV[i + {i}]" for i, name in enumerate(found.columns))
    first, step = len(found.arguments) + 1, len(found.columns)
    return f"rows = {{}}\nfor i = {first}, #ARGV, {step} do rows[#rows + 1] = {{{row}}} end"


def _write_initial_values(folder: Path, found: Operation) -> list[str]:
    """Return the code that sets the initial values of a call, in parts."""
    values = [(name, value) for name, value in _locals(folder).items() if name in found.keeps]
    parts = [dict(values[first : first + _AT_ONCE]) for first in range(0, len(values), _AT_ONCE)]
    return [f"{_write_call_names(part)} = {', '.join(part.values())}" for part in parts]


@cache
def _locals(folder: Path) -> Mapping[str, str]:
    """Return the variables of a call that become locals, with their initial values."""
    return {
        name: value for module in modules(folder).values() for name, value in module.call.items() if value is not None
    }


def _write_call_names(values: Iterable[str]) -> str:
    return ", ".join(f"call.{name}" for name in values)


@cache
def _finish_lines(folder: Path, text: str) -> str:
    """Return some lines as Redis gets them; a function of a module is in many scripts, but finished once."""
    for name, instead in _WRITTEN:
        text = name.sub(instead, text)
    local = _locals(folder)
    return _VARIABLE.sub(lambda found: f"call_{found[1]}" if found[1] in local else found[0], text)


def _write_module(folder: Path, module: Module, only: Collection[str]) -> str:
    """Return a module's finished code with only the named functions; its local functions stay private."""
    functions = {name: piece for name, piece in module.functions.items() if name in only}
    # A table constructed with its function names need not grow.
    own = [f"{name.partition('.')[2]} = nil" for name in functions if "." in name]
    table = ", ".join([*([module.constants] if module.constants else []), *own])
    parts = [*([module.rest] if module.rest else []), *(piece.text for piece in functions.values())]
    body = "\n".join(_finish_lines(folder, part) for part in parts)
    return f"local {module.name} = {{{table}}}\ndo\n{body}\nend"


@cache
def script(folder: Path, name: str) -> Script:
    """Package one operation as a script."""
    return write_script(folder, operation(folder, name))


def write_script(folder: Path, found: Operation) -> Script:
    """Return an operation as a script, with the functions of modules that it may use."""
    known = modules(folder)
    pieces = [_write_module(folder, known[name], found.reaches) for name in known if name in found.meets]
    shebang = f"#!lua flags={','.join(found.flags)}" if found.flags else "#!lua"
    values = [f"local {part}" for part in _write_initial_values(folder, found)]
    given = f"key, arg, KEY, ARG, call = KEYS, ARGV, {_places(found)}, {{}}"
    lines = [_finish_lines(folder, part) for part in (shebang, _GIVEN, given, _rows(found), *values, found.body)]
    text = "\n".join([*lines[:-1], *pieces, lines[-1]])
    return Script(hashlib.sha1(text.encode(), usedforsecurity=False).hexdigest(), text)


@cache
def library(folder: Path, prefix: str = PREFIX) -> Library:
    """Package all operations as one library, for a service whose keys have this prefix."""
    known = modules(folder)
    found = [operation(folder, name) for name in operations(folder)]
    tables = [_write_module(folder, module, module.functions.keys()) for module in known.values()]
    values = _finish_lines(folder, f"local {_write_call_names(_locals(folder))}")
    body = "\n".join([_GIVEN, values, *tables, *(_finish_lines(folder, _function(folder, each)) for each in found)])
    name = f"{family(prefix)}{hashlib.sha256(body.encode()).hexdigest()[:DIGEST]}"
    return Library(name, f"#!lua name={name}\n" + body.replace(_PLACE, name))


@cache
def inspection(folder: Path, version: str, prefix: str = PREFIX) -> InspectLibrary:
    """Package the functions for redis-cli, marked with this program's version, for keys with this prefix."""
    (path,) = (folder / "inspect").glob("*.lua")
    name, text = path.stem, path.read_text("utf-8")
    if prefix != PREFIX:
        name = f"{path.stem}_{prefix}"
        # The names of options and headers, which begin alike, stay.
        text = text.replace(f"{path.stem}_", f"{name}_").replace(f"name={path.stem}\n", f"name={name}\n")
        text = text.replace(f"{PREFIX}:{{", f"{prefix}:{{")
    first, _, rest = text.partition("\n")
    return InspectLibrary(name, _numbers(version), f"{first}\n-- version {version}\n{rest}")


def _function(folder: Path, found: Operation) -> str:
    flags = ", ".join(f"'{flag}'" for flag in found.flags)
    parts = _write_initial_values(folder, found)
    return "\n".join(
        (
            "do",
            "local function operation()",
            found.body,
            "end",
            f"local keys, arguments = {_places(found)}",
            *(f"local function anew{number}() {part} end" for number, part in enumerate(parts)),
            f"redis.register_function{{function_name = '{_PLACE}_{found.name}', flags = {{{flags}}},",
            "callback = function(KEYS, ARGV)",
            "key, arg, KEY, ARG, call = KEYS, ARGV, keys, arguments, {}",
            _rows(found),
            *(f"anew{number}()" for number in range(len(parts))),
            "return operation()",
            "end}",
            "end",
        )
    )
