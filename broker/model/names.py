"""Names of things: JIDs, nodes, items. Pure text rules; must not know where a name is stored or how it travels."""

import re
from dataclasses import dataclass
from typing import Final, NewType

Jid = NewType("Jid", str)
"""A bare or full JID, as its XMPP server stamped it."""

NODE_NAME_BYTES: Final = 1023
"""Longest node name, in UTF-8 bytes: the bound of a JID's resource, since a node may be addressed as one (XEP-0060 §4.6)."""

ITEM_ID_BYTES: Final = 1023
"""Longest item id, in UTF-8 bytes: the same bound, for the same reason."""

JID_PART_BYTES: Final = 1023
"""Longest part of a JID (RFC 7622 §3.1)."""

_LOCAL: Final = re.compile(r"""[^\s\x00-\x1f\x7f"&'/:<>@]+""")
_DOMAIN: Final = re.compile(
    r"""\[[0-9A-Fa-f:.]+\]|[^\s\x00-\x1f\x7f"&'/:<>@.\[\]]+(\.[^\s\x00-\x1f\x7f"&'/:<>@.\[\]]+)*\.?"""
)
_RESOURCE: Final = re.compile(r"[^\x00-\x1f\x7f]+")


UNPRINTABLE: Final = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u2064\u2066-\u206f\u3000\ufeff\ufff9-\ufffb\ufffe-\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
)
"""Characters that no name may have, as a class of any kind of regular expression: those that control, format or separate (but
the space). Those that Unicode has not assigned yet may be there, or a name would be one at some frontends only."""

_PRINTABLE: Final = re.compile(rf"[^{UNPRINTABLE}\ud800-\udfff]*")


def is_printable(text: str) -> bool:
    """Tell whether a text may be a part of a name."""
    return _PRINTABLE.fullmatch(text) is not None


def bare(jid: str) -> Jid:
    """Give the JID without its resource."""
    return Jid(jid.partition("/")[0])


def resource(jid: str) -> str:
    """Give the resource of a full JID, or the empty string."""
    return jid.partition("/")[2]


def prepared(text: str) -> Jid:
    """Give a JID typed by a person in the form in which servers stamp it: all but the resource in lower case."""
    head, slash, tail = text.strip().partition("/")
    return Jid(head.lower() + slash + tail)


def is_jid(text: str) -> bool:
    """Tell whether a text can be a JID (RFC 7622 §3.1): parts that are there are not empty, and hold what they may.

    What a server's own tables forbid besides, only that server can tell.
    """
    head, slash, tail = text.partition("/")
    local, at, domain = head.rpartition("@")
    parts = [(domain, _DOMAIN), *([(local, _LOCAL)] if at else []), *([(tail, _RESOURCE)] if slash else [])]
    return all(len(part.encode()) <= JID_PART_BYTES and form.fullmatch(part) for part, form in parts)


@dataclass(frozen=True, slots=True)
class Partition:
    """One slice of one life of a node: the unit of order, of locks, and of atomic change."""

    node: str
    incarnation: str
    number: int = 0

    def __str__(self) -> str:
        """Write it as `node@incarnation/number`, the form found inside key names and message ids."""
        return f"{self.node}@{self.incarnation}/{self.number}"

    @staticmethod
    def parse(text: str) -> "Partition":
        """Read what `str` wrote; raises ValueError on anything else."""
        head, slash, number = text.rpartition("/")
        node, at, incarnation = head.rpartition("@")
        if not (slash and at and node and incarnation):
            msg = f"not a partition: {text[:80]!r}"
            raise ValueError(msg)
        return Partition(node, incarnation, int(number))
