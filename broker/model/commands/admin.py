"""What administrators and owners ask beside what everybody may. Values only."""

from dataclasses import dataclass

from broker.model.names import Jid


@dataclass(frozen=True, slots=True)
class Survey:
    """Look closely at items as an owner: those named, or up to `limit` of all in the order of each partition's log.

    `scan` is where an earlier survey has come to; empty begins.
    """

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    limit: int
    scan: str = ""


@dataclass(frozen=True, slots=True)
class Transfer:
    """Send items that wait to another node, a step of them: those named, or of the next `limit` from `scan` on.

    Without a `to` dead letters go back to where they died, and what is none stays; with a `reason` those alone that died of it,
    with `died_in` those alone that died there.
    """

    node: str
    sender: Jid
    to: str | None
    item_ids: tuple[str, ...]
    reason: str
    limit: int
    scan: str = ""
    died_in: str = ""


@dataclass(frozen=True, slots=True)
class Release:
    """End locks as an owner, and tell who had them: of the items named, or of all that `holder` has, a bare or a full JID."""

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    holder: Jid | None = None


@dataclass(frozen=True, slots=True)
class Overview:
    """Look at nodes in bulk: up to `limit` from the `first` on, of all in order of creation.

    Who is no administrator is shown those that it is affiliated with, by their names.
    """

    sender: Jid
    first: int
    limit: int


@dataclass(frozen=True, slots=True)
class ShowHistory:
    """Look at what a node held in the last hour, as whoever may look at its items."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Frontends:
    """List the frontends that there are."""

    sender: Jid


@dataclass(frozen=True, slots=True)
class Disconnect:
    """Have a frontend end: the others take over at once what it owes, and itself drains when it hears of it."""

    sender: Jid
    frontend: str


AdminCommand = Survey | Transfer | Release | Overview | ShowHistory | Frontends | Disconnect
"""What administrators and owners ask."""
