"""Answers of operations: read by the names in their headers, and strictly."""

from pathlib import Path
from typing import Any

import pytest

from broker.model.problems import OperationDefect
from broker.scripts.answers import Answers, find_answers
from broker.scripts.source import examine

PARTITION = "-- Loads.\nlocal partition = {}\n\nfunction partition.load() return nil end\n"


def answers(tmp_path: Path, returns: str, body: str = "return {'ok'}") -> Answers:
    """Return the answers of an operation with this line."""
    (tmp_path / "lib").mkdir(exist_ok=True)
    (tmp_path / "lib" / "partition.lua").write_text(PARTITION)
    text = f"#!lua\n-- Do a thing.\n-- ARGV: now\n-- RETURNS: {returns}\n{body}\n"
    return find_answers({"op": examine(tmp_path, "op", text)})("op")


def test_reply(tmp_path: Path) -> None:
    """Values have their names; those in square brackets may be absent, and a word may have none."""
    known = answers(tmp_path, "ok(token [collection subid]) too-many")
    assert known.read([b"ok", 5]) == (b"ok", 5, None, None)
    found = known.read([b"ok", 5, b"all"])
    assert (found.code, found.token, found.collection, found.subid) == (b"ok", 5, b"all", None)
    assert known.read([b"too-many"]).code == b"too-many"


def test_within(tmp_path: Path) -> None:
    """Rows, one row or nothing, all that is left, and the answer to a row of an operation have names too."""
    known = answers(tmp_path, "ok(rows(item [key]) lock{jid} *more(number)) | ok(item) received(outcome@op)")
    found = known.read([b"ok", [[b"a"], [b"b", b"k"]], [b"w@x"], [1], [2]])
    assert [(row.item, row.key) for row in found.rows] == [(b"a", None), (b"b", b"k")]
    assert (found.lock.jid, [row.number for row in found.more]) == (b"w@x", [1, 2])
    # Operations have no list instead of an empty one, which takes Redis long to encode.
    assert known.read([b"ok", None, []])[1:] == ([], None, [])
    assert known.read_row([b"received", [b"received", b"a"]]).outcome.outcome.item == b"a"


def test_rows(tmp_path: Path) -> None:
    """A plain text as the answer to a row is the one value after `ok`."""
    known = answers(tmp_path, "ok | ok(item) gone", "partition.load()")
    assert known.read_row(b"i").item == b"i"
    assert [row.code for row in known.read_rows([b"i", [b"ok", b"j"], [b"gone"]])] == [b"ok", b"ok", b"gone"]


def test_partition(tmp_path: Path) -> None:
    """An operation of a partition has the reply of all of them, and in its rows what its header says."""
    known = answers(tmp_path, "ok(count) stale", "partition.load()")
    reply = known.read([b"ok", [3], None, None, 1, 7, 0, 9])
    assert (reply.rows, reply.outbox_due, reply.due_ms, reply.more, reply.token) == ([3], 1, 7, 0, 9)
    assert known.read_rows(reply.rows).count == 3 and known.read([b"stale"]).code == b"stale"


@pytest.mark.parametrize(
    "reply",
    [
        [b"ok"],
        [b"ok", 1, 2, 3],
        [b"gone"],
        [b"too-many", 1],
        [],
        [b"rows", [[b"a", 1]]],
        [b"rows", [[]]],
        [b"rows", [b"a"], 1],
    ],
)
def test_defects(tmp_path: Path, reply: list[Any]) -> None:
    """Too few values, too many, or another word are a defect, which names the operation and the word."""
    known = answers(tmp_path, "ok(token [subid]) too-many rows(each(item))", "partition")
    with pytest.raises(
        OperationDefect, match=f"op answered {reply[0] if reply else b''!r} with {len(reply[1:])} values"
    ):
        known.read(reply)
