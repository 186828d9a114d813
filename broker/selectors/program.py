"""A tree as lua/lib/selection/selector_program.lua runs it: instructions for a stack, each a letter, a length and as many bytes.

It is kept in Redis, so a change of it needs a new letter: a version before must be able to read what it finds.
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
    """Write the instructions that leave on the stack what the tree says of an item."""
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
    """Write what an item must have: before the program stand groups of conditions, of each of which it meets one."""
    return "".join(_instruction("g", "".join(_instruction("k", each) for each in group)) for group in groups(tree))


def _instruction(letter: str, text: str = "") -> str:
    return f"{letter}{len(text.encode())}:{text}"


def _constant(value: str | float | bool) -> str:  # noqa: FBT001  (a value)
    if isinstance(value, bool):
        return _instruction("t", "true" if value else "")
    return _instruction("s", value) if isinstance(value, str) else _instruction("n", repr(value))


def _form(char: str, *, wild: bool) -> str:
    """Write a character of a pattern: wildcards stand for themselves, all else behind a backslash."""
    return char if wild else "\\" + char
