"""Translates application properties (part 3, §3.2.5) to headers and back. Pure; must not know other sections.

Headers are texts with names outside the service's own. Properties that do not fit are also kept as they came.
"""

import re
from collections.abc import Mapping
from typing import Final

from broker.model.frozen import frozen
from broker.model.items import headers, trace
from frontends.amqp.protocol import types

_TEXTS: Final = frozenset({0xA1, 0xB1})
_TRACE: Final = (trace.PARENT, trace.STATE)
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""Characters that no header may contain, because XML cannot carry them."""


@frozen
class PropertyHeaders:
    """Properties as headers of the item and of its trace; `whole`: the headers suffice to rebuild the properties."""

    headers: Mapping[str, str]
    trace: Mapping[str, str]
    whole: bool


def parse(raw: bytes, at: int) -> PropertyHeaders:
    """Parse a checked map of properties; raises MalformedRequest for names of the service and for too many."""
    said: dict[str, str] = {}
    whole = True
    for key, value in types.pairs(raw, at):
        name, text = types.text(raw, key), types.read_text(raw, value)
        if not name or text is None or name in said or _FORBIDDEN.search(name + text):
            whole = False
            continue
        said[name] = text
        whole &= {raw[key], raw[value]} <= _TEXTS
    given = [said.pop(name, None) for name in _TRACE]
    traced = trace.headers(*given)
    return PropertyHeaders(
        headers.validate_headers(said.items()), traced, whole and len(traced) == len(given) - given.count(None)
    )


def write(said: Mapping[str, str], carried: bytes, at: int) -> bytes:
    """Write properties: the kept ones as they came, then headers that only other sources have set."""
    pairs: list[bytes] = []
    more = dict(said)
    for key, value in types.pairs(carried, at) if carried else ():
        name = types.text(carried, key) or ""
        # The current trace replaces a kept one.
        if not (name in _TRACE and name in more):
            more.pop(name, None)
            pairs += [
                carried[key : types.end_of_value(carried, key)],
                carried[value : types.end_of_value(carried, value)],
            ]
    return types.write_map(pairs + [types.string(text) for pair in more.items() for text in pair])
