"""Commands of administrators and owners. Values only."""

from collections.abc import Mapping

from broker.model.frozen import frozen
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.names import Jid
from broker.model.nodes.quotas import Quota


@frozen
class InspectItems:
    """Inspect items as an owner: those named, or up to `limit` of all in the order of each partition's log.

    `scan` is where an earlier list ended; empty: from the beginning. With a group `key` or `headers` only items that have all
    of these are found, and one list may end before it has found any.
    """

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    limit: int
    scan: str = ""
    key: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@frozen
class ListEnds:
    """List as an owner how items have ended, for as long as their node keeps it: at most `limit`, the latest first."""

    node: str
    sender: Jid
    limit: int


@frozen
class MoveItems:
    """Move one batch of waiting items to another node: those named, or of the next `limit` from `scan` on.

    Without `to`, dead letters return to where they died and other items stay; `reason` and `died_in` choose the dead letters
    that died of that reason or in that node, `headers` those that have all of these.
    """

    node: str
    sender: Jid
    to: str | None
    item_ids: tuple[str, ...]
    reason: str
    limit: int
    scan: str = ""
    died_in: str = ""
    headers: tuple[tuple[str, str], ...] = ()


@frozen
class ImportItem:
    """Store an item of an export as an owner, under its old publisher: once by its `ticket`, which is remembered for a day.

    A queue that has an item of this id keeps that one. Without an id the core makes one, without a `partition` the group `key`
    or the id chooses it. What limits publishers does not hold, except that the node may be full.
    """

    node: str
    sender: Jid
    item_id: str | None
    envelope: bytes
    publisher: Jid
    ticket: str
    partition: int | None = None
    key: str = ""
    hints: Hints = NO_HINTS


@frozen
class Release:
    """End locks as an owner and notify the holders: of the items named, or of all that `holder` has, a bare or a full JID."""

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    holder: Jid | None = None


@frozen
class Overview:
    """Summarize up to `limit` nodes from the `first` on, in order of creation.

    Without being an administrator the sender sees the nodes that it is affiliated with, sorted by name.
    """

    sender: Jid
    first: int
    limit: int


@frozen
class ShowHistory:
    """Return what a node held in the last hour; for everybody that may read its items."""

    node: str
    sender: Jid


@frozen
class Frontends:
    """List the frontends."""

    sender: Jid


@frozen
class Disconnect:
    """End a frontend: the others take over its deliveries at once, and it drains when its heartbeat tells it."""

    sender: Jid
    frontend: str


@frozen
class RestoreNode:
    """Bring a node of which a copy was put back up to now: its numbers to `floor_ms`, its schedules by their `catchup`.

    `check`: only find out what would change.
    """

    node: str
    sender: Jid
    floor_ms: int
    check: bool


@frozen
class ListQuotas:
    """List the quotas and what is used of them: all, or those that hold for `owner`, which may ask for its own."""

    sender: Jid
    owner: Jid | None = None


@frozen
class SetQuota:
    """Set the quota of a subject, a bare JID, a domain or `default`; None clears it."""

    sender: Jid
    subject: str
    quota: Quota | None


@frozen
class Erase:
    """Erase a part of what belongs to the account `jid` in a partition: items, logged or not, ends of items, journal records.

    `past` is how far earlier parts have come; empty: begin. Held items only if `held`. One that `looks` only counts.
    """

    node: str
    sender: Jid
    partition: int
    jid: Jid
    held: bool = False
    looks: bool = False
    past: str = ""


@frozen
class NoteErasure:
    """Note in the audit that an administrator erases what belongs to an account, and at the end how much that was."""

    sender: Jid
    jid: Jid
    counts: Mapping[str, int] | None = None


AdminCommand = (
    InspectItems
    | ListEnds
    | MoveItems
    | ImportItem
    | Release
    | Overview
    | ShowHistory
    | Frontends
    | Disconnect
    | RestoreNode
    | ListQuotas
    | SetQuota
    | Erase
    | NoteErasure
)
"""Commands of administrators and owners."""
