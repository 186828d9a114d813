"""Hypothesis strategies for selectors and items' values: `typed` ones compare alike in any SQL."""

import re
from typing import Any, Final

from hypothesis import strategies as st

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
    Section,
)
from broker.selectors.values import Value, Values

TEXTS: Final = (
    "",
    "a",
    "b",
    "ab",
    "aab",
    "it's",
    "%",
    "_",
    "a_b",
    "ä",
    "äb",
    "日本",
    "𝄞",
    "10",
    "9",
    "1e1",
    "true",
    "\n",
    "\\",
)
NUMBERS: Final = (0.0, 1.0, -1.0, 9.0, 10.0, 0.1, 1e16, 1.5e-7, -2.25)
TEXT_FIELDS: Final = tuple(Field(Section.APPLICATION, name) for name in ("t", "u", "v-w"))
NUMBER_FIELDS: Final = tuple(Field(Section.HEADER, name) for name in ("n", "o"))
NAMES: Final = tuple(field.key for field in (*TEXT_FIELDS, *NUMBER_FIELDS))

_texts = st.sampled_from(TEXTS)
_numbers = st.sampled_from(NUMBERS)
_patterns = st.lists(
    st.sampled_from([("%", True), ("_", True), ("%", False), ("_", False), ("a", False), ("b", False), ("ä", False)]),
    max_size=6,
).map(tuple)


def _pairs(*, typed: bool) -> st.SearchStrategy[tuple[Operand, Operand]]:
    texts = st.sampled_from(TEXT_FIELDS) | _texts.map(Literal)
    numbers = st.sampled_from(NUMBER_FIELDS) | _numbers.map(Literal)
    if typed:
        return st.tuples(texts, texts) | st.tuples(numbers, numbers)
    anything = texts | numbers | st.booleans().map(Literal)
    return st.tuples(anything, anything)


def _several(constants: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Literal, ...]]:
    return st.lists(constants.map(Literal), min_size=1, max_size=4).map(tuple)


def trees(*, typed: bool = False) -> st.SearchStrategy[Predicate]:
    """Make trees of a few parts."""
    texts, numbers = st.sampled_from(TEXT_FIELDS), st.sampled_from(NUMBER_FIELDS)
    among = st.builds(Among, texts, _several(_texts)) | st.builds(Among, numbers, _several(_numbers))
    if not typed:
        among |= st.builds(Among, texts | numbers, _several(_texts | _numbers | st.booleans()))
    leaves: st.SearchStrategy[Predicate] = (
        _pairs(typed=typed).flatmap(
            lambda pair: st.sampled_from(Order).map(lambda order: Comparison(pair[0], order, pair[1]))
        )
        | st.builds(Like, texts if typed else texts | numbers, _patterns)
        | among
        | (texts | numbers).map(Missing)
        | st.booleans().map(Literal)
    )
    if not typed:
        leaves |= texts | numbers
    return st.recursive(
        leaves,
        lambda inner: st.builds(Both, inner, inner) | st.builds(Either, inner, inner) | st.builds(Negation, inner),
        max_leaves=6,
    )


def met(item: Values) -> set[str]:
    """Return the conditions that an item meets, as broker/selectors/conditions.py writes them."""
    texts = {name: value for name, value in item.items() if isinstance(value, str)}
    numbers = {
        name: value for name, value in texts.items() if re.fullmatch(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", value)
    }
    said = {f"{name}={value}" for name, value in texts.items()}
    return said | {f"{name}#{float(value) + 0.0:.17g}" for name, value in numbers.items()}


def values(*, typed: bool = False) -> st.SearchStrategy[dict[str, Value]]:
    """Make the values of an item, any of which may be missing; without types every value is a header's, a text."""
    text = {field.key: st.none() | _texts for field in TEXT_FIELDS}
    number = {field.key: st.none() | _numbers for field in NUMBER_FIELDS}
    return st.fixed_dictionaries({**text, **number} if typed else text)
