"""Evaluates a selector on an item in SQL's three-valued logic: None is UNKNOWN. Must not know how selectors are written.

Values are texts, numbers and truth values; None or another type counts as missing. Headers are texts, so a text compared with
a number is read as a number, and with a truth value as `true` or `false`. Texts compare by code points, which is the order of
UTF-8. Other comparisons are UNKNOWN. lua/lib/selection/compare.lua has the same rules.
"""

import operator
import re
from collections.abc import Callable, Mapping
from typing import Final

from broker.selectors.tree import (
    Among,
    Both,
    Comparison,
    Either,
    Field,
    Like,
    Literal,
    Missing,
    Negation,
    Operand,
    Order,
    Predicate,
)

Value = str | float | bool | None
Values = Mapping[str, Value]
"""Values by `Field.key`."""

Judge = Callable[[Values], bool | None]

MOST_BYTES: Final = 1_024
"""LIKE is UNKNOWN for a longer text."""

_NUMBER: Final = re.compile(r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]+)?")
MOST_DIGITS: Final = 64
"""A longer text is not a number."""

_ORDERS: Final[Mapping[Order, Callable[[float | str, float | str], bool]]] = {
    Order.EQUAL: operator.eq,
    Order.UNEQUAL: operator.ne,
    Order.BELOW: operator.lt,
    Order.AT_MOST: operator.le,
    Order.ABOVE: operator.gt,
    Order.AT_LEAST: operator.ge,
}


def selects(tree: Predicate, values: Values) -> bool:
    """Return whether an item is selected: only TRUE selects."""
    return judge(tree)(values) is True


def judge(tree: Predicate) -> Judge:  # noqa: PLR0911  (a case for each part of the grammar)
    """Turn a tree into a function of an item's values."""
    match tree:
        case Field() | Literal():
            value = _operand(tree)
            return lambda values: _truth(value(values))
        case Comparison(left, order, right):
            return _comparison(_operand(left), order, _operand(right))
        case Both(left, right):
            return _judge_both(judge(left), judge(right))
        case Either(left, right):
            return _judge_either(judge(left), judge(right))
        case Negation(predicate):
            return _negation(judge(predicate))
        case Like(field, pattern):
            return _judge_like(field.key, pattern)
        case Among(field, choices):
            found = judge(Comparison(field, Order.EQUAL, choices[0]))
            for choice in choices[1:]:
                found = _judge_either(found, judge(Comparison(field, Order.EQUAL, choice)))
            return found
        case Missing(field):
            key = field.key
            return lambda values: _read_value(values.get(key)) is None


def _operand(operand: Operand) -> Callable[[Values], Value]:
    if isinstance(operand, Literal):
        constant = operand.value
        return lambda _values: constant
    key = operand.key
    return lambda values: _read_value(values.get(key))


def _read_value(value: object) -> Value:
    if isinstance(value, str | bool | float):
        return value
    return float(value) if isinstance(value, int) else None


def _truth(value: Value) -> bool | None:
    if isinstance(value, str):
        return {"true": True, "false": False}.get(value)
    return value if isinstance(value, bool) else None


def _number(value: Value) -> float | None:
    if isinstance(value, str):
        return float(value) if len(value) <= MOST_DIGITS and _NUMBER.fullmatch(value) else None
    return value if isinstance(value, float) else None


def _comparison(left: Callable[[Values], Value], order: Order, right: Callable[[Values], Value]) -> Judge:
    compare, equality = _ORDERS[order], order in {Order.EQUAL, Order.UNEQUAL}

    def compared(values: Values) -> bool | None:
        a, b = left(values), right(values)
        if a is None or b is None:
            return None
        if isinstance(a, str) and isinstance(b, str):
            return compare(a, b)
        if isinstance(a, bool) or isinstance(b, bool):
            one, other = _truth(a), _truth(b)
            return compare(one, other) if equality and one is not None and other is not None else None
        low, high = _number(a), _number(b)
        return None if low is None or high is None else compare(low, high)

    return compared


def _judge_both(left: Judge, right: Judge) -> Judge:
    def judged(values: Values) -> bool | None:
        one = left(values)
        if one is False:
            return False
        other = right(values)
        return False if other is False else None if one is None else other

    return judged


def _judge_either(left: Judge, right: Judge) -> Judge:
    def judged(values: Values) -> bool | None:
        one = left(values)
        if one is True:
            return True
        other = right(values)
        return True if other is True else None if one is None else other

    return judged


def _negation(predicate: Judge) -> Judge:
    def judged(values: Values) -> bool | None:
        found = predicate(values)
        return None if found is None else not found

    return judged


def _judge_like(key: str, pattern: tuple[tuple[str, bool], ...]) -> Judge:
    def judged(values: Values) -> bool | None:
        value = values.get(key)
        if not isinstance(value, str) or len(value) > MOST_BYTES or len(value.encode()) > MOST_BYTES:
            return None
        return _matches(value, pattern)

    return judged


def _matches(text: str, pattern: tuple[tuple[str, bool], ...]) -> bool:
    """Match greedily: only the last `%` is ever extended, so the work is bounded by the product of both lengths."""
    here = at = 0
    anything, resume = -1, 0
    while here < len(text):
        char, wild = pattern[at] if at < len(pattern) else ("", False)
        if wild and char == "%":
            anything, resume = at, here
            at += 1
        elif wild or char == text[here]:
            here, at = here + 1, at + 1
        elif anything >= 0:
            resume += 1
            here, at = resume, anything + 1
        else:
            return False
    return all(wild and char == "%" for char, wild in pattern[at:])
