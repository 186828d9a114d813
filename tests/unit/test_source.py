"""Script files: headers, includes, and the text that goes to Redis."""

from pathlib import Path

import fakeredis
import pytest

from broker.model.problems import ScriptDefect
from broker.scripts.source import fragment, operations, script

HEADER = "#!lua flags=no-writes\n-- Do a thing\n-- in two lines.\n-- KEYS: a b\n-- ARGV: now | x y\n-- RETURNS: ok | ok gone\n"


def folder(tmp_path: Path, **files: str) -> Path:
    """Write script files; a name with `lib_` before it is a fragment."""
    (tmp_path / "lib").mkdir()
    for name, text in files.items():
        kind, _, stem = name.rpartition("lib_")
        path = tmp_path / ("lib" if kind == "" and name.startswith("lib_") else ".") / f"{stem}.lua"
        path.write_text(text)
    return tmp_path


def test_header(tmp_path: Path) -> None:
    """Every part of the header is read; its names become the tables of the script."""
    found = script(folder(tmp_path, op=HEADER + "-- WRITES: a\nreturn {'ok'}\n"), "op")
    assert (found.sentence, found.keys, found.arguments, found.columns) == (
        "Do a thing in two lines.",
        ("a", "b"),
        ("now",),
        ("x", "y"),
    )
    assert (found.returns, found.row_returns, found.writes) == (("ok",), ("ok", "gone"), frozenset({"a"}))
    lines = found.text.splitlines()
    assert lines[:3] == [
        "#!lua flags=no-writes",
        "local key = {a = KEYS[1], b = KEYS[2]}",
        "local arg = {now = ARGV[1]}",
    ]
    assert "for i = 2, #ARGV, 2 do rows[#rows + 1] = {x = ARGV[i + 0], y = ARGV[i + 1]} end" in found.text
    assert found.plain == found.text.partition("\n")[2]


@pytest.mark.parametrize("missing", ["#!lua", "-- KEYS", "-- ARGV", "-- RETURNS", "-- WRITES"])
def test_incomplete_header(tmp_path: Path, missing: str) -> None:
    """A header that lacks a line is a defect, told with the file's name."""
    text = "\n".join(line for line in (HEADER + "-- WRITES: a\n").splitlines() if not line.startswith(missing))
    with pytest.raises(ScriptDefect, match=r"op\.lua"):
        script(folder(tmp_path, op=text), "op")


def test_includes(tmp_path: Path) -> None:
    """Each fragment comes once, before whoever includes it."""
    place = folder(
        tmp_path,
        op=HEADER + "-- WRITES:\n--- @include c b\nreturn a.x\n",
        lib_a="-- NEEDS:\nlocal a = {}\n",
        lib_b="-- NEEDS: a\n--- @include a\nlocal b = {}\n",
        lib_c="-- NEEDS:\n--- @include a b\nlocal c = {}\n",
    )
    text = script(place, "op").text
    assert [text.count(f"local {name} = {{}}") for name in "abc"] == [1, 1, 1]
    assert text.index("local a") < text.index("local b") < text.index("local c") < text.index("return")


def test_lazy(tmp_path: Path) -> None:
    """A fragment says why it is built late; then its functions are made when one is asked for, and its data is there at once."""
    place = folder(
        tmp_path,
        op=HEADER
        + "-- WRITES:\n--- @include late\nlate.sum = 3\nreturn {late.sum, late.add(4), late.add(5), late.no}\n",
        lib_early="-- NEEDS:\nlocal early = {}\nfunction early.two() return 2 end\n",
        lib_late="-- NEEDS:\n-- LAZY: where sums are made\n--- @include early\nlocal late = {sum = 2}\n"
        "local function grow(by) late.sum = late.sum + by end\n"
        "function late.add(by)\n  grow(by * early.two())\n  return late.sum\nend\n",
    )
    found = script(place, "op")
    assert fakeredis.FakeRedis().eval(found.plain, 2, "a", "b", "") == [3, 11, 21]
    assert [fragment(place, name).lazy for name in ("early", "late")] == [False, True]


def test_no_table(tmp_path: Path) -> None:
    """A fragment that does not define the table of its name, in a line, is told."""
    place = folder(tmp_path, op=HEADER + "-- WRITES:\n--- @include a\n", lib_a="-- NEEDS:\nlocal b = {}\n")
    with pytest.raises(ScriptDefect, match=r"a\.lua.*local a = "):
        script(place, "op")


def test_missing_include(tmp_path: Path) -> None:
    """A fragment that is not there is named."""
    with pytest.raises(ScriptDefect, match="nobody"):
        script(folder(tmp_path, op=HEADER + "-- WRITES:\n--- @include nobody\n"), "op")


def test_circle(tmp_path: Path) -> None:
    """Fragments that include each other are told with the way round."""
    place = folder(
        tmp_path,
        op=HEADER + "-- WRITES:\n--- @include a\n",
        lib_a="--- @include b\nlocal a = {}\n",
        lib_b="--- @include a\nlocal b = {}\n",
    )
    with pytest.raises(ScriptDefect, match="a -> b -> a"):
        script(place, "op")


def test_address(tmp_path: Path) -> None:
    """Design §5: another text is another script, so that two versions live side by side."""
    place = folder(tmp_path, one=HEADER + "-- WRITES:\nreturn 1\n", two=HEADER + "-- WRITES:\nreturn 2\n")
    assert operations(place) == ("one", "two")
    assert script(place, "one").sha != script(place, "two").sha and len(script(place, "one").sha) == 40
