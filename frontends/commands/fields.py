"""Parses node options typed as `key=value`, by wire name or without its prefix. Pure; must not know what they mean."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from broker.model.nodes.options import BY_NAME, FORCED


class Unreadable(Exception):  # noqa: N818  (named after the state of a field)
    """A field cannot be parsed: a sentence that names it."""


def _drop_prefix(name: str) -> str:
    return name.rpartition("#")[2].rpartition("}")[2]


def _shorts() -> dict[str, set[str]]:
    found = defaultdict(set)
    for name in (*BY_NAME, *FORCED):
        # Aliases are names of one option: a short form of both means that option.
        found[_drop_prefix(name)].add(BY_NAME[name].name if name in BY_NAME else name)
    return found


SHORTS: Final[Mapping[str, set[str]]] = _shorts()


def short_name(name: str) -> str:
    """Return a short name for an option: its attribute's if that is unique, else the wire name without prefix."""
    option = BY_NAME.get(name)
    known = option is not None and SHORTS.get(option.attribute) == {name}
    return option.attribute if option is not None and known else _drop_prefix(name)


def find_option(key: str) -> str:
    """Return the wire name of an option; raises Unreadable."""
    if key in BY_NAME or key in FORCED:
        return key
    wires = sorted(SHORTS.get(key, ()))
    if len(wires) == 1:
        return wires[0]
    if wires:
        msg = f"{key} may be {' or '.join(wires)}: write the full name"
        raise Unreadable(msg)
    near = get_close_matches(_drop_prefix(key), SHORTS, 3)
    msg = f"{key} is not an option of a node" + (f"; did you mean {' or '.join(near)}?" if near else "")
    raise Unreadable(msg)


def read(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Parse `key=value` words, of which those with several values may be repeated; raises Unreadable for the first wrong one."""
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            msg = f"{word}: write it as key=value"
            raise Unreadable(msg)
        name = find_option(key)
        if name in found and not (name in BY_NAME and BY_NAME[name].many):
            msg = f"{key} is given twice"
            raise Unreadable(msg)
        found[name] = (*found.get(name, ()), value)
    return found
