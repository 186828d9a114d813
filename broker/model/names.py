"""Names of JIDs, nodes and partitions. Pure text rules; must not know where a name is stored or how it travels."""

import re
import stringprep
import unicodedata
from encodings import idna
from functools import lru_cache
from typing import Final, NewType

from broker.model.frozen import frozen

Jid = NewType("Jid", str)
"""A bare or full JID, prepared: all forms of an account are one text."""

NODE_NAME_BYTES: Final = 1023
"""Longest node name, in UTF-8 bytes: the bound of a JID's resource, since a node may be addressed as one (XEP-0060 §4.6)."""

ITEM_ID_BYTES: Final = 1023
"""Longest item id, in UTF-8 bytes: the same bound, for the same reason."""

JID_PART_BYTES: Final = 1023
"""Longest part of a JID (RFC 7622 §3.1)."""

_JID_CHARACTERS: Final = 3 * JID_PART_BYTES + 2
"""The most characters of a JID. A longer text is not prepared: that would take long."""

_DELIMITERS: Final = re.compile(r"""[\s"&'/:<>@]""")
_SPACES: Final = dict.fromkeys(
    map(ord, "\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009\u200a\u202f\u205f\u3000"), " "
)
_LOCAL: Final = re.compile(r"""[^\s\x00-\x1f\x7f"&'/:<>@]+""")
_DOMAIN: Final = re.compile(
    r"""\[[0-9A-Fa-f:.]+\]|[^\s\x00-\x1f\x7f"&'/:<>@.\[\]]+(\.[^\s\x00-\x1f\x7f"&'/:<>@.\[\]]+)*\.?"""
)
_RESOURCE: Final = re.compile(r"[^\x00-\x1f\x7f]+")

GROUP: Final = "group:"
"""What the name of a group of tokens begins with where an account or a domain may stand too: no JID has a colon there."""

_GROUP_BYTES: Final = 200


UNPRINTABLE: Final = (
    r"\x00-\x1f\x7f-\xa0\xad\u0600-\u0605\u061c\u06dd\u070f\u0890-\u0891\u08e2\u1680\u180e\u2000-\u200f\u2028-\u202f"
    r"\u205f-\u2064\u2066-\u206f\u3000\ufeff\ufff9-\ufffb\ufffe-\uffff"
    "\U000110bd\U000110cd\U00013430-\U0001343f\U0001bca0-\U0001bca3\U0001d173-\U0001d17a"
    "\U000e0001\U000e0020-\U000e007f"
)
"""Characters that no name may have, as a regular expression class: controls, formats and separators but the space. Unassigned
characters are allowed: otherwise frontends with different Unicode versions would disagree."""

_PRINTABLE: Final = re.compile(rf"[^{UNPRINTABLE}\ud800-\udfff]*")
_GROUP: Final = re.compile(rf"{GROUP}[^\s{UNPRINTABLE}\ud800-\udfff]+")


def is_printable(text: str) -> bool:
    """Return whether a text may be a part of a name."""
    return _PRINTABLE.fullmatch(text) is not None


@lru_cache(maxsize=10_000)
def bare_jid(jid: str) -> Jid:
    """Return the JID without its resource."""
    return Jid(jid.partition("/")[0])


def resource(jid: str) -> str:
    """Return the resource of a full JID, or the empty string."""
    return jid.partition("/")[2]


def domain(jid: str) -> str:
    """Return the domain of a bare JID; that of a domain is itself."""
    return jid.rpartition("@")[2]


@lru_cache(maxsize=1_024)
def prepare_jid(text: str) -> Jid:
    """Return a JID, valid or not, in the one form of all that mean the same account and resource (RFC 7622 §3.2 to §3.4).

    Servers stamp stanzas with the form in which a client has signed in, so an outcast could come in another form of its name.
    """
    if len(text) > _JID_CHARACTERS:
        return Jid(text)
    head, slash, tail = text.partition("/")
    local, at, domain = (head.lower() if head.isascii() else head).rpartition("@")
    if not head.isascii():
        local, domain = _fold(local), _fold(domain).replace("\u3002", ".")
        if _DELIMITERS.search(local + domain):
            # It must not become another's JID.
            return Jid(text)
    if not domain.endswith(".."):
        domain = domain.removesuffix(".")
    if "xn--" in domain:
        domain = ".".join(map(_decode_label, domain.split(".")))
    if not tail.isascii():
        tail = unicodedata.normalize("NFC", tail.translate(_SPACES))
    # What is left without a domain is nobody's: the text is kept, for errors and answers.
    return Jid(local + at + domain + slash + tail) if domain else Jid(text)


def _fold(text: str) -> str:
    """Fold case, width and compatibility, and drop what nobody sees: all that servers of RFC 7622 or of RFC 6122 take for one.

    Most servers follow the older one, which also takes ß for ss. They accept only characters of Unicode 3.2, so none of these
    becomes a newer one.
    """
    folded = "".join(map(_fold_character, unicodedata.normalize("NFKC", text)))
    return unicodedata.normalize("NFKC", folded)


def _fold_character(character: str) -> str:
    if stringprep.in_table_b1(character):
        return ""
    folded = unicodedata.normalize("NFKC", character.casefold()).casefold()
    newer = any(map(stringprep.in_table_a1, folded)) and not stringprep.in_table_a1(character)
    return character if newer else folded


def _decode_label(label: str) -> str:
    """Return a label of a domain in Unicode (RFC 3490 §4.2); one that does not decode is left as it is."""
    try:
        return idna.ToUnicode(label) if label.isascii() else label
    except UnicodeError:
        return label


def lower_jid(text: str) -> Jid:
    """Return a JID typed by a person, prepared and without blanks around it; with a character that nobody sees it is no JID."""
    typed = text.strip()
    return prepare_jid(typed) if is_printable(typed) else Jid(typed)


def is_jid(text: str) -> bool:
    """Return whether a text can be a JID (RFC 7622 §3.1): no part is empty, too long, or has a forbidden character.

    A server may forbid more by its own tables.
    """
    head, slash, tail = text.partition("/")
    local, at, domain = head.rpartition("@")
    parts = [(domain, _DOMAIN), *([(local, _LOCAL)] if at else []), *([(tail, _RESOURCE)] if slash else [])]
    return all(len(part.encode()) <= JID_PART_BYTES and form.fullmatch(part) for part, form in parts)


def is_account(text: str) -> bool:
    """Return whether a text can be the bare JID of an account: one with a local part, and no character that nobody sees."""
    return "@" in text and "/" not in text and is_jid(text) and is_printable(text)


def read_jid(text: str) -> Jid:
    """Return a JID typed by a person, bare or full; raises ValueError if it is none, or has a character that nobody sees."""
    jid = lower_jid(text)
    if not (is_jid(jid) and is_printable(jid)):
        msg = f"{text[:80]!r} is not a JID"
        raise ValueError(msg)
    return jid


def read_bare_jid(text: str) -> Jid:
    """Return the bare JID of an account, e.g. romeo@example.org, typed by a person; raises ValueError if it is none."""
    jid = lower_jid(text)
    if not is_account(jid):
        msg = f"{text[:80]!r} is not a bare JID, e.g. romeo@example.org"
        raise ValueError(msg)
    return jid


def read_account_or_domain(text: str) -> Jid:
    """Return the bare JID of an account, or a domain, typed by a person; raises ValueError if it is neither."""
    jid = lower_jid(text)
    if "/" in jid or not (is_jid(jid) and is_printable(jid)):
        msg = f"{text[:80]!r} is neither a bare JID nor a domain"
        raise ValueError(msg)
    return jid


def is_group(text: str) -> bool:
    """Return whether a text is `group:NAME`, a group that tokens name: 1 to 200 bytes without blanks, compared as they are."""
    return _GROUP.fullmatch(text) is not None and len(text.encode()) <= len(GROUP) + _GROUP_BYTES


def read_affiliate(text: str) -> Jid:
    """Return whom an affiliation names, typed by a person: a bare JID, a domain or `group:NAME`; raises ValueError."""
    typed = text.strip()
    if not typed.startswith(GROUP):
        return bare_jid(read_jid(text))
    if not is_group(typed):
        msg = f"{text[:80]!r} names no group: write group: and its name, 1 to {_GROUP_BYTES} bytes without blanks"
        raise ValueError(msg)
    return Jid(typed)


@frozen
class Partition:
    """One slice of one incarnation of a node: the unit of order, of locks, and of atomic change."""

    node: str
    incarnation: str
    number: int = 0

    def __str__(self) -> str:
        """Return `node@incarnation/number`, the form in key names and message ids."""
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
