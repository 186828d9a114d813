"""Reads the operations and modules of `lua/`, and finds which functions, keys and writes each operation uses.

A module of `lua/lib` is one local table of constants and functions. It keeps no state between calls: the header line `CALL`
declares its variables of one call, e.g. `spent = 0` of the module `budget` is `call.budget_spent`. Variables that few calls use
have no value there and begin as nil. Every other file of `lua/` is an operation. Its header declares the fixed arguments, the
columns of each row, and its answers: code words, each with the names of its values in brackets. Functions are followed
automatically, so nobody lists keys: they are the `key.NAME` in all functions that an operation may use. Folders are for readers:
a file is referred to by its name alone. Pure but for reading files. Must not know Redis, nor how an operation is packaged.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from broker.model.problems import OperationDefect

_NO_OPERATIONS = {"lib", "inspect"}
"""Folders of `lua/` without operations: modules, and the library for redis-cli."""

_FIELD = re.compile(r"^-- (KEYS|PLAIN|ARGV|RETURNS|CALL):(.*(?:\n--   .*)*)$", re.MULTILINE)
"""A line of a header; it goes on in comment lines that are indented by three blanks."""
_WORD = re.compile(r"[\w-]+|\S")
_SHEBANG = re.compile(r"\A#!lua(?: flags=([\w,-]+))?\n")
_OPENING = re.compile(r"^(local )?function ([\w.]+)", re.MULTILINE)
_NAME = re.compile(r"(?<![\w.'])[A-Za-z_]\w*(?:\.\w+)?")
_KEY = re.compile(r"(?<![\w.])key\.(\w+)")
_WRITE = re.compile(
    r"\(\s*'(?:HSET|HSETNX|HDEL|HINCRBY|XADD|XDEL|XTRIM|ZADD|ZREM|ZREMRANGEBY[A-Z]+|ZINCRBY|[LR]PUSH|[LR]POP|P?EXPIRE|PERSIST)',"
    r"\s*(?:key\.(\w+)|\w)"
)
"""A command that writes, with the name of its key if it is a literal."""
_UNLINK = re.compile(r"'(?:UNLINK|RENAME)'((?:,\s*key\.\w+)+)")
"""A command that writes to all keys that it names."""
_CLOSING = {")", "}"}


@dataclass(frozen=True, slots=True)
class Piece:
    """A function of a module, or the module's other code: its text, the names it uses and the keys it may write."""

    text: str
    names: frozenset[str]
    keys: frozenset[str]
    written: frozenset[str]
    passes_on: bool
    """It writes to keys that its caller passes."""


@dataclass(frozen=True, slots=True)
class Module:
    """One table of `lua/lib`: its constants, its functions by name, and its variables of one call."""

    name: str
    constants: str
    rest: str
    functions: Mapping[str, Piece]
    """Functions of the table as `module.function`, local ones as `module function`."""
    call: Mapping[str, str | None]
    """The Lua expression of each variable's initial value; None for a variable that few calls use."""
    uses: frozenset[str]
    """The other modules that it uses."""


@dataclass(frozen=True, slots=True)
class Shape:
    """Values by name: how many of the last may be absent, whether the last is a list of all that is left, and what is within."""

    names: tuple[str, ...] = ()
    optional: int = 0
    rest: bool = False
    within: Mapping[str, "Shape"] = field(default_factory=dict)
    kind: str = "("
    """`(`: rows of this shape; `{`: one row or nothing; `@`: an answer to a row of the operation that is the only name."""


@dataclass(frozen=True)
class Operation:
    """One operation of `lua/`; `columns` are the names of each row's values after the fixed arguments."""

    name: str
    sentence: str
    flags: tuple[str, ...]
    keys: tuple[str, ...]
    """All that it may use, those of a plain partition first."""
    plain: tuple[str, ...]
    """Those that it gets first: it asks for all where the partition is not plain (`lua/lib/plain.lua`)."""
    arguments: tuple[str, ...]
    columns: tuple[str, ...]
    returns: Mapping[str, Shape]
    """The values after each code word of its reply; after `ok` of a partition's operation, those in its `rows`."""
    row_returns: Mapping[str, Shape]
    """The values after each code word of the answer to a row."""
    writes: frozenset[str]
    reaches: frozenset[str]
    """The functions that it may use, named as in `Module.functions`."""
    meets: frozenset[str]
    """The modules of which it may use a function or a constant."""
    keeps: frozenset[str]
    """The variables under `call` that it may use."""
    body: str

    @property
    def partitioned(self) -> bool:
        """Whether it works in a partition: its reply has the form that all of these share."""
        return "partition.load" in self.reaches


def fields(text: str) -> dict[str, str]:
    """Return the header lines of a file by name."""
    return {match[1]: match[2].replace("\n--", "").strip() for match in _FIELD.finditer(text)}


def parse_answers(text: str) -> Mapping[str, Shape]:
    """Read code words, each perhaps with its values in brackets; raises IndexError where a bracket does not end."""
    codes = _parse_shape([")", *_WORD.findall(text)[::-1]], "(")
    return {word: codes.within.get(word, Shape()) for word in codes.names}


def _parse_shape(words: list[str], kind: str) -> Shape:
    """Read names up to a bracket: those in square brackets may be absent, and one after a star is a list of all that is left."""
    names, required, rest, within = list[str](), None, False, dict[str, Shape]()
    while (word := words.pop()) not in _CLOSING:
        match word:
            case "[":
                required = len(names)
            case "*":
                rest = True
            case "(" | "{":
                within[names[-1]] = _parse_shape(words, word)
            case "@":
                within[names[-1]] = Shape((words.pop(),), kind=word)
            case _ if word != "]":
                names.append(word)
    return Shape(tuple(names), 0 if required is None else len(names) - required, rest, within, kind)


def code(text: str) -> str:
    """Return Lua without comment lines and empty lines."""
    return "\n".join(line for line in text.splitlines() if line.strip() and not line.lstrip().startswith("--"))


def _blocks(text: str) -> Iterator[tuple[str, str]]:
    """Split a module's code into functions by name, and other lines, under the empty name."""
    lines = iter(text.splitlines())
    for line in lines:
        opening = _OPENING.match(line)
        if opening is None:
            yield "", line
            continue
        block = [line]
        while not line.rstrip().endswith(" end") and block[-1] != "end":
            block.append(next(lines))
        yield opening[2], "\n".join(block)


def _piece(module: str, text: str, own: Iterable[str]) -> Piece:
    """Examine a function; local names of its module are qualified."""
    bare = re.sub(r"--.*", "", text)
    local = {name: f"{module} {name}" for name in own}
    names = frozenset(local.get(name, name) for name in _NAME.findall(bare))
    keys = frozenset(_KEY.findall(bare))
    found = [*_WRITE.findall(bare), *(name for match in _UNLINK.findall(bare) for name in _KEY.findall(match))]
    passes_on = "" in found
    # A variable key may be any of the keys that the function names.
    return Piece(text, names, keys, keys if passes_on else frozenset(found), passes_on)


@cache
def modules(folder: Path) -> Mapping[str, Module]:
    """Read all modules, each after those that it uses; raises OperationDefect on a cycle."""
    texts = {name: path.read_text("utf-8") for name, path in module_files(folder).items()}
    found = {name: _module(name, text, texts.keys()) for name, text in texts.items()}
    placed: dict[str, Module] = {}

    def place(name: str, path: tuple[str, ...]) -> None:
        if name in path:
            msg = f"modules use each other in a circle: {' -> '.join((*path, name))}"
            raise OperationDefect(msg)
        for other in sorted(found[name].uses):
            if other not in placed:
                place(other, (*path, name))
        placed.setdefault(name, found[name])

    for name in found:
        place(name, ())
    return placed


def _module(name: str, text: str, known: Iterable[str]) -> Module:
    blocks = list(_blocks(code(text)))
    own = [each.removeprefix(f"{name}.") for each, _ in blocks if each and "." not in each]
    functions, constants, rest = {}, None, []
    for each, block in blocks:
        table = re.fullmatch(rf"local {name} = \{{(.*)\}}", block)
        if each:
            functions[each if "." in each else f"{name} {each}"] = _piece(name, block, own)
        elif table:
            constants = table[1]
        else:
            rest.append(block)
    if constants is None:
        msg = f"{name}.lua: needs a line `local {name} = {{…}}`"
        raise OperationDefect(msg)
    named = {each.partition(".")[0] for piece in functions.values() for each in piece.names if "." in each}
    return Module(
        name,
        constants,
        "\n".join(rest),
        functions,
        _parse_call_line(name, fields(text).get("CALL", "")),
        frozenset(named & set(known)) - {name},
    )


def _parse_call_line(name: str, said: str) -> Mapping[str, str | None]:
    """Read a line `CALL`: names, most with a value, separated by a comma and a blank, which no value may contain."""
    pairs = [each.partition(" = ") for each in said.split(", ") if each]
    return {f"{name}_{field}": value or None for field, _, value in pairs}


@dataclass(frozen=True, slots=True)
class _Uses:
    """What a function uses by itself: functions, keys that it names and that it writes, modules, and variables of a call."""

    functions: frozenset[str]
    keys: frozenset[str]
    written: frozenset[str]
    modules: frozenset[str]
    variables: frozenset[str]


@cache
def _pieces(folder: Path) -> Mapping[str, Piece]:
    return {name: piece for module in modules(folder).values() for name, piece in module.functions.items()}


@cache
def _find_uses(folder: Path) -> Mapping[str, _Uses]:
    """Return what each function of a module uses: found once, since most are used by many operations."""
    return {name: _uses(folder, piece) for name, piece in _pieces(folder).items()}


def _uses(folder: Path, piece: Piece) -> _Uses:
    pieces, tables = _pieces(folder), modules(folder)
    functions = piece.names & pieces.keys()
    passed = any(pieces[each].passes_on for each in functions)
    named = [each.partition(".") for each in piece.names]
    return _Uses(
        functions,
        piece.keys,
        piece.keys if passed else piece.written,
        frozenset(table for table, _, _field in named if table in tables),
        frozenset(field for table, _, field in named if table == "call"),
    )


@cache
def operation(folder: Path, name: str) -> Operation:
    """Read and examine one operation; raises OperationDefect when its header lacks a line."""
    return examine(folder, name, operation_files(folder)[name].read_text("utf-8"))


def examine(folder: Path, name: str, source: str) -> Operation:
    """Examine the text of an operation with the modules of a folder."""
    shebang = _SHEBANG.match(source)
    header = fields(source)
    if shebang is None or not {"ARGV", "RETURNS"} <= header.keys():
        msg = f"{name}.lua: needs a first line #!lua and the header lines ARGV and RETURNS"
        raise OperationDefect(msg)
    text = source[shebang.end() :]
    opening = text[: min(text.index(f"-- {line}:") for line in header)]
    sentence = " ".join(line[3:] for line in opening.splitlines() if line.startswith("-- "))
    fixed, _, repeated = header["ARGV"].partition("|")
    whole, _, each = header["RETURNS"].partition("|")
    try:
        returns, row_returns = parse_answers(whole), parse_answers(each)
    except IndexError as error:
        msg = f"{name}.lua: the brackets of RETURNS do not match"
        raise OperationDefect(msg) from error
    body = code(text)
    own, others = _uses(folder, _piece(name, body, ())), _find_uses(folder)
    reached = _find_reached(own, others)
    met = [own, *(others[each] for each in reached)]
    listed, plain = frozenset(header.get("KEYS", "").split()), tuple(header.get("PLAIN", "").split())
    every = listed.union(*(each.keys for each in met))
    if unused := set(plain) - every:
        msg = f"{name}.lua: PLAIN names keys that it does not use: {' '.join(sorted(unused))}"
        raise OperationDefect(msg)
    keys = plain + tuple(sorted(every - set(plain)))
    return Operation(
        name,
        sentence,
        tuple((shebang[1] or "").split(",")) if shebang[1] else (),
        keys,
        plain or keys,
        tuple(fixed.split()),
        tuple(repeated.split()),
        returns,
        row_returns,
        listed.union(*(each.written for each in met)),
        reached,
        frozenset[str]().union(*(each.modules for each in met)),
        frozenset[str]().union(*(each.variables for each in met)),
        body,
    )


def _find_reached(first: _Uses, others: Mapping[str, _Uses]) -> frozenset[str]:
    """Return all functions that are used directly or indirectly."""
    found: set[str] = set()
    left = [first]
    while left:
        new = left.pop().functions - found
        found |= new
        left += [others[name] for name in new]
    return frozenset(found)


def operations(folder: Path) -> tuple[str, ...]:
    """Return the names of all operations, sorted."""
    return tuple(operation_files(folder))


@cache
def operation_files(folder: Path) -> Mapping[str, Path]:
    """Find the file of each operation, in any folder."""
    return _sort_by_name(
        path for path in folder.rglob("*.lua") if path.relative_to(folder).parts[0] not in _NO_OPERATIONS
    )


@cache
def module_files(folder: Path) -> Mapping[str, Path]:
    """Find the file of each module, in any folder."""
    return _sort_by_name((folder / "lib").rglob("*.lua"))


def _sort_by_name(paths: Iterable[Path]) -> Mapping[str, Path]:
    """Sort files by name; raises OperationDefect when two folders have a file of the same name."""
    found: dict[str, Path] = {}
    for path in sorted(paths, key=lambda each: each.stem):
        if path.stem in found:
            msg = f"two files have one name: {found[path.stem]} and {path}"
            raise OperationDefect(msg)
        found[path.stem] = path
    return found
