"""The journal's records as data: one for each delivery attempt that has ended, readable without any other record.

Records stand in the partition's stream `journal` in the form that costs a script least: `STORED` names what stands there,
`record` gives the `FIELDS`. Must not know who writes them or who reads them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final


class Kind(Enum):
    """How a delivery attempt ended."""

    ACKNOWLEDGED = "acknowledged"
    RELEASED = "released"
    EXPIRED = "expired"
    BOUNCED = "bounced"
    DEAD_LETTERED = "dead-lettered"


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a record; `type` is `text` or `integer`, `unit` is empty for a plain number or text."""

    name: str
    type: str
    unit: str
    meaning: str


FIELDS: Final = (
    Field("type", "text", "", "how the attempt ended: a `Kind`"),
    Field("item", "text", "", "the item's id, as its worker saw it"),
    Field("published", "integer", "ms since 1970", "when the payload that was delivered was published"),
    Field("delivered", "integer", "ms since 1970", "when the lock began"),
    Field("closed", "integer", "ms since 1970", "when the lock ended"),
    Field("attempt", "integer", "", "the how-many-th delivery of the item it was"),
    Field("subscriber", "text", "", "the JID that held the lock"),
    Field("frontend", "text", "", "the frontend that was to send the delivery; `-` when it died and had sent it"),
    Field("bytes", "integer", "bytes", "size of the stored payload"),
    Field("token", "integer", "", "the lock's token: unique and rising within a partition"),
    Field("reason", "text", "", "what the worker or the queue gave as reason; empty when none"),
)
"""The fields of every record, in their order."""

STORED: Final = ("type", "closed", "lock", "reason")
"""The fields in the stream; `lock` is the lock's line as it stood in `inflight` (docs/operations.md), which has the rest."""


def record(stored: Mapping[bytes, bytes]) -> dict[str, str | int]:
    """Read a record as the stream has it; raises KeyError or ValueError on what no script has written."""
    frontend, _, token, attempt, _, log_id, delivered, size, length, rest = stored[b"lock"].split(b" ", 9)
    jid, item = rest[: int(length)], rest[int(length) + 1 :]
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
    }
