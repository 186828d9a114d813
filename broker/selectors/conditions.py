"""Necessary conditions of a selector: an index by which Redis finds the subscriptions that an item may be for.

A condition is `KEY=TEXT`, or `KEY#NUMBER` for a text that reads as that number. Must not know Redis.
"""

from typing import Final

from broker.selectors.tree import Among, Both, Comparison, Either, Field, Literal, Order, Predicate, Section

Group = tuple[str, ...]
"""Conditions of which a selected item meets at least one."""

_TEXTS: Final = frozenset(("message-id", "user-id", "group-id", "content-type"))
"""Properties that are texts; application properties all are."""


def groups(tree: Predicate) -> tuple[Group, ...]:
    """Derive necessary, perhaps not sufficient conditions for a selector to be true; empty when no equality is required."""
    match tree:
        case Comparison(Field() as field, Order.EQUAL, Literal() as value):
            return _of(field, (value,))
        case Comparison(Literal() as value, Order.EQUAL, Field() as field):
            return _of(field, (value,))
        case Among(field, choices):
            return _of(field, choices)
        case Both(left, right):
            return tuple(dict.fromkeys(groups(left) + groups(right)))
        case Either(left, right):
            one, other = groups(left), groups(right)
            return (tuple(dict.fromkeys(min(one, key=len) + min(other, key=len))),) if one and other else ()
        case _:
            return ()


def _of(field: Field, values: tuple[Literal, ...]) -> tuple[Group, ...]:
    texts = field.section is Section.APPLICATION or (field.section is Section.PROPERTIES and field.name in _TEXTS)
    return (tuple(dict.fromkeys(field.key + _write_value(each.value) for each in values)),) if texts else ()


def _write_value(value: str | float | bool) -> str:  # noqa: FBT001  (a value)
    if isinstance(value, bool):
        return "=true" if value else "=false"
    # Adding 0 turns a negative zero into zero.
    return f"={value}" if isinstance(value, str) else f"#{value + 0.0:.17g}"
