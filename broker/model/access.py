"""Commands about who takes part: lists of subscriptions and affiliations, and an owner's word on subscriptions. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.names import Jid
from broker.model.pages import Page
from broker.model.subscriptions import Change


@dataclass(frozen=True, slots=True)
class Subscriptions:
    """List all subscriptions of the sender's bare JID: of the whole service, or with a `node` to that one (P10)."""

    sender: Jid
    node: str | None


@dataclass(frozen=True, slots=True)
class Affiliations:
    """List the affiliations of the sender's bare JID: of the whole service, or with a `node` to that one (P10)."""

    sender: Jid
    node: str | None


@dataclass(frozen=True, slots=True)
class ListSubscribers:
    """List who is subscribed to a node, as its owner: a page of them by their places, or without one as many as are shown."""

    node: str
    sender: Jid
    page: Page | None = None


@dataclass(frozen=True, slots=True)
class ManageSubscribers:
    """Approve, refuse or remove subscriptions to a node, as its owner; what cannot be done does not hinder the rest (P26)."""

    node: str
    sender: Jid
    changes: tuple[Change, ...]


@dataclass(frozen=True, slots=True)
class Approve:
    """Answer, as an owner, whether what waits of a bare JID is allowed; where nothing does it changes nothing (P27)."""

    node: str
    sender: Jid
    jid: Jid
    subid: str
    allow: bool


@dataclass(frozen=True, slots=True)
class ListPending:
    """Name the nodes of the sender where subscriptions wait for its approval."""

    sender: Jid


@dataclass(frozen=True, slots=True)
class SendPending:
    """Send the sender, an owner, what waits for approval at a node, once more."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Affiliate:
    """Set affiliations by bare JID; the value `none` removes one."""

    node: str
    sender: Jid
    changes: Mapping[Jid, str]
