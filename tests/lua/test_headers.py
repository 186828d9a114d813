"""Operations and modules agree with their headers, `broker/keys.py`, the results and the tests."""

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TypeVar

from broker import keys
from broker.journal.schema import NAMED, STORED, AttemptEnd
from broker.model.nodes.options import JOURNALED
from broker.model.problems import Problem
from broker.redis_core.registry.rows import ROWS
from broker.scripts.packaging import library
from broker.scripts.source import Module, Operation, fields, module_files, modules, operation_files
from tests.lua.driver import FOLDER, NOTICES, PARTITIONED, SCRIPTS

HERE = Path(__file__).parent
MODULES = modules(FOLDER)

ANSWERS_OF_THEIR_OWN = {
    "ok", "replayed", "duplicate", "stale", "older", "newer", "gone", "deleted", "no-owner", "too-many", "changed", "held",
    "waiting", "refused", "measure", "received", "awaited", "ended", "unfinished", "unknown", "wide", "outbox-full",
}  # fmt: skip
"""Words that the core reads itself; every other word is a `Problem`'s code."""

T = TypeVar("T")


def for_all(found: Mapping[str, T]) -> Callable[[Callable[[T], None]], Callable[[], None]]:
    """Make one test of a claim about each; it reports all that fail, and why."""

    def made(claim: Callable[[T], None]) -> Callable[[], None]:
        def test() -> None:
            faults = {}
            for name, each in found.items():
                try:
                    claim(each)
                except AssertionError as fault:
                    faults[name] = str(fault)
            assert faults == {}

        test.__name__, test.__doc__ = claim.__name__, claim.__doc__
        return test

    return made


def code(text: str) -> str:
    """Return Lua without its comments."""
    return re.sub(r"--.*", "", text)


def body(name: str) -> str:
    """Return an operation's own text."""
    return operation_files(FOLDER)[name].read_text("utf-8")


def text(found: Operation) -> str:
    """Return an operation's text with all functions that it may call."""
    pieces = {name: piece.text for module in MODULES.values() for name, piece in module.functions.items()}
    return "\n".join([found.body, *(pieces[name] for name in found.reaches)])


def used(text: str, table: str) -> set[str]:
    """Return the fields of a table that a text reads."""
    return set(re.findall(rf"\b{table}\.(\w+)", code(text)))


@for_all(SCRIPTS)
def test_keys(found: Operation) -> None:
    """Every key is one of `broker/keys.py`, all of one holder; `delete_partition` has all keys of a partition."""
    assert {keys.BY_NAME[name].holder for name in found.keys} in (
        {"partition"},
        {"node"},
        {"jid"},
        {"service"},
        {"qos"},
        {"process"},
    )
    if found.name == "delete_partition":
        assert set(found.keys) == {row.name for row in keys.TABLE if row.holder == "partition"}


@for_all(SCRIPTS)
def test_arguments(found: Operation) -> None:
    """Every declared argument and column is read, and every one that is read is declared."""
    # `partition` reads the caller if there is one; not every script that orders positions makes ids of them.
    needs = " ".join(
        value or "" for module in MODULES.values() for name, value in module.call.items() if name in found.keeps
    )
    assert set(found.arguments) <= used(text(found) + needs, "arg") <= set(found.arguments) | {"number", "frontend"}
    assert set(found.columns) <= used(text(found), "row")


@for_all(SCRIPTS)
def test_writes(found: Operation) -> None:
    """An operation that writes nothing has the flag `no-writes`."""
    assert found.writes <= set(found.keys)
    assert ("no-writes" in found.flags) == (not found.writes)


@for_all(SCRIPTS)
def test_returns(found: Operation) -> None:
    """The code words of the body are those of RETURNS, and each is a problem's code or known to the core."""
    said = code(text(found))
    written = set(re.findall(r"\{'([a-z-]+)'", said)) | set(re.findall(r"return '([a-z-]+)'", said))
    for pair in re.findall(r"and '(ok)' or '([a-z-]+)'", said):
        written |= set(pair)
    declared = set(found.returns) | set(found.row_returns)
    # `held` and `waiting` are words of `ack_rules`, which operations translate; notices have kinds.
    assert declared <= written
    assert written - declared <= {"held", "waiting", "replayed", *NOTICES}
    assert declared <= ANSWERS_OF_THEIR_OWN | {problem.value for problem in Problem}


@for_all(SCRIPTS)
def test_counts_of_values(found: Operation) -> None:
    """A table with a code word in the operation's own text has as many values as its header says."""
    described = found.row_returns if found.partitioned else found.returns
    for table in re.finditer(r"(?<!notices\.tell\()\{'([a-z-]+)'[,}]", found.body):
        shape, values = described.get(table[1]), split(found.body, table.start())[1:]
        if shape:
            # The last value may be several.
            several = values and re.search(r"\)$|^\.\.\.$", values[-1])
            least = 0 if several else len(shape.names) - shape.optional
            assert least <= len(values) - bool(several) <= len(shape.names), f"{table[1]}: {values}"


@for_all(SCRIPTS)
def test_replies_alike(found: Operation) -> None:
    """Scripts of a partition that check the revision answer in one shape and refuse in the same three words."""
    assert (found.name in PARTITIONED) == ("local refusal = partition.load()" in body(found.name))
    if found.name in PARTITIONED:
        assert tuple(found.returns) == (
            "ok",
            "stale",
            "gone",
            "deleted",
            *(("wide",) if found.plain != found.keys else ()),
        )


@for_all(SCRIPTS)
def test_has_a_sentence_and_a_test(found: Operation) -> None:
    """Each operation has a sentence that says what it does, and a test module of its name."""
    assert found.sentence.endswith(".") and found.sentence[0].isupper()
    assert (HERE / f"test_{found.name}.py").is_file()


@for_all(MODULES)
def test_modules(module: Module) -> None:
    """A module is one table of constants and functions, with a header; loading it reads no arguments."""
    assert module_files(FOLDER)[module.name].read_text("utf-8").startswith("-- ")
    # Other code outside of functions is constants, too.
    assert all(re.match(r"local [A-Z, ]+ = ", line) for line in module.rest.splitlines())
    assert not used(module.constants + module.rest, "arg") | used(module.constants + module.rest, "key")


def assigned(text: str) -> Iterator[str]:
    """Return the tables whose fields a text assigns, except its own locals."""
    for line in code(text).splitlines():
        for targets in re.findall(r"(?:^|\bthen |\bdo |\belse )\s*(?!local |for |if |while )(\w[^={}(]*?) = ", line):
            for root in re.findall(r"(?:^|, )(\w+)[.\[]", targets):
                if not re.search(rf"\b(?:local|for|function) [\w., (]*\b{root}\b", text):
                    yield root


def test_modules_keep_nothing_of_a_call() -> None:
    """Guarantee 7: no state outlives a call. No text writes to a module's table, or to a constant."""
    pieces = {name: piece.text for module in MODULES.values() for name, piece in module.functions.items()}
    bodies = {name: found.body for name, found in SCRIPTS.items()}
    found = {(name, root) for name, text in (pieces | bodies).items() for root in assigned(text)}
    # Columns of a row and the caller's name belong to the call.
    assert {root for _name, root in found} <= {"call", "arg", "row"}
    assert list(assigned("if x then budget.spent = 1 end\nA.b, c[1] = 2, 3\nlocal d = {}\nd.e = f.g == 1")) == [
        "budget",
        "A",
        "c",
    ]
    assert not re.search(rf"table\.(?:insert|remove|sort)\((?:{'|'.join(MODULES)})\.", library(FOLDER).text)


def test_what_is_needed_anew() -> None:
    """A module declares its variables of one call in its header."""
    texts = [path.read_text("utf-8") for path in (*module_files(FOLDER).values(), *operation_files(FOLDER).values())]
    named = set(re.findall(r"(?<![\w.])call\.(\w+)", "".join(map(code, texts))))
    assert named == {name for module in MODULES.values() for name in module.call}
    for path in module_files(FOLDER).values():
        assert set(fields(path.read_text("utf-8"))) <= {"CALL"}


def test_variables_have_one_writer() -> None:
    """A variable of a call is written by the module that declares it alone; others ask that module."""
    owners = {name: module.name for module in MODULES.values() for name in module.call}
    files = {**module_files(FOLDER), **operation_files(FOLDER)}
    for name, path in files.items():
        for assigned in re.findall(r"((?:call\.[\w.\[\]]+,? *)+)= ", code(path.read_text("utf-8"))):
            written = re.findall(r"call\.(\w+)", re.sub(r"\[[^]]*\]", "", assigned))
            assert [each for each in written if owners[each] != name] == [], name


def test_what_few_have_is_added_by_rare_keys() -> None:
    """A call asks once whether any rare key exists; `rare_keys` adds to them, and so corrects the answer."""
    asked = "|".join(MODULES["rare_keys"].functions["rare_keys.any"].keys)
    pieces = {name: piece.text for module in MODULES.values() for name, piece in module.functions.items()}
    for name, each in (pieces | {name: body(name) for name in SCRIPTS}).items():
        if name in SCRIPTS and "rare_keys." not in text(SCRIPTS[name]):
            continue
        # Under its own name, or one that stands for it.
        names = rf"key\.(?:{asked})\b" + (r"|\w+," if re.search(rf"key\.(?:{asked})\b", code(each)) else "")
        assert not re.search(rf"(?:redis\.call|write_buffer\.add)\('(?:HSET|HINCRBY|ZADD)', (?:{names})", code(each)), (
            name
        )


def split(text: str, start: int) -> list[str]:
    """Return what is in the bracket that opens at `start`, in a text without comments."""
    found, depth, begins = [], 0, start + 1
    for token in re.finditer(r"'(?:[^'\\]|\\.)*'|[][(){},]|\b(?:function|if|do|repeat|end|until)\b", text[start:]):
        if token[0] in {",", ")", "}"} and depth == 1:
            found.append(text[begins : start + token.start()].strip())
            begins = start + token.end()
            if token[0] != ",":
                break
        elif token[0] in {"(", "[", "{", "function", "if", "do", "repeat"}:
            depth += 1
        elif token[0] in {")", "]", "}", "end", "until"}:
            depth -= 1
    return [] if found == [""] else found


def calls(texts: Mapping[str, str]) -> Iterator[tuple[str, str, list[str], list[str], str]]:
    """Return each call of a function of ours: where, its name, its parameters, its arguments, and the comment above it."""
    defined = re.compile(r"((?:^--.*\n)*)^(?:local )?function ([\w.]+)\(([^)\n]*)\)", re.MULTILINE)
    found = {
        (name if "." in name else f"{place} {name}"): (re.findall(r"[\w.]+", parameters), above)
        for place, each in texts.items()
        for above, name, parameters in defined.findall(each)
    }
    for place, each in texts.items():
        bare = code(each)
        for call in re.finditer(r"(?<![\w.:])(\w+(?:\.\w+)?)\(", bare):
            known = found.get(call[1]) or found.get(f"{place} {call[1]}")
            if known and not bare[: call.start()].endswith("function "):
                yield place, call[1], known[0], split(bare, call.end() - 1), known[1]


def incomplete(texts: Mapping[str, str]) -> set[str]:
    """Return calls with too many arguments, or without one that its function does not call optional."""
    found = set()
    for place, name, parameters, given, above in calls(texts):
        missing = parameters[len(given) :]
        # The last argument may be several values.
        if given and re.search(r"\)$|^\.\.\.$", given[-1]):
            missing = []
        if len(given) > len(parameters) or not all(re.search(rf"[Ww]ith\W[^.:;]*`{each}`", above) for each in missing):
            found.add(f"{place}: {name}({', '.join(given)})")
    return found


def test_calls_have_all_arguments() -> None:
    """Each call has all arguments but those that the function's comment calls optional ("with `name`"): Lua says nothing."""
    texts = {path.stem: path.read_text("utf-8") for path in FOLDER.rglob("*.lua")}
    assert incomplete(texts) == set()
    assert sum(1 for _ in calls(texts)) > 1_000
    example = "-- Adds, with `b` twice.\nfunction m.f(a, b)\nend\nlocal function g(c)\nend\n"
    for call in ("m.f()", "m.f(1, 2, 3)", "g()", "m.f(g(1), ', ', function(x, y) if x then return x, y end end)"):
        assert len(incomplete({"m": example + call})) == 1
    assert incomplete({"m": example + "m.f({1, 2}) m.f(')', 2) g(m.f(1)) m.f(function(x, y) return x, y end)"}) == set()


def test_one_place_gives_numbers() -> None:
    """Guarantee 10: every number of a partition comes from `partition.next_number`, which gives none twice."""
    texts = {path.stem: code(path.read_text("utf-8")) for path in FOLDER.rglob("*.lua")}
    given = texts["partition"].partition("function partition.next_number()")[2].partition("\nend")[0]
    assert "call.partition_token + 1" in given
    texts["partition"] = (
        texts["partition"].replace(given, "").replace("call.partition_token = tonumber(meta.token)", "")
    )
    for name, text in texts.items():
        assert not re.search(r"\bpartition_token\s*(=[^=]|\+)", text), name


def test_every_command_has_its_script() -> None:
    """Every call of the core runs a script that is there, and every script of a partition has a caller."""
    calls = [row.call for row in ROWS.values() if row.call]
    called = {name for call in calls for name in (call.operation, call.when_full) if name}
    assert called <= SCRIPTS.keys()
    assert called == PARTITIONED


def test_journal() -> None:
    """The records that Lua writes are those of `broker/journal/schema.py`."""
    text = module_files(FOLDER)["journal"].read_text("utf-8")
    calls = re.findall(r"'\*',(.*?reason[,)])", text, re.DOTALL)
    assert [tuple(re.findall(r"'(\w+)',", call)) for call in calls] == [STORED] * text.count("'XADD'")
    assert tuple(re.findall(r"(\w+) = '", text.partition("NAMED = {")[2].partition("}")[0])) == NAMED == JOURNALED
    closings = "".join(code(path.read_text("utf-8")) for path in FOLDER.rglob("*.lua"))
    kinds = set(re.findall(r"journal\.add\('([a-z-]+)'", closings))
    kinds |= set(re.findall(r"lock_end\.(?:release|lose)\([\w.]+, '([a-z-]+)'", closings))
    kinds |= set(re.findall(r"unsubscribing\.release\([\w.]+, '([a-z-]+)'", closings))
    kinds |= set(re.findall(r"kind, reason = '([a-z-]+)'", closings))
    assert kinds == {kind.value for kind in AttemptEnd}
