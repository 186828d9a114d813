"""Conditional requests: entity tags, and the conditions If-Match and If-None-Match (RFC 9110 §13). Pure.

There are no modification times, so conditions on them are ignored, as §13.1.3 and §13.1.4 allow.
"""

import hashlib
import re
from collections.abc import Collection, Mapping
from typing import Final

from broker.model.problems import MalformedRequest, Problem

MATCH: Final = "if-match"
NONE_MATCH: Final = "if-none-match"
ANY: Final = "*"

_TAG: Final = re.compile(r'(?:W/)?"[\x21\x23-\x7e\x80-\xff]*"')
_WEAK: Final = "W/"
_CODED: Final = '-gzip"'
"""The end of the tag of a compressed body, which is a representation of its own (§8.8.3.3)."""


def tag(body: bytes) -> str:
    """Return the strong tag of a body."""
    return f'"{hashlib.blake2b(body, digest_size=12).hexdigest()}"'


def weaken(tagged: str) -> str:
    """Return the weak form of a tag, for bodies that may change in irrelevant ways."""
    return f"{_WEAK}{tagged}"


def gzip_tag(tagged: str) -> str:
    """Return the tag of the same body in gzip."""
    return f"{tagged.removesuffix(chr(34))}{_CODED}"


def request(fields: Mapping[str, str]) -> bool:
    """Tell whether a request has conditions."""
    return MATCH in fields or NONE_MATCH in fields


def creates(fields: Mapping[str, str]) -> bool:
    """Tell whether a request must create something new."""
    return fields.get(NONE_MATCH, "").strip() == ANY


def unmet_fault() -> MalformedRequest:
    """Return the refusal of a request whose condition is false."""
    return MalformedRequest(Problem.PRECONDITION_NOT_MET, "the resource does not match the condition")


def evaluate(fields: Mapping[str, str], tags: Collection[str], *, reads: bool) -> bool:
    """Evaluate the conditions against the tags of the resource, none if it does not exist (§13.2.2).

    Raises MalformedRequest when one is false; returns False when a client that `reads` has the body already.
    """
    if MATCH in fields and not _names_one(fields[MATCH], tags, strong=True):
        raise unmet_fault()
    if NONE_MATCH in fields and _names_one(fields[NONE_MATCH], tags, strong=False):
        if reads:
            return False
        raise unmet_fault()
    return True


def _names_one(wanted: str, tags: Collection[str], *, strong: bool) -> bool:
    """Tell whether a list names one of the tags, by the strong or the weak comparison (§8.8.3.2)."""
    if wanted.strip() == ANY:
        return bool(tags)
    named = {_drop_coding(each) for each in _TAG.findall(wanted)}
    there = {_drop_coding(each) for each in tags}
    if strong:
        return any(each in there and not each.startswith(_WEAK) for each in named)
    return not {each.removeprefix(_WEAK) for each in named}.isdisjoint(each.removeprefix(_WEAK) for each in there)


def _drop_coding(tagged: str) -> str:
    return f'{tagged.removesuffix(_CODED)}"' if tagged.endswith(_CODED) else tagged
