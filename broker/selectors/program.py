"""Compiles a selector for lua/lib/selection/selector_program.lua: stack instructions of a letter, a length and as many bytes.

Redis stores the result, so a changed instruction needs a new letter: an older version must not misread it.
"""

from typing import Final

from broker.selectors.conditions import groups
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
    Order,
    Predicate,
)

_ORDERS: Final = {
    Order.EQUAL: "=",
    Order.UNEQUAL: "!",
    Order.BELOW: "<",
    Order.AT_MOST: "{",
    Order.ABOVE: ">",
    Order.AT_LEAST: "}",
}


def program(tree: Predicate) -> str:  # noqa: PLR0911  (a case for each part of the grammar)
    """Compile a tree into instructions that leave its truth value on the stack."""
    match tree:
        case Field():
            return _instruction("f", tree.key)
        case Literal(value):
            return _constant(value)
        case Comparison(left, order, right):
            return program(left) + program(right) + _instruction(_ORDERS[order])
        case Both(left, right):
            return program(left) + program(right) + _instruction("&")
        case Either(left, right):
            return program(left) + program(right) + _instruction("|")
        case Negation(predicate):
            return program(predicate) + _instruction("~")
        case Like(field, pattern):
            return program(field) + _instruction("l", "".join(_form(char, wild=wild) for char, wild in pattern))
        case Among(field, choices):
            return program(field) + _instruction("i", "".join(_constant(choice.value) for choice in choices))
        case Missing(field):
            return program(field) + _instruction("0")


def conditions(tree: Predicate) -> str:
    """Encode the necessary conditions, which stand before the program in groups: an item meets at least one of each group."""
    return "".join(_instruction("g", "".join(_instruction("k", each) for each in group)) for group in groups(tree))


def _instruction(letter: str, text: str = "") -> str:
    return f"{letter}{len(text.encode())}:{text}"


def _constant(value: str | float | bool) -> str:  # noqa: FBT001  (a value)
    if isinstance(value, bool):
        return _instruction("t", "true" if value else "")
    return _instruction("s", value) if isinstance(value, str) else _instruction("n", repr(value))


def _form(char: str, *, wild: bool) -> str:
    """Encode a character of a pattern: a wildcard as it is, any other after a backslash."""
    return char if wild else "\\" + char
