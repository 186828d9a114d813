"""The journal's schema is the contract of whoever reads journals."""

import pytest

from broker.journal.schema import FIELDS, STORED, Kind, record


def test_fields_are_distinct_and_told() -> None:
    """Design §5: each field of a record is named once, with a type, a unit where it has one, and a meaning."""
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    assert all(field.type in {"text", "integer"} and field.meaning for field in FIELDS)
    assert all(field.unit == "" for field in FIELDS if field.type == "text")
    assert {field.name for field in FIELDS if field.unit.startswith("ms")} == {"published", "delivered", "closed"}


def test_kinds() -> None:
    """Design §5: an attempt ends in one of five ways."""
    assert [kind.value for kind in Kind] == ["acknowledged", "released", "expired", "bounced", "dead-lettered"]


_LINE = "f1 9 7 2 4503599627370495 1700000000000-3 1700000000100 205 9 w@x/é é an item é"


def test_record() -> None:
    """What a script wrote is read as the fields say, whatever stands in a resource or an item's id."""
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


@pytest.mark.parametrize("line", ["", "f1 9 7", _LINE.replace("205", "many")])
def test_no_record(line: str) -> None:
    """What no script has written is a fault, not a record of nothing."""
    stored = {"type": "released", "closed": "1700000000200", "lock": line, "reason": ""}
    with pytest.raises(ValueError, match=r"unpack|invalid literal"):
        record({name.encode(): value.encode() for name, value in stored.items()})
