"""What is asked about items: publish, take, give back, look. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from broker.model.hints import NO_HINTS, Hints
from broker.model.names import Jid, Partition
from broker.model.positions import Place
from broker.model.qos import Stage


@dataclass(frozen=True, slots=True)
class Publish:
    """Add one item, or replace the one with its id; without an id the core makes one.

    A `ticket` lets it take effect once, however often it is asked for with the same one (QoS assured); with a `digest` of what
    is said, whoever says something else under the ticket is told so. Without a
    `partition` the group `key` chooses one, then the item's id, then where credit is free (E14). `options` are fields by
    their wire names that the node must be configured with (P18).
    """

    node: str
    sender: Jid
    item_id: str | None
    envelope: bytes
    body_bytes: int
    ticket: str = ""
    partition: int | None = None
    key: str = ""
    options: Mapping[str, tuple[str, ...]] | None = None
    hints: Hints = NO_HINTS
    digest: str = ""


@dataclass(frozen=True, slots=True)
class Hold:
    """Keep a publish until its sender says `Deliver`: the first of two with one `msg_id` counts (QoS assured, S9, S10).

    Without an item id of the publish's own, one is made that begins with `stem`, which leaves room for it.
    """

    sender: Jid
    msg_id: str
    publish: Publish
    stem: str


@dataclass(frozen=True, slots=True)
class Deliver:
    """Let what is held under a `msg_id` take effect, once (S11)."""

    sender: Jid
    msg_id: str


@dataclass(frozen=True, slots=True)
class Reserve:
    """Reserve the id of an item that is yet to be published, for a while."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Redeem:
    """Publish an item under the id that its sender has reserved: the first body counts, however often it is sent."""

    node: str
    sender: Jid
    item_id: str
    envelope: bytes
    body_bytes: int
    key: str = ""
    hints: Hints = NO_HINTS


@dataclass(frozen=True, slots=True)
class Fetch:
    """Read what the lease of `jid` holds, of each partition what was locked after a token that the asker has seen.

    When that is nothing, wait for something so many seconds. With `lease_ms` it lasts so long from the end of this on.
    Who only looks, and does not come for anything, begins no lock.
    """

    node: str
    sender: Jid
    jid: Jid
    lease_ms: int | None = None
    wait_seconds: float = 0.0
    after: Mapping[Partition, int] = field(default_factory=dict)
    comes: bool = True


@dataclass(frozen=True, slots=True)
class Retract:
    """Acknowledge an item that the sender holds, or delete one as owner or publisher."""

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    request: str = ""
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Unlock:
    """Give an item back undone; the hints delay it, say why, or send it straight to the dead letters (Q32).

    `untried`: nobody has worked on it, so it does not count as a try.
    """

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    delay_ms: int = 0
    reason: str = ""
    dead_letter: bool = False
    request: str = ""
    partition: int | None = None
    untried: bool = False


@dataclass(frozen=True, slots=True)
class Renew:
    """Start the lock time of a held item anew: the node's, or so long from now on."""

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    partition: int | None = None
    lock_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Locks:
    """List what the sender holds on a node."""

    node: str
    sender: Jid


@dataclass(frozen=True, slots=True)
class Bounce:
    """What was sent for a delivery came back undelivered from `sender`; `gone`: no later one can succeed (P30)."""

    sender: Jid
    partition: Partition
    position: str
    token: int
    gone: bool
    stage: Stage = Stage.UNACKNOWLEDGED

    @property
    def node(self) -> str:
        """The node that the delivery came from."""
        return self.partition.node


@dataclass(frozen=True, slots=True)
class Confirm:
    """`sender` has confirmed what was sent for a delivery (urn:xmpp:qos)."""

    sender: Jid
    partition: Partition
    position: str
    token: int
    stage: Stage

    @property
    def node(self) -> str:
        """The node that the delivery came from."""
        return self.partition.node


@dataclass(frozen=True, slots=True)
class Browse:
    """Look at items without touching their locks; `item_ids` empty means `limit` of them in order.

    These are the first, or those that follow the place `after`; with `backwards` the last, or those that lie before `before`.
    With a `subid`, which may be empty, it is to be clear which of the sender's subscriptions is meant (XEP-0060 §6.5.9.1).
    """

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    limit: int
    after: Place | None = None
    before: Place | None = None
    backwards: bool = False
    subid: str | None = None


ItemCommand = (
    Publish | Hold | Deliver | Reserve | Redeem | Retract | Unlock | Renew | Locks | Fetch | Bounce | Confirm | Browse
)
"""What is asked about items."""
