"""Turns source filters (E22 to E24) into a start position or a selector. Pure; must not know links or proton.

`start` accepts the filters of a log, `selector` those of a queue. Unknown ones are refused, or a consumer would get too much.
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from functools import partial
from typing import Final

from broker.model import offsets
from broker.model.frozen import frozen
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Event
from broker.selectors.text import UnreadableSelector, read
from broker.selectors.tree import (
    Both,
    Comparison,
    Either,
    Field,
    Literal,
    Negation,
    Operand,
    Order,
    Predicate,
    Section,
)
from broker.selectors.values import judge
from frontends.amqp.constants import ANNOTATIONS_FILTER, KEYS, OFFSET, SELECTOR_FILTER, SQL_FILTER, TIMESTAMP
from frontends.amqp.messages import message
from frontends.amqp.protocol.filters import Filter

_MOST_MS: Final = 10**15

# EX2: the draft's grammar has them in `m`, but they are delivery annotations, `d`.
_OFFSETS: Final = frozenset({f"d.{OFFSET}", f"m.{OFFSET}"})
_TIMES: Final = frozenset({f"d.{TIMESTAMP}", f"m.{TIMESTAMP}"})

_KEYS: Final = frozenset(f"m.{name}" for name in KEYS)

_MIRRORED: Final = {
    Order.BELOW: Order.ABOVE,
    Order.AT_MOST: Order.AT_LEAST,
    Order.ABOVE: Order.BELOW,
    Order.AT_LEAST: Order.AT_MOST,
}

# EX5: what stands for the reserved offsets in a comparison. A peer cannot name this field itself: it is refused.
_BEFORE_ALL: Final = Literal("")
_NEWEST: Final = Field(Section.DELIVERY, offsets.LATEST)
_AFTER: Final = "~"
"""An offset with this at its end sorts after that offset and before all later ones."""


@frozen
class Start:
    """A start position; with `first`, delivery begins with the first event for which it is true.

    `first` is called with the newest offset at the attach, and an event.
    """

    begin: str
    first: Callable[[str, Event], bool] | None = None

    def first_after(self, newest: str) -> Callable[[Event], bool] | None:
        """Return `first` for a log whose newest offset is this one."""
        return self.first and partial(self.first, newest)


def start(found: Mapping[str, Filter]) -> Start:
    """Return where a link begins (EX9): the filter selects the first event, and all events after it are delivered.

    Without a filter it begins after the newest event (E3). Raises MalformedRequest.
    """
    begin = Start(offsets.LATEST)
    for name, each in found.items():
        if each.descriptor in ANNOTATIONS_FILTER:
            begin = Start(_annotations(each.value))
        elif each.descriptor in SQL_FILTER:
            begin = _sql(each.value)
        else:
            raise _unknown(name, each)
    if len(found) > 1:
        raise MalformedRequest(Problem.UNSUPPORTED, "only one filter is supported")
    return begin


def selector(found: Mapping[str, Filter]) -> str:
    """Return the selector of a queue's consumer; empty for all items. Raises MalformedRequest."""
    text = ""
    for name, each in found.items():
        if each.descriptor not in SELECTOR_FILTER:
            raise _unknown(name, each)
        if not isinstance(each.value, str) or text:
            raise MalformedRequest(Problem.OPTIONS_INVALID, "a selector must be one string")
        text = each.value.strip()
    return text


def _unknown(name: str, each: Filter) -> MalformedRequest:
    return MalformedRequest(Problem.UNSUPPORTED, f"unknown filter {str(each.descriptor or name)[:80]}")


def _annotations(value: object) -> str:
    if not isinstance(value, dict) or not value:
        raise MalformedRequest(Problem.OFFSET_INVALID, "the filter must be a map of an offset, a timestamp, or both")
    said = {str(name): each for name, each in value.items()}
    if wrong := said.keys() - {OFFSET, TIMESTAMP}:
        raise MalformedRequest(
            Problem.OFFSET_INVALID, f"{min(wrong)[:80]}: only {OFFSET} and {TIMESTAMP} are supported"
        )
    moment = _moment(said[TIMESTAMP]) if TIMESTAMP in said else None
    if OFFSET not in said:
        return str(moment)
    offset = said[OFFSET]
    if not isinstance(offset, str):
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{OFFSET} must be a symbol")
    offset = str(offset)
    reserved = offset in {offsets.EARLIEST, offsets.LATEST}
    if (offsets.read_partition(offset) is None and not reserved) or offset.startswith(">"):
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{OFFSET} must be the offset of a delivery")
    if moment is None or offset == offsets.LATEST:
        return offset
    # Both conditions must hold, and each holds from some event on: the later one decides.
    return str(moment) if offset == offsets.EARLIEST or int(offset[:20]) < moment else offset


def _moment(value: object) -> int:
    # EX8: milliseconds, without guessing.
    if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < _MOST_MS:
        raise MalformedRequest(Problem.OFFSET_INVALID, f"{TIMESTAMP} must be a timestamp, in ms since 1970")
    return int(value)


def _sql(value: object) -> Start:
    if not isinstance(value, str):
        raise MalformedRequest(Problem.OFFSET_INVALID, "the filter must be a string")
    try:
        tree = read(value)
    except UnreadableSelector as wrong:
        raise MalformedRequest(Problem.OFFSET_INVALID, str(wrong)) from None
    for field in _fields(tree):
        # E24: offset and time are delivery annotations; only `m` names a message's own.
        if field.section is not Section.MESSAGE and field.key not in _OFFSETS | _TIMES:
            raise MalformedRequest(
                Problem.UNSUPPORTED, f"{field.key[:80]}: only {OFFSET}, {TIMESTAMP} and annotations of m are supported"
            )
    annotated = any(field.key not in _OFFSETS | _TIMES for field in _fields(tree))
    tree = _resolve(tree)
    begin, is_true = _begin(tree), judge(tree)
    if begin is not None and isinstance(tree, Comparison):
        return Start(begin)

    def first(newest: str, event: Event) -> bool:
        return is_true({**_values(event, annotated=annotated), _NEWEST.key: newest + _AFTER}) is True

    return Start(begin or offsets.EARLIEST, first)


def _resolve(tree: Predicate) -> Predicate:
    """Return the condition with the field first, and with operands in place of the reserved offsets. Raises MalformedRequest."""
    match tree:
        case Both(left, right):
            return Both(_resolve(left), _resolve(right))
        case Either(left, right):
            return Either(_resolve(left), _resolve(right))
        case Negation(predicate):
            return Negation(_resolve(predicate))
        case Comparison(Literal() as literal, order, Field() as field):
            return _resolve(Comparison(field, _MIRRORED.get(order, order), literal))
        case Comparison(Field() as field, order, Literal() as literal):
            return Comparison(field, order, _constant(field, literal))
    return tree


def _constant(field: Field, literal: Literal) -> Operand:
    match literal.value:
        case str(text) if field.key in _OFFSETS:
            if text == offsets.LATEST:
                return _NEWEST
            if text == offsets.EARLIEST:
                return _BEFORE_ALL
            if offsets.read_partition(text) is not None and not text.startswith(">"):
                return literal
        case float() if field.key in _TIMES:
            return literal
        case _ if field.key not in _OFFSETS | _TIMES:
            return literal
    raise MalformedRequest(Problem.OFFSET_INVALID, f"{field.name} is compared with a value of the wrong type")


def _fields(part: object) -> Iterator[Field]:
    if isinstance(part, Field):
        yield part
    elif is_dataclass(part):
        for each in fields(part):
            yield from _fields(getattr(part, each.name))


def _values(event: Event, *, annotated: bool) -> dict[str, str | float | bool | None]:
    said = {f"m.{name}": text for name, text in message.shown_annotations(event.envelope).items()} if annotated else {}
    key = dict.fromkeys(_KEYS, event.key or None)
    return {**said, **key, **dict.fromkeys(_OFFSETS, event.offset), **dict.fromkeys(_TIMES, event.timestamp_ms)}


def _begin(tree: Predicate) -> str | None:
    """Return a position before which no event matches, if the condition has one; earlier events need not be read."""
    match tree:
        case Comparison(Field() as field, Order.ABOVE | Order.AT_LEAST as order, bound):
            return _write_bound(field, bound, after=order is Order.ABOVE)
        case Both(left, right):
            return _begin(left) or _begin(right)
    return None


def _write_bound(field: Field, bound: Operand, *, after: bool) -> str | None:
    if bound == _NEWEST:
        return offsets.LATEST
    if bound == _BEFORE_ALL:
        return offsets.EARLIEST
    match bound:
        case Literal(str(text)) if field.key in _OFFSETS:
            return f">{text}" if after else text
        case Literal(float(moment)) if field.key in _TIMES:
            later = int(moment) + (after or moment != int(moment))
            return str(later) if 0 <= later < _MOST_MS else None
    return None
