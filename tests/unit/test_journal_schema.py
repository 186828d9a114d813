"""The journal's schema, the contract of its readers."""

from fnmatch import fnmatchcase

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker import keys
from broker.journal.schema import (
    FIELDS,
    LOGGED,
    PARTITION_KEYS,
    STORED,
    VERSION,
    AttemptEnd,
    JournalPartition,
    partition_of,
    record,
)
from broker.model.names import Partition


def test_fields_are_distinct_and_told() -> None:
    """Each field of a record is named once, with a type, a unit where it has one, and a meaning."""
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    assert all(field.type in {"text", "integer"} and field.meaning for field in FIELDS)
    assert all(field.unit == "" for field in FIELDS if field.type == "text")
    assert {field.name for field in FIELDS if field.unit.startswith("ms")} == {"published", "delivered", "closed"}


def test_kinds() -> None:
    """An attempt ends in one of six ways; an item without one expires."""
    assert [kind.value for kind in AttemptEnd] == [
        "acknowledged",
        "released",
        "expired",
        "bounced",
        "dead-lettered",
        "cancelled",
        "perished",
    ]


PLACES = st.builds(
    Partition,
    st.text(st.characters(exclude_categories=["Cs"]), min_size=1),
    st.text("0123456789abcdef", min_size=1),
    st.integers(0, 1023),
)


@given(PLACES, st.sampled_from([key.name for key in keys.TABLE if key.holder == "partition"]))
def test_whose_key_it_is(partition: Partition, name: str) -> None:
    """A partition's key names its holder, as the table of keys writes it; `str` writes the same, and it is read back."""
    place = partition_of(keys.of_partition(name, partition))
    assert place == (partition.node, partition.incarnation, partition.number)
    assert str(place) == str(partition) and JournalPartition.parse(str(partition)) == place
    assert fnmatchcase(keys.of_partition(name, partition), PARTITION_KEYS % (keys.PREFIX, name))


@pytest.mark.parametrize(
    "key",
    [keys.of_node("node", "jobs"), keys.of_jid("nodes", "a@x"), keys.of_service("due"), "sq:{a@b/c}:log", "other"],
)
def test_keys_of_nothing_else(key: str) -> None:
    """No other key is taken for a partition's."""
    assert partition_of(key) is None


def test_streams() -> None:
    """The fields of the log are those that the table of keys names, in its order; both streams are in the table."""
    assert keys.BY_NAME["log"].meaning.partition(": ")[2] == ", ".join(LOGGED)
    assert all(keys.BY_NAME[name].type == "stream" for name in ("journal", "log"))
    assert VERSION not in STORED


_LINE = "f1 9 7 2 4503599627370495 1700000000000-3 1700000000100 205 9 w@x/é é an item é"


def test_record() -> None:
    """A script's record is read as the fields say, with any resource or item id."""
    stored = dict(zip(STORED, ("released", "1700000000200", _LINE, "disk full"), strict=True))
    read = record({name.encode(): value.encode() for name, value in stored.items()})
    assert list(read) == [field.name for field in FIELDS]
    assert all(type(read[field.name]) is {"text": str, "integer": int}[field.type] for field in FIELDS)
    assert read == {
        "type": "released",
        "item": "an item é",
        "published": 1700000000000,
        "delivered": 1700000000100,
        "closed": 1700000000200,
        "attempt": 2,
        "subscriber": "w@x/é é",
        "frontend": "f1",
        "bytes": 205,
        "token": 7,
        "reason": "disk full",
    }


@pytest.mark.parametrize(
    "line",
    ["", "f1 9 7", _LINE.replace("205", "many"), _LINE.replace(" 9 w@x", " 8 w@x"), _LINE.replace(" 9 w", " 99 w")],
)
def test_no_record(line: str) -> None:
    """Anything else is a fault, not an empty record."""
    stored = {"type": "released", "closed": "1700000000200", "lock": line, "reason": ""}
    with pytest.raises(ValueError, match=r"unpack|invalid literal|not as long"):
        record({name.encode(): value.encode() for name, value in stored.items()})
