"""The syntax tree of a selector as frozen values, and its one written form. Must not know how it is parsed or evaluated.

The subset is that of the Event Stream Extensions for AMQP §2.2.2.2 (boolean constants, comparisons and logical operators over
constants and fields of sections) with additions of SQL and JMS that no clause forbids: NOT, parentheses, LIKE, IN, BETWEEN,
IS NULL. There is no arithmetic, so that `event-streams-offset` is one name.
"""

import re
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Section(Enum):
    """The section of a field, by the short names of the draft; a field without a section is in `APPLICATION`."""

    APPLICATION = "a"
    PROPERTIES = "p"
    HEADER = "h"
    MESSAGE = "m"
    DELIVERY = "d"


class Order(Enum):
    """Comparison operators."""

    EQUAL = "="
    UNEQUAL = "<>"
    BELOW = "<"
    AT_MOST = "<="
    ABOVE = ">"
    AT_LEAST = ">="


@dataclass(frozen=True, slots=True)
class Field:
    """A value of the item, by its section and name."""

    section: Section
    name: str

    @property
    def key(self) -> str:
        """Its name among the values of an item."""
        return f"{self.section.value}.{self.name}"


@dataclass(frozen=True, slots=True)
class Literal:
    """A text, a number or a truth value. All numbers are doubles, as Redis compares them."""

    value: str | float | bool


@dataclass(frozen=True, slots=True)
class Comparison:
    """Two values compared."""

    left: "Field | Literal"
    order: Order
    right: "Field | Literal"


@dataclass(frozen=True, slots=True)
class Both:
    """AND."""

    left: "Predicate"
    right: "Predicate"


@dataclass(frozen=True, slots=True)
class Either:
    """OR."""

    left: "Predicate"
    right: "Predicate"


@dataclass(frozen=True, slots=True)
class Negation:
    """NOT."""

    predicate: "Predicate"


@dataclass(frozen=True, slots=True)
class Like:
    """Whether a text matches a pattern, where `_` is any one character and `%` any number of them."""

    field: Field
    pattern: tuple[tuple[str, bool], ...]
    """Characters, each with whether it is a wildcard."""


@dataclass(frozen=True, slots=True)
class Among:
    """Whether a value equals one of these."""

    field: Field
    choices: tuple[Literal, ...]


@dataclass(frozen=True, slots=True)
class Missing:
    """Whether the item has no such value."""

    field: Field


Operand = Field | Literal
Predicate = Field | Literal | Comparison | Both | Either | Negation | Like | Among | Missing
"""A condition; a field or literal is one if it is a truth value."""

_PLAIN: Final = re.compile(r"[^\W\d][\w$-]*")
_WORDS: Final = frozenset(("and", "or", "not", "like", "escape", "in", "between", "is", "null", "true", "false"))
_ESCAPE: Final = "\\"


def write_tree(tree: Predicate) -> str:  # noqa: PLR0911  (a case for each part of the grammar)
    """Return the text of a tree, which parses to the same tree: short section names, parentheses around AND and OR."""
    match tree:
        case Field() | Literal():
            return _operand(tree)
        case Comparison(left, order, right):
            return f"{_operand(left)} {order.value} {_operand(right)}"
        case Both(left, right):
            return f"({write_tree(left)} AND {write_tree(right)})"
        case Either(left, right):
            return f"({write_tree(left)} OR {write_tree(right)})"
        case Negation(predicate):
            return f"NOT ({write_tree(predicate)})"
        case Like(field, pattern):
            return f"{_operand(field)} LIKE {_pattern(pattern)}"
        case Among(field, choices):
            return f"{_operand(field)} IN ({', '.join(_operand(choice) for choice in choices)})"
        case Missing(field):
            return f"{_operand(field)} IS NULL"


def _operand(operand: Operand) -> str:
    if isinstance(operand, Field):
        return f"{operand.section.value}.{_name(operand.name)}"
    if isinstance(operand.value, bool):
        return str(operand.value).upper()
    return _quote(operand.value) if isinstance(operand.value, str) else repr(operand.value)


def _name(name: str) -> str:
    plain = _PLAIN.fullmatch(name) and name.lower() not in _WORDS
    return name if plain else '"' + name.replace('"', '""') + '"'


def _quote(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


def _pattern(pattern: tuple[tuple[str, bool], ...]) -> str:
    marks = ("%", "_", _ESCAPE)
    text = "".join(char if wild or char not in marks else _ESCAPE + char for char, wild in pattern)
    return _quote(text) + (f" ESCAPE '{_ESCAPE}'" if any(not wild and char in marks for char, wild in pattern) else "")
