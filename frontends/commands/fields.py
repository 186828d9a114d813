"""Options of a node as they are typed: `key=value`, by wire name or without its prefix. Pure; must not know what they mean."""

from collections import defaultdict
from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Final

from broker.model.options import BY_NAME, FORCED


class Unreadable(Exception):  # noqa: N818  (what a field is)
    """A field that cannot be taken: a sentence that names it."""


def _short(name: str) -> str:
    return name.rpartition("#")[2].rpartition("}")[2]


def _shorts() -> dict[str, set[str]]:
    found = defaultdict(set)
    for name in (*BY_NAME, *FORCED):
        # An alias is another name of one option: what is short for both is short for that.
        found[_short(name)].add(BY_NAME[name].name if name in BY_NAME else name)
    return found


SHORTS: Final[Mapping[str, set[str]]] = _shorts()


def short(name: str) -> str:
    """Give the name of an option without its prefix, by which it may be typed: of several, the one that says most."""
    option = BY_NAME.get(name)
    known = option is not None and SHORTS.get(option.attribute) == {name}
    return option.attribute if option is not None and known else _short(name)


def named(key: str) -> str:
    """Give the wire name of an option; raises Unreadable."""
    if key in BY_NAME or key in FORCED:
        return key
    wires = sorted(SHORTS.get(key, ()))
    if len(wires) == 1:
        return wires[0]
    if wires:
        msg = f"{key} may be {' or '.join(wires)}: write it whole"
        raise Unreadable(msg)
    near = get_close_matches(_short(key), SHORTS, 3)
    msg = f"{key} is no option of a node" + (f"; is it {' or '.join(near)}?" if near else "")
    raise Unreadable(msg)


def read(words: Iterable[str]) -> dict[str, tuple[str, ...]]:
    """Read `key=value` words; raises Unreadable naming the one that is wrong."""
    found: dict[str, tuple[str, ...]] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals:
            msg = f"{word}: write it as key=value"
            raise Unreadable(msg)
        name = named(key)
        if name in found:
            msg = f"{key} is given twice"
            raise Unreadable(msg)
        found[name] = (value,)
    return found
