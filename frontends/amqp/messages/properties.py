"""Application properties (part 3, §3.2.5) and headers, each as the other. Pure; must not know other sections.

Headers are texts, of names that are not the service's; what of the properties is more than that is kept as it came, too.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from broker.model import headers, trace
from frontends.amqp.protocol import types

_TEXTS: Final = frozenset({0xA1, 0xB1})
_TRACE: Final = (trace.PARENT, trace.STATE)
_FORBIDDEN: Final = re.compile("[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\ud800-\udfff\ufffe\uffff]")
"""What no header may hold: it is told in XML, too."""


@dataclass(frozen=True, slots=True)
class Told:
    """What properties say as headers, of the item and of its trace; `whole`: they can be written again from these."""

    headers: Mapping[str, str]
    trace: Mapping[str, str]
    whole: bool


def told(raw: bytes, at: int) -> Told:
    """Read a checked map of properties; raises MalformedRequest for what is the service's to give, and for too much."""
    said: dict[str, str] = {}
    whole = True
    for key, value in types.pairs(raw, at):
        name, text = types.text(raw, key), types.shown(raw, value)
        if not name or text is None or name in said or _FORBIDDEN.search(name + text):
            whole = False
            continue
        said[name] = text
        whole &= {raw[key], raw[value]} <= _TEXTS
    given = [said.pop(name, None) for name in _TRACE]
    traced = trace.headers(*given)
    return Told(headers.named(said.items()), traced, whole and len(traced) == len(given) - given.count(None))


def written(said: Mapping[str, str], carried: bytes, at: int) -> bytes:
    """Write a map of them: those that are carried as they came, and what only headers say, as the service's own do."""
    pairs: list[bytes] = []
    more = dict(said)
    for key, value in types.pairs(carried, at) if carried else ():
        name = types.text(carried, key) or ""
        # A trace goes on from step to step.
        if not (name in _TRACE and name in more):
            more.pop(name, None)
            pairs += [carried[key : types.after(carried, key)], carried[value : types.after(carried, value)]]
    return types.mapped(pairs + [types.string(text) for pair in more.items() for text in pair])
