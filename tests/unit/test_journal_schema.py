"""The journal's schema is the contract of whoever reads journals."""

from broker.journal.schema import FIELDS, Kind


def test_fields_are_distinct_and_told() -> None:
    """Design §5: each field of a record is named once, with a type, a unit where it has one, and a meaning."""
    assert len({field.name for field in FIELDS}) == len(FIELDS)
    assert all(field.type in {"text", "integer"} and field.meaning for field in FIELDS)
    assert all(field.unit == "" for field in FIELDS if field.type == "text")
    assert {field.name for field in FIELDS if field.unit.startswith("ms")} == {"published", "delivered", "closed"}


def test_kinds() -> None:
    """Design §5: an attempt ends in one of five ways."""
    assert [kind.value for kind in Kind] == ["acknowledged", "released", "expired", "bounced", "dead-lettered"]
