"""Reads script files: header, includes, and the text that is sent to Redis. Pure but for reading files; knows no Redis.

An operation opens with `#!lua flags`, a sentence, then `KEYS`, `ARGV`, `RETURNS` and `WRITES` lines. The header is not
decoration: the names in it become the tables `key`, `arg` and `rows` of the script, so it cannot say what is not so.

Redis keeps nothing from one call to the next, so each call makes the functions of its fragments anew, which takes it as long
as what it is called for. Those of a fragment with a line `LAZY` are made when the first of them is asked for.
"""

import hashlib
import re
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path
from typing import Final

from broker.model.problems import ScriptDefect

_FIELD = re.compile(r"^-- (KEYS|ARGV|RETURNS|WRITES|NEEDS|LAZY):(.*)$", re.MULTILINE)
_INCLUDE = re.compile(r"^--- @include (.+)$", re.MULTILINE)
_FUNCTION = re.compile(r"^function \w+\.(\w+)", re.MULTILINE)
_UNBUILT: Final = """local unbuilt = {}
function unbuilt.__index(fragment, name)
  setmetatable(fragment, nil)
  fragment[1](fragment)
  return fragment[name]
end"""
_SHEBANG = re.compile(r"\A#!lua.*\n")


@dataclass(frozen=True)
class Script:
    """One operation ready to run; `columns` are the names of each row's values after the fixed arguments."""

    name: str
    sentence: str
    keys: tuple[str, ...]
    arguments: tuple[str, ...]
    columns: tuple[str, ...]
    returns: tuple[str, ...]
    row_returns: tuple[str, ...]
    writes: frozenset[str]
    text: str

    @cached_property
    def sha(self) -> str:
        """Address of the text: two versions of one operation live side by side during a rolling upgrade."""
        # Once: it is asked for with each call, and texts are long.
        return hashlib.sha1(self.text.encode(), usedforsecurity=False).hexdigest()

    @property
    def plain(self) -> str:
        """The text without its first line, for servers that do not know `#!lua` (fakeredis)."""
        return _SHEBANG.sub("", self.text)


@dataclass(frozen=True, slots=True)
class Fragment:
    """A shared piece: defines one local table of its name and needs these keys; a lazy one is built when it is first used."""

    name: str
    needs: frozenset[str]
    includes: tuple[str, ...]
    lazy: bool
    body: str

    @property
    def text(self) -> str:
        """The body as a script has it, line by line."""
        table = re.search(rf"^local {self.name} = \{{(.*)\}}$", self.body, re.MULTILINE)
        if table is None:
            msg = f"{self.name}.lua: needs a line `local {self.name} = {{…}}`"
            raise ScriptDefect(msg)
        data = [table[1]] if table[1] else []
        if self.lazy:
            # The data is there at once: it is read and written without building anything.
            fields = ", ".join([*data, f"function({self.name})"])
            opening, closing = f"setmetatable({{{fields}", "end}, unbuilt)"
        else:
            # A table that knows its functions from the start need not grow. The block ends what is the fragment's own, or each
            # function made after it would have to look past that for what it shares.
            fields = ", ".join([*data, *(f"{name} = nil" for name in _FUNCTION.findall(self.body))])
            opening, closing = f"{{{fields}}} do", "end"
        return f"{self.body[: table.start()]}local {self.name} = {opening}{self.body[table.end() :]}{closing}"


def fields(text: str) -> dict[str, str]:
    """Read the header lines of a file by name."""
    return {match[1]: match[2].strip() for match in _FIELD.finditer(text)}


def includes(text: str) -> tuple[str, ...]:
    """Name the fragments that a file asks for, in its order."""
    return tuple(name for match in _INCLUDE.finditer(text) for name in match[1].split())


@cache
def fragment(folder: Path, name: str) -> Fragment:
    """Read one fragment; raises ScriptDefect when there is none."""
    path = folder / "lib" / f"{name}.lua"
    if not path.is_file():
        msg = f"{path.name}: no such fragment"
        raise ScriptDefect(msg)
    text = path.read_text("utf-8")
    header = fields(text)
    return Fragment(name, frozenset(header.get("NEEDS", "").split()), includes(text), "LAZY" in header, text)


def ordered(folder: Path, wanted: tuple[str, ...], path: tuple[str, ...] = ()) -> list[Fragment]:
    """Give the fragments with all that they include, each once, before whoever includes it; raises ScriptDefect on a circle."""
    found: list[Fragment] = []
    for name in wanted:
        if name in path:
            msg = f"fragments include each other in a circle: {' -> '.join((*path, name))}"
            raise ScriptDefect(msg)
        piece = fragment(folder, name)
        for inner in (*ordered(folder, piece.includes, (*path, name)), piece):
            if inner not in found:
                found.append(inner)
    return found


def expanded(folder: Path, wanted: tuple[str, ...]) -> str:
    """Write these fragments, with all that they include, as a script has them."""
    pieces = ordered(folder, wanted)
    opening = [_UNBUILT] if any(piece.lazy for piece in pieces) else []
    return "\n".join([*opening, *(piece.text for piece in pieces)])


def _prelude(keys: tuple[str, ...], arguments: tuple[str, ...], columns: tuple[str, ...]) -> str:
    key = ", ".join(f"{name} = KEYS[{i}]" for i, name in enumerate(keys, 1))
    arg = ", ".join(f"{name} = ARGV[{i}]" for i, name in enumerate(arguments, 1))
    lines = [f"local key = {{{key}}}", f"local arg = {{{arg}}}"]
    if columns:
        row = ", ".join(f"{name} = ARGV[i + {i}]" for i, name in enumerate(columns))
        lines += [
            "local rows = {}",
            f"for i = {len(arguments) + 1}, #ARGV, {len(columns)} do rows[#rows + 1] = {{{row}}} end",
        ]
    return "\n".join(lines)


@cache
def script(folder: Path, name: str) -> Script:
    """Read, check and expand one operation; raises ScriptDefect when its header lacks a line."""
    path = folder / f"{name}.lua"
    source = path.read_text("utf-8")
    shebang = _SHEBANG.match(source)
    header = fields(source)
    if shebang is None or not {"KEYS", "ARGV", "RETURNS", "WRITES"} <= header.keys():
        msg = f"{path.name}: needs a first line #!lua and the header lines KEYS, ARGV, RETURNS and WRITES"
        raise ScriptDefect(msg)
    body = source[shebang.end() :]
    sentence = " ".join(line[3:] for line in body[: body.index("-- KEYS:")].splitlines() if line.startswith("-- "))
    fixed, _, repeated = header["ARGV"].partition("|")
    whole, _, each = header["RETURNS"].partition("|")
    keys, arguments, columns = tuple(header["KEYS"].split()), tuple(fixed.split()), tuple(repeated.split())
    pieces = expanded(folder, includes(body))
    text = "\n".join((shebang[0].rstrip(), _prelude(keys, arguments, columns), pieces, body))
    return Script(
        name,
        sentence,
        keys,
        arguments,
        columns,
        tuple(whole.split()),
        tuple(each.split()),
        frozenset(header["WRITES"].split()),
        text,
    )


def operations(folder: Path) -> tuple[str, ...]:
    """Name all operations, in alphabetical order."""
    return tuple(sorted(path.stem for path in folder.glob("*.lua")))
