"""Headers are no decoration: each is held to its body, to `broker/keys.py`, to the results and to the tests."""

import re
from pathlib import Path

import pytest

from broker import keys
from broker.journal.schema import STORED, Kind
from broker.model.problems import Problem
from broker.redis_core.calls import OF
from broker.scripts.source import Fragment, Script, fields, fragment, includes, ordered
from tests.lua.driver import FOLDER, NOTICES, PARTITIONED, SCRIPTS

HERE = Path(__file__).parent
FRAGMENTS = {path.stem: fragment(FOLDER, path.stem) for path in sorted((FOLDER / "lib").glob("*.lua"))}

ANSWERS_OF_THEIR_OWN = {
    "ok", "replayed", "duplicate", "stale", "newer", "gone", "deleted", "no-owner", "too-many", "held", "waiting",
}  # fmt: skip
"""Words that the core reads itself; every other word is a `Problem`'s code."""

each_script = pytest.mark.parametrize("found", SCRIPTS.values(), ids=SCRIPTS)
each_fragment = pytest.mark.parametrize("piece", FRAGMENTS.values(), ids=FRAGMENTS)


def code(text: str) -> str:
    """Give Lua without its comments."""
    return re.sub(r"--.*", "", text)


def body(name: str) -> str:
    """Give an operation's own text."""
    return (FOLDER / f"{name}.lua").read_text("utf-8")


def pieces(name: str) -> list[Fragment]:
    """Give the fragments that an operation includes, however deep."""
    return ordered(FOLDER, includes(body(name)))


def used(text: str, table: str) -> set[str]:
    """Name the fields of a table that a text reads."""
    return set(re.findall(rf"\b{table}\.(\w+)", code(text)))


@each_script
def test_keys(found: Script) -> None:
    """Every key is one of `broker/keys.py`, all of one holder, and declared exactly when the expanded body uses it."""
    assert {keys.BY_NAME[name].holder for name in found.keys} in (
        {"partition"},
        {"node"},
        {"jid"},
        {"service"},
        {"qos"},
    )
    reads = used(found.text.partition("\n")[2].partition("\n")[2], "key")
    if found.name == "delete":
        assert reads < set(found.keys) == {row.name for row in keys.TABLE if row.holder == "partition"}
    else:
        assert reads == set(found.keys)


@each_script
def test_arguments(found: Script) -> None:
    """Every fixed argument and every column is read."""
    text = found.text
    # `positions` can make ids, which takes the partition's number; not everyone who orders positions does. `partition` looks
    # whose call it is, if the caller says.
    assert set(found.arguments) <= used(text, "arg") <= set(found.arguments) | {"number", "frontend"}
    assert set(found.columns) <= used(text, "row")


@each_script
def test_writes(found: Script) -> None:
    """WRITES are keys of the header, and who writes nothing says `no-writes` to Redis."""
    assert found.writes <= set(found.keys)
    assert ("no-writes" in found.text.splitlines()[0]) == (not found.writes)


@each_script
def test_returns(found: Script) -> None:
    """The code words of the body are those of RETURNS, and each is a problem's code or known to the core."""
    text = code(body(found.name)) + "".join(code(piece.body) for piece in pieces(found.name))
    written = set(re.findall(r"\{'([a-z-]+)'", text)) | set(re.findall(r"return '([a-z-]+)'", text))
    for pair in re.findall(r"and '(ok)' or '([a-z-]+)'", text):
        written |= set(pair)
    declared = set(found.returns) | set(found.row_returns)
    # `held` and `waiting` are the judge's words to the operation, which answers others for them; notices have kinds.
    assert declared <= written
    assert written - declared <= {"held", "waiting", "replayed", *NOTICES}
    assert declared <= ANSWERS_OF_THEIR_OWN | {problem.value for problem in Problem}


@each_script
def test_replies_alike(found: Script) -> None:
    """Scripts of a partition that check the revision answer in one shape and refuse in the same three words."""
    assert (found.name in PARTITIONED) == ("local refusal = partition.load()" in body(found.name))
    if found.name in PARTITIONED:
        assert found.returns == ("ok", "stale", "gone", "deleted")


@each_script
def test_has_a_sentence_and_a_test(found: Script) -> None:
    """One stem everywhere: each operation says in a sentence what it does and has a test module of its name."""
    assert found.sentence.endswith(".") and found.sentence[0].isupper()
    assert (HERE / f"test_{found.name}.py").is_file()


@each_fragment
def test_fragments(piece: Fragment) -> None:
    """A fragment defines one table of its name and needs exactly the keys that it uses."""
    assert set(piece.needs) == used(piece.body, "key")
    # Top-level locals are the table, or functions of the fragment's own.
    assert re.findall(r"^local (\w+) =", piece.body, re.MULTILINE) == [piece.name]
    assert "NEEDS" in fields(piece.body)


@each_script
def test_needs_are_met(found: Script) -> None:
    """An operation has the keys of every fragment that it includes."""
    for piece in pieces(found.name):
        assert piece.needs <= set(found.keys), piece.name


def test_one_place_gives_numbers() -> None:
    """Guarantee 10: every number of a partition comes from `partition.next_number`, which gives none twice."""
    texts = {path.stem: code(path.read_text("utf-8")) for path in FOLDER.rglob("*.lua")}
    given = texts["partition"].partition("function partition.next_number()")[2].partition("\nend")[0]
    assert "partition.token + 1" in given
    texts["partition"] = texts["partition"].replace(given, "").replace("partition.token = tonumber(meta[8])", "")
    for name, text in texts.items():
        assert not re.search(r"\bpartition\.token\s*(=[^=]|\+)", text), name


def test_every_command_has_its_script() -> None:
    """Every call of the core runs a script that is there, and every script of a partition has a caller."""
    called = {call.script for call in OF.values()}
    assert called <= SCRIPTS.keys()
    assert called == PARTITIONED


def test_journal() -> None:
    """Design §5: the records that Lua writes are those of `broker/journal/schema.py`."""
    text = FRAGMENTS["journal"].body
    call = text[text.index("'*',") + 4 : text.rindex("reason)\n") + 7]
    assert tuple(re.findall(r"'(\w+)',", call)) == STORED
    closings = "".join(code(path.read_text("utf-8")) for path in FOLDER.rglob("*.lua"))
    kinds = set(re.findall(r"journal\.closed\('([a-z-]+)'", closings))
    kinds |= set(re.findall(r"ending\.release\([\w.]+, '([a-z-]+)'", closings))
    kinds |= set(re.findall(r"leave\.release\([\w.]+, '([a-z-]+)'", closings))
    kinds |= set(re.findall(r"kind, reason = '([a-z-]+)'", closings))
    assert kinds == {kind.value for kind in Kind}
