"""The journal's records as data: one for each delivery attempt that has ended, readable without any other record.

The partition's stream `journal` has records in the form that is cheapest for operations: `STORED` names its fields,
`record` returns the `FIELDS`. Must not know who writes or reads them.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple, Self
from urllib.parse import unquote


class AttemptEnd(Enum):
    """How a delivery attempt ended."""

    ACKNOWLEDGED = "acknowledged"
    RELEASED = "released"
    EXPIRED = "expired"
    BOUNCED = "bounced"
    DEAD_LETTERED = "dead-lettered"
    CANCELLED = "cancelled"
    PERISHED = "perished"
    """No attempt: the item's time to live ended before one. The record has no duration and no subscriber."""


AGAIN: Final = (AttemptEnd.RELEASED.value, AttemptEnd.EXPIRED.value, AttemptEnd.BOUNCED.value)
"""The ends of an attempt after which the item waits again."""


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `type` is `text` or `integer`, `unit` is empty for a plain number or text."""

    name: str
    type: str
    unit: str
    meaning: str


FIELDS: Final = (
    Field("type", "text", "", "how the attempt ended: a `AttemptEnd`"),
    Field("item", "text", "", "the item's id, as its worker saw it"),
    Field("published", "integer", "ms since 1970", "when the payload that was delivered was published"),
    Field("delivered", "integer", "ms since 1970", "when the lock began"),
    Field("closed", "integer", "ms since 1970", "when the lock ended"),
    Field("attempt", "integer", "", "the how-many-th delivery of the item it was"),
    Field("subscriber", "text", "", "the JID that held the lock"),
    Field(
        "frontend",
        "text",
        "",
        "the frontend that was to send the delivery; `-` when it died and had sent it, or the item was fetched; `*` before that",
    ),
    Field("bytes", "integer", "bytes", "size of the stored payload"),
    Field("token", "integer", "", "the lock's token: unique and rising within a partition"),
    Field("reason", "text", "", "what the worker or the queue gave as reason; empty when none"),
)
"""The fields of every record, in their order."""

STORED: Final = ("type", "closed", "lock", "reason")
"""The fields in the stream; `lock` is the lock's line in `inflight` (docs/operations.md), which has the other values."""

NAMED: Final = ("publisher", "key")
"""More fields of the records of nodes whose option `stanzaq#journal` names them: texts, missing where there is none."""

VERSION: Final = "version"
"""A field for records of a later form, with a number from 2 on: records of today do not need it."""

LOGGED: Final = {"by": "publisher", "body": "body", "id": "item", "key": "key", "at": "at", "hints": "hints"}
"""The fields of the stream `log`, optional ones last, each with its name here."""

PARTITION_KEYS: Final = "%s:{*}:%s"
"""The SCAN pattern of keys with a service's prefix and one name; `partition_of` decides which of them are partitions'."""

_PARTITION_KEY: Final = re.compile(r"\w+:\{(.+)\}:\w+", re.DOTALL)
_PLACE: Final = re.compile(r"(.+)@([^@/]+)/(\d+)", re.DOTALL)


class JournalPartition(NamedTuple):
    """The partition of a journal, of one incarnation of a node."""

    node: str
    incarnation: str
    partition: int

    def __str__(self) -> str:
        """Return `node@incarnation/partition`."""
        return f"{self.node}@{self.incarnation}/{self.partition}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read what `str` wrote; raises ValueError on anything else."""
        found = _PLACE.fullmatch(text)
        if found is None:
            msg = f"{text[:80]!r} is no partition such as jobs@8e71964d/0"
            raise ValueError(msg)
        return cls(found[1], found[2], int(found[3]))


def partition_of(key: str) -> JournalPartition | None:
    """Return the partition of a key; None when it is not a partition's."""
    found = _PARTITION_KEY.fullmatch(key)
    try:
        return found and JournalPartition.parse(unquote(found[1]))
    except ValueError:
        return None


def record(stored: Mapping[bytes, bytes]) -> dict[str, str | int]:
    """Read a record as the stream has it; raises KeyError or ValueError on what no operation has written."""
    frontend, _, token, attempt, _, log_id, delivered, size, length, rest = stored[b"lock"].split(b" ", 9)
    jid, blank, item = rest[: int(length)], rest[int(length) : int(length) + 1], rest[int(length) + 1 :]
    if len(jid) != int(length) or blank != b" ":
        msg = "the JID in the lock's line is not as long as it says"
        raise ValueError(msg)
    return {
        "type": stored[b"type"].decode(),
        "item": item.decode(),
        "published": int(log_id.partition(b"-")[0]),
        "delivered": int(delivered),
        "closed": int(stored[b"closed"]),
        "attempt": int(attempt),
        "subscriber": jid.decode(),
        "frontend": frontend.decode(),
        "bytes": int(size),
        "token": int(token),
        "reason": stored[b"reason"].decode(),
        **{name: stored[name.encode()].decode() for name in NAMED if name.encode() in stored},
    }
