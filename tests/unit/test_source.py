"""Operations and modules: how their texts are read, and how they are packaged for Redis."""

from pathlib import Path

import fakeredis
import pytest

from broker.model.problems import OperationDefect
from broker.scripts.packaging import inspection, library, script
from broker.scripts.source import Shape, modules, operation, operation_files, operations

HEADER = "#!lua flags=no-writes\n-- Do a thing\n-- in two lines.\n-- ARGV: now | x y\n-- RETURNS: ok | ok gone\n"

SUMS = """-- Sums of a call.
-- CALL: sum = 2, before
local sums = {MOST = 10}

local function grow(by)
  call.sums_before, call.sums_sum = call.sums_sum, call.sums_sum + by
end

function sums.before() return call.sums_before or 'none' end

function sums.add(by)
  grow(by * numbers.two())
  return call.sums_sum
end

function sums.unused() return redis.call('HSET', key.never, 'a', 1) end
"""
NUMBERS = "-- Numbers.\nlocal numbers = {}\n\nfunction numbers.two() return 2 end\n"


def folder(tmp_path: Path, **files: str) -> Path:
    """Write operations; a name with `lib_` before it is a module."""
    (tmp_path / "lib").mkdir(parents=True)
    for name, text in files.items():
        stem = name.removeprefix("lib_")
        (tmp_path / ("lib" if stem != name else ".") / f"{stem}.lua").write_text(text)
    return tmp_path


def test_header(tmp_path: Path) -> None:
    """Every part of the header is read."""
    found = operation(folder(tmp_path, op=HEADER + "return {'ok'}\n"), "op")
    assert (found.sentence, found.flags, found.arguments, found.columns) == (
        "Do a thing in two lines.",
        ("no-writes",),
        ("now",),
        ("x", "y"),
    )
    assert (found.returns, found.row_returns) == ({"ok": Shape()}, {"ok": Shape(), "gone": Shape()})
    assert (found.keys, found.writes, found.partitioned) == ((), frozenset(), False)


def test_answers(tmp_path: Path) -> None:
    """An answer has a code word and the names of its values: of rows, of one row, of another's answer, of all that is left."""
    said = "ok(gap entries(position item [key])\n--   [lock{jid} next@op]) gone | ok(now *words)"
    found = operation(folder(tmp_path, op=HEADER.replace("ok | ok gone", said) + "return {'ok'}\n"), "op")
    within = {
        "entries": Shape(("position", "item", "key"), 1),
        "lock": Shape(("jid",), kind="{"),
        "next": Shape(("op",), kind="@"),
    }
    assert found.returns == {"ok": Shape(("gap", "entries", "lock", "next"), 2, within=within), "gone": Shape()}
    assert found.row_returns == {"ok": Shape(("now", "words"), rest=True)}


@pytest.mark.parametrize("said", ["ok(", "ok(a(b)", "ok((a))", "ok(a@"])
def test_brackets_that_do_not_match(tmp_path: Path, said: str) -> None:
    """They are a defect, told with the file's name."""
    with pytest.raises(OperationDefect, match=r"op\.lua.*brackets"):
        operation(folder(tmp_path, op=HEADER.replace("ok | ok gone", said)), "op")


@pytest.mark.parametrize("missing", ["#!lua", "-- ARGV", "-- RETURNS"])
def test_incomplete_header(tmp_path: Path, missing: str) -> None:
    """A header that lacks a line is a defect, told with the file's name."""
    text = "\n".join(line for line in HEADER.splitlines() if not line.startswith(missing))
    with pytest.raises(OperationDefect, match=r"op\.lua"):
        operation(folder(tmp_path, op=text), "op")


def test_keys_follow_from_use(tmp_path: Path) -> None:
    """Keys are those of the functions that an operation may call, and no others; so is what it writes."""
    place = folder(
        tmp_path,
        op=HEADER + "reader.look()\nlocal function own() return redis.call('HGET', key.b, 'x') end\nreturn own()\n",
        writes=HEADER + "reader.look()\nwriter.drop(key.c)\nredis.call('UNLINK', key.d, key.e)\nreturn {'ok'}\n",
        lib_reader="-- Reads.\nlocal reader = {}\n\nlocal function raw() return redis.call('GET', key.a) end\n\n"
        "function reader.look() return raw() end\n\nfunction reader.other() return redis.call('HSET', key.z, 'a', 1) end\n",
        lib_writer="-- Writes to what it is given.\nlocal writer = {}\n\n"
        "function writer.drop(name)\n  redis.call('HDEL', name, 'x')\nend\n",
    )
    found = operation(place, "op")
    assert (found.keys, found.writes) == (("a", "b"), frozenset())
    found = operation(place, "writes")
    assert (found.keys, found.writes) == (("a", "c", "d", "e"), frozenset("cde"))


def test_keys_of_a_plain_partition(tmp_path: Path) -> None:
    """They come first, in the order of the line, so that a call may pass these alone; a key that is not used is a fault."""
    text = HEADER.replace("-- ARGV:", "-- PLAIN: c a\n-- ARGV:") + "return redis.call('DEL', key.a, key.b, key.c)\n"
    found = operation(folder(tmp_path / "good", op=text), "op")
    assert (found.plain, found.keys) == (("c", "a"), ("c", "a", "b"))
    with pytest.raises(OperationDefect, match="PLAIN names keys that it does not use: z"):
        operation(folder(tmp_path / "bad", op=text.replace("PLAIN: c", "PLAIN: z c")), "op")


def test_script(tmp_path: Path) -> None:
    """A script has the functions that its operation may call, and no state of an earlier call."""
    body = "local none, first = sums.before(), sums.add(tonumber(rows[1].x))\n"
    body += "return {none, first, sums.before(), sums.add(5), sums.MOST}\n"
    place = folder(tmp_path, op=HEADER + body, lib_sums=SUMS, lib_numbers=NUMBERS)
    found = script(place, "op")
    client = fakeredis.FakeRedis()
    for _ in range(2):
        assert client.eval(found.plain, 0, "", "4", "") == [b"none", 10, 2, 20, 10]
    assert "unused" not in found.text and found.text.startswith("#!lua flags=no-writes\n")
    assert "-- " not in found.text


def test_library(tmp_path: Path) -> None:
    """Each module is there once, after those that it uses; functions are named after the content."""
    place = folder(tmp_path, op=HEADER + "return {sums.add(1)}\n", lib_sums=SUMS, lib_numbers=NUMBERS)
    found = library(place)
    assert found.text.startswith(f"#!lua name={found.name}\n") and found.function("op") == f"{found.name}_op"
    assert f"function_name = '{found.name}_op', flags = {{'no-writes'}}" in found.text
    assert list(modules(place)) == ["numbers", "sums"]
    assert found.text.index("local numbers") < found.text.index("local sums") < found.text.index("register_function")


def test_no_table(tmp_path: Path) -> None:
    """A module that does not define the table of its name, in a line, is reported."""
    with pytest.raises(OperationDefect, match=r"a\.lua.*local a = "):
        modules(folder(tmp_path, lib_a="local b = {}\n"))


def test_one_name_in_two_rooms(tmp_path: Path) -> None:
    """Files are referred to by their names alone, so no two folders may have one of the same name."""
    place = folder(tmp_path, op=HEADER, lib_numbers=NUMBERS)
    for room in (place / "items", place / "lib" / "items"):
        room.mkdir()
    (place / "lib" / "items" / "sums.lua").write_text(SUMS)
    assert (operations(place), list(modules(place))) == (("op",), ["numbers", "sums"])
    (place / "items" / "op.lua").write_text(HEADER)
    operation_files.cache_clear()
    with pytest.raises(OperationDefect, match=r"two files have one name: .*op\.lua and .*op\.lua"):
        operations(place)


def test_circle(tmp_path: Path) -> None:
    """Modules that use each other are reported with the cycle."""
    place = folder(
        tmp_path,
        lib_a="local a = {}\nfunction a.x() return b.x() end\n",
        lib_b="local b = {}\nfunction b.x() return a.x() end\n",
    )
    with pytest.raises(OperationDefect, match="a -> b -> a"):
        modules(place)


def test_names_follow_the_content(tmp_path: Path) -> None:
    """Another text has another name, so that two versions live side by side; a comment changes nothing."""
    texts = {"one": "return 1\n", "two": "return 2\n", "again": "-- Twice.\nreturn 1\n"}
    place = folder(tmp_path, **{name: HEADER + text for name, text in texts.items()})
    assert operations(place) == ("again", "one", "two")
    shas = {name: script(place, name).sha for name in texts}
    assert shas["one"] == shas["again"] != shas["two"] and len(shas["one"]) == 40
    names = set()
    for name in ("one", "two", "again"):
        (tmp_path / name).mkdir()
        names.add(library(folder(tmp_path / name, op=HEADER + texts[name])).name)
    assert len(names) == 2


@pytest.mark.parametrize(
    ("ours", "theirs", "replaces"),
    [
        ("0.2.0", "0.1.0", True),
        ("0.10.0", "0.9.0", True),
        ("0.1.0", "0.2.0", False),
        ("0.1.0", "0.1.0", False),
        ("0.2.0", "0.2.0rc1", True),
        ("0.2.0rc1", "0.2.1", False),
        ("1.0", "", True),
    ],
)
def test_inspection(tmp_path: Path, ours: str, theirs: str, *, replaces: bool) -> None:
    """The library for redis-cli replaces an older one or one without a version, but no newer one."""
    (tmp_path / "inspect").mkdir()
    text = "#!lua name=people\nreturn 1\n"
    (tmp_path / "inspect" / "people.lua").write_text(text)
    found = inspection(tmp_path, ours)
    assert found.name == "people" and found.text == f"#!lua name=people\n-- version {ours}\nreturn 1\n"
    assert found.replaces(inspection(tmp_path, theirs).text if theirs else text) is replaces
