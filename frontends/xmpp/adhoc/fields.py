"""Parses single fields of an ad-hoc command's form; an error names its field. Must not know any command."""

from collections.abc import Collection, Mapping

from broker.model.names import ITEM_ID_BYTES, Jid
from broker.model.problems import MalformedRequest
from frontends.xmpp.errors import BadCommand
from frontends.xmpp.pubsub import attributes

Fields = Mapping[str, tuple[str, ...]]

_FLAGS = {"1": True, "true": True, "0": False, "false": False, "": False}


def expect(fields: Fields, names: Collection[str]) -> None:
    """Refuse a form with fields that the command does not have."""
    unknown = next((name for name in fields if name not in names), None)
    if unknown is not None:
        raise field_fault(unknown[:100], detail="this command has no such field")


def text(fields: Fields, name: str, most_bytes: int) -> str:
    """Read a text; empty if absent."""
    values = fields.get(name, ("",)) or ("",)
    if len(values) > 1:
        raise field_fault(name, detail="it must have one value")
    if len(values[0].encode()) > most_bytes:
        raise field_fault(name, f"at most {most_bytes} bytes")
    return values[0]


def node(fields: Fields, name: str) -> str:
    """Read the name of a node, which is required."""
    values = fields.get(name, ())
    if len(values) != 1:
        raise field_fault(name, detail="it must be the name of one node")
    try:
        return attributes.node_name(values[0])
    except MalformedRequest as fault:
        raise field_fault(name, fault.detail) from None


def jid(fields: Fields, name: str) -> Jid | None:
    """Read a JID; None if absent."""
    given = text(fields, name, 10_000)
    try:
        return attributes.normalize_jid(given) if given else None
    except MalformedRequest as fault:
        raise field_fault(name, fault.detail) from None


def number(fields: Fields, name: str, least: int, most: int, default: int) -> int:
    """Read a whole number."""
    given = text(fields, name, 100)
    found = attributes.number_of(given) if given else default
    if found is None or not least <= found <= most:
        raise field_fault(name, f"it must be a whole number from {least} to {most}")
    return found


def flag(fields: Fields, name: str) -> bool:
    """Read a boolean; false if absent."""
    found = _FLAGS.get(text(fields, name, 100))
    if found is None:
        raise field_fault(name, detail="it must be true or false")
    return found


def items(fields: Fields, name: str, most: int) -> tuple[str, ...]:
    """Read ids of items, one a line; ignores empty lines."""
    found = tuple(dict.fromkeys(value for value in fields.get(name, ()) if value))
    if len(found) > most:
        raise field_fault(name, f"at most {most} items")
    if any(len(each.encode()) > ITEM_ID_BYTES for each in found):
        raise field_fault(name, f"an item's id has 1 to {ITEM_ID_BYTES} bytes")
    return found


def field_fault(name: str, detail: str) -> BadCommand:
    """Return the error of a field."""
    return BadCommand(condition="bad-payload", detail=f"{name}: {detail}")
