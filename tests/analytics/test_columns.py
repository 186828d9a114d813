"""Records decoded many at a time equal records decoded one by one."""

from collections.abc import Mapping

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from broker.analytics.faults import Unreadable
from broker.analytics.source.columns import ATTEMPTS, attempts, log
from broker.analytics.source.options import Options
from broker.journal.schema import FIELDS, STORED, AttemptEnd, JournalPartition, record
from tests.analytics.conftest import Journals
from tests.lua.driver import T0

PLACE = JournalPartition("jobs", "ab12", 3)
NUMBERS = st.integers(0, 2**53)
# Redis may have any characters but those that no XMPP server lets through.
TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=12)
WORDS = st.text(st.characters(min_codepoint=33, max_codepoint=126), min_size=1, max_size=6)


@st.composite
def records(draw: st.DrawFn) -> dict[str, str]:
    """Return a record as scripts write it."""
    jid, item = draw(TEXTS), draw(TEXTS)
    at, attempt = draw(st.integers(0, 2**41)), draw(st.integers(1, 50))
    line = [draw(WORDS), *map(str, (draw(NUMBERS), draw(NUMBERS), attempt, draw(NUMBERS)))]
    line += [f"{at}-{draw(NUMBERS)}", str(at + draw(st.integers(0, 2**20))), str(draw(NUMBERS))]
    line += [str(len(jid.encode())), jid, item]
    closed = str(at + draw(st.integers(0, 2**21)))
    kind = draw(st.sampled_from([kind.value for kind in AttemptEnd]))
    return dict(zip(STORED, (kind, closed, " ".join(line), draw(TEXTS)), strict=True))


def entry(number: int, stored: Mapping[str, str | bytes]) -> tuple[bytes, list[bytes]]:
    """Return an entry as Redis returns it."""
    return b"%d-0" % number, [
        part if isinstance(part, bytes) else part.encode() for pair in stored.items() for part in pair
    ]


@settings(max_examples=200)
@given(st.lists(records(), max_size=40))
@example([])
def test_as_one_by_one(made: list[dict[str, str]]) -> None:
    """Each field of each row is what `record` reads."""
    batch = attempts(PLACE, [entry(number, stored) for number, stored in enumerate(made)])
    assert batch.schema == ATTEMPTS
    batch.validate(full=True)
    for number, (row, stored) in enumerate(zip(batch.to_pylist(), made, strict=True)):
        expected = record({name.encode(): value.encode() for name, value in stored.items()})
        for field in FIELDS:
            value = row[field.name]
            assert (round(value.timestamp() * 1000) if field.unit.startswith("ms") else value) == expected[field.name]
        assert (row["node"], row["incarnation"], row["partition"], row["offset"]) == (*PLACE, f"{number}-0")
        assert row["held_ms"] == int(expected["closed"]) - int(expected["delivered"])
        first = expected["attempt"] == 1
        assert row["wait_ms"] == (int(expected["delivered"]) - int(expected["published"]) if first else None)


def test_fields_of_another_version() -> None:
    """Fields that this version does not know are ignored, wherever they stand; one that is missing is not."""
    stored = {**dict.fromkeys(STORED, ""), **Journals.record(7, T0)}
    plain = attempts(PLACE, [entry(1, stored)])
    more: list[dict[str, str | bytes]] = [
        {"tenant": "x", **stored},
        {**stored, "tenant": b"\xff"},
        dict(reversed(stored.items())),
    ]
    for each in more:
        assert attempts(PLACE, [entry(1, each)]) == plain
    lacking = {name: value for name, value in stored.items() if name != "closed"}
    with pytest.raises(Unreadable, match=r"^journal of jobs@ab12/3: the record 2-0 is damaged"):
        attempts(PLACE, [entry(1, stored), entry(2, lacking)])


def test_named() -> None:
    """The publisher and the key are there where the node's option names them; a record without them is as before."""
    stored = dict(Journals.record(7, T0))
    entries = [entry(1, stored), entry(2, {**stored, "publisher": "é@x", "key": "k"}), entry(3, {**stored, "key": "k"})]
    rows = attempts(PLACE, entries).to_pylist()
    assert [(row["publisher"], row["key"], row["token"]) for row in rows] == [
        (None, None, 7),
        ("é@x", "k", 7),
        (None, "k", 7),
    ]


def test_a_log_of_another_version() -> None:
    """So are those of an entry of the log."""
    stored = {"by": "a@x", "body": "x", "id": "i"}
    assert log(PLACE, [entry(1, {**stored, "tenant": "x"})]) == log(PLACE, [entry(1, stored)])


@settings(max_examples=200)
@given(st.lists(records(), min_size=1, max_size=5), st.data())
def test_what_is_no_record(made: list[dict[str, str]], data: st.DataObject) -> None:
    """A record with something removed or inserted is read as `record` reads it, or refused with its offset."""
    entries = [entry(number, stored) for number, stored in enumerate(made)]
    at = data.draw(st.integers(0, len(made) - 1))
    fields = entries[at][1]
    which = data.draw(st.integers(0, 7))
    text = fields[which]
    cut = data.draw(st.integers(0, len(text)))
    fields[which] = (
        text[:cut] + data.draw(st.sampled_from([b"", b" ", b"x", b"-", b"\xff", b"99999999999"])) + text[cut:]
    )
    try:
        batch = attempts(PLACE, entries)
    except Unreadable as error:
        line = str(error)
        assert line.startswith("journal of jobs@ab12/3: ") and "\n" not in line
        return
    expected = record(dict(zip(fields[::2], fields[1::2], strict=True)))
    row = batch.to_pylist()[at]
    assert (row["item"], row["subscriber"], row["attempt"], row["bytes"], row["token"]) == tuple(
        expected[name] for name in ("item", "subscriber", "attempt", "bytes", "token")
    )


def test_options_are_told_together() -> None:
    """Options are texts with names in any case."""
    options = Options.read({"URL": "redis://h", "minpartitions": "7", "failOnDataLoss": "FALSE"})
    assert (options.url, options.min_partitions, options.fail_on_data_loss) == ("redis://h", 7, False)
    with pytest.raises(Unreadable, match="the option url is missing"):
        Options.read({})
