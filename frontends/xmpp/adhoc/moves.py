"""Ad-hoc commands that move many items in steps: `redrive` and `move`. Pure; must not know how moves are executed.

Hidden fields of the form carry the progress, so any frontend can continue. Forging them gains nothing: the core checks each step.
"""

from collections.abc import Mapping
from typing import Final

from broker.model.commands import MoveItems
from broker.model.items.headers import MOST
from broker.model.results import MovedItems
from frontends.xmpp import namespaces as ns
from frontends.xmpp.adhoc import commands, fields
from frontends.xmpp.adhoc.admin import write_form
from frontends.xmpp.adhoc.fields import Fields
from frontends.xmpp.stanzas import Iq, MoveBatch, Question
from frontends.xmpp.xml import forms

NAMED_MOST: Final = 100
RATE_MOST: Final = 10_000

_REASON_BYTES: Final = 1024
_SCAN_BYTES: Final = 100
_COUNT_MOST: Final = 10**15
_REASONS_TOLD: Final = 5
_REDRIVE_RATE, _MOVE_RATE = 100, 1000

_ITEMS: Final = ("text-multi", f"Ids of items, one a line, at most {NAMED_MOST}; these go at once", "")
_RATE: Final = f"Most items a second, 1 to {RATE_MOST}"
_REDRIVE: Final[Mapping[str, tuple[str, str, str]]] = {
    "node": ("text-single", "Node that the dead letters are in", ""),
    "items": _ITEMS,
    "reason": ("text-single", "Only those with this reason", ""),
    "headers": ("text-multi", "Only those with these headers, one a line as NAME=VALUE", ""),
    "all": ("boolean", "All dead letters of the node", "0"),
    "rate": ("text-single", _RATE, str(_REDRIVE_RATE)),
}
_MOVE: Final[Mapping[str, tuple[str, str, str]]] = {
    "node": ("text-single", "Node that the items are in", ""),
    "to": ("text-single", "Target node", ""),
    "items": ("text-multi", f"{_ITEMS[1]}; none: all waiting items", ""),
    "rate": ("text-single", _RATE, str(_MOVE_RATE)),
}
_HIDDEN: Final = ("scan", "moved", "stayed")


def progress(question: MoveBatch, asked: MoveItems, outcome: MovedItems) -> bytes:
    """Write the progress of a transfer: that it is finished, or the form to continue."""
    name = ns.ADMIN_REDRIVE if asked.to is None else ns.ADMIN_MOVE
    moved, stayed = question.moved + outcome.count, question.stayed + sum(outcome.passed.values())
    note = f"moved {moved}" + (f", {stayed} stayed" if stayed else "")
    reasons = sorted(outcome.passed.items(), key=lambda each: -each[1])[:_REASONS_TOLD]
    note += "".join(f"; {count}: {why}" for why, count in reasons)
    if not outcome.scan:
        return commands.write_completed(question.iq, name, note)
    kept = {"node": asked.node}
    kept |= {"reason": asked.reason} if asked.to is None else {"to": asked.to}
    kept |= {"scan": outcome.scan, "moved": str(moved), "stayed": str(stayed)}
    chosen = tuple(f"{name}={value}" for name, value in asked.headers)
    form = forms.write_form(
        "form",
        name,
        (
            *(forms.Field(field, (value,), "hidden") for field, value in kept.items()),
            *([forms.Field("headers", chosen, "hidden")] if chosen else []),
            forms.Field("rate", (str(question.rate),), "text-single", _RATE),
        ),
        f"Moved {moved} so far",
        "Continue with the next ones, or cancel: moved items stay moved.",
    )
    return commands.write_progress(question.iq, name, form, note)


def _redrive(iq: Iq, given: Fields) -> Question:
    fields.expect(given, {*_REDRIVE, *_HIDDEN})
    items, reason = _read_items(given), fields.text(given, "reason", _REASON_BYTES)
    everything, headers = fields.flag(given, "all"), _headers(given)
    # A form that continues a scan selects nothing: it continues its first selection.
    if not (items or reason or headers or everything or _scan(given)):
        raise fields.field_fault(name="items", detail="which items? Name them, give a reason or headers, or choose all")
    if everything and (items or reason or headers):
        raise fields.field_fault(name="all", detail="it cannot be combined with items, a reason or headers")
    command = MoveItems(_node(given), iq.sender, None, items, reason, 1, _scan(given), headers=headers)
    return _batch(iq, given, command, _REDRIVE_RATE)


def _headers(given: Fields) -> tuple[tuple[str, str], ...]:
    lines = [line for line in given.get("headers", ()) if line]
    if len(lines) > MOST or any(line.find("=") < 1 or len(line.encode()) > _REASON_BYTES for line in lines):
        detail = f"at most {MOST} lines of at most {_REASON_BYTES} bytes, each NAME=VALUE"
        raise fields.field_fault(name="headers", detail=detail)
    return tuple((name, value) for name, _, value in (line.partition("=") for line in lines))


def _move(iq: Iq, given: Fields) -> Question:
    fields.expect(given, {*_MOVE, *_HIDDEN})
    to = fields.node(given, "to")
    return _batch(
        iq, given, MoveItems(_node(given), iq.sender, to, _read_items(given), "", 1, _scan(given)), _MOVE_RATE
    )


def _batch(iq: Iq, given: Fields, transfer: MoveItems, default: int) -> MoveBatch:
    rate = fields.number(given, "rate", 1, RATE_MOST, default)
    moved, stayed = (fields.number(given, name, 0, _COUNT_MOST, 0) for name in ("moved", "stayed"))
    return MoveBatch(iq, transfer, rate=rate, moved=moved, stayed=stayed)


def _node(given: Fields) -> str:
    return fields.node(given, "node")


def _read_items(given: Fields) -> tuple[str, ...]:
    items = fields.items(given, "items", NAMED_MOST)
    if items and _scan(given):
        raise fields.field_fault(name="items", detail="they cannot be combined with a scan")
    return items


def _scan(given: Fields) -> str:
    return fields.text(given, "scan", _SCAN_BYTES)


_REDRIVE_TITLE, _MOVE_TITLE = "Redrive dead letters", "Move items"

COMMANDS: Final = (
    commands.Command(
        ns.ADMIN_REDRIVE,
        _REDRIVE_TITLE,
        ns.ADMIN_REDRIVE,
        write_form(
            ns.ADMIN_REDRIVE,
            _REDRIVE_TITLE,
            "Dead letters go back to the node where they died, to be processed again.",
            _REDRIVE,
        ),
        _redrive,
    ),
    commands.Command(
        ns.ADMIN_MOVE,
        _MOVE_TITLE,
        ns.ADMIN_MOVE,
        write_form(
            ns.ADMIN_MOVE, _MOVE_TITLE, "The waiting items of a node go to another one; held items stay.", _MOVE
        ),
        _move,
    ),
)
