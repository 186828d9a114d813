"""Commands on items: publish, fetch, acknowledge, unlock, browse. Values only."""

from collections.abc import Mapping
from dataclasses import field
from typing import Final

from broker.model.frozen import frozen
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.items.progress import Progress
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.model.nodes.pull_subscriptions import Next
from broker.model.positions import Position
from broker.model.results import Refused


@frozen
class Publish:
    """Add one item, or replace the one with its id; without an id the core makes one.

    A `ticket` makes repeats of the publish take effect once (QoS assured); a `digest` of the content detects different content
    under the same ticket. Without a `partition` the group `key` chooses one, then the item's id, then free credit (E14).
    `options` are fields by their wire names that the node must be configured with (P18). The core notes why it is `refused`
    unless it repeats what is stored, and whether the sender was found to be `subscribed`.
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
    refused: Refused | None = None
    subscribed: bool = False


@frozen
class PrepareMessage:
    """Store a publish until its sender says `Deliver`: the first of two with one `msg_id` counts (QoS assured, S9, S10).

    Without an item id in the publish, one is made that begins with `stem`, which leaves room for it.
    """

    sender: Jid
    msg_id: str
    publish: Publish
    stem: str

    @property
    def envelope(self) -> bytes:
        """The item's."""
        return self.publish.envelope


@frozen
class Deliver:
    """Publish the message that is stored under a `msg_id`, once (S11)."""

    sender: Jid
    msg_id: str


@frozen
class Reserve:
    """Reserve an item id for a later publish, for a while."""

    node: str
    sender: Jid


@frozen
class Redeem:
    """Publish an item under a reserved id: the first body counts, however often it is sent."""

    node: str
    sender: Jid
    item_id: str
    envelope: bytes
    body_bytes: int
    key: str = ""
    hints: Hints = NO_HINTS


NO_TOKEN: Final = 2**53
"""A token beyond all that partitions give."""


@frozen
class Receive:
    """Lock items for the pull subscription `jid` until it holds `limit`, and return what was locked after tokens already seen.

    Without a `limit` it is the subscription's own credit. Locks last `lock_ms`, or the node's lock time. If there is nothing,
    wait for so many seconds. `lease_ms` renews the lease for so long from the end of the wait. Without `takes` the sender only
    looks, which locks nothing. `only` names one item by its node, partition and token: no other is read.
    """

    node: str
    sender: Jid
    jid: Jid
    lease_ms: int | None = None
    wait_seconds: float = 0.0
    after: Mapping[Partition, int] = field(default_factory=dict)
    limit: int | None = None
    lock_ms: int | None = None
    takes: bool = True
    only: tuple[str, int, int] | None = None

    def last_token_of(self, partition: Partition) -> int:
        """Return the last token of a partition of which nothing is wanted any more."""
        if self.only is None:
            return self.after.get(partition, 0)
        node, number, token = self.only
        return token - 1 if (partition.node, partition.number) == (node, number) else NO_TOKEN


@frozen
class Retract:
    """Acknowledge an item that the sender holds, or delete one as owner or publisher; `next` is then received."""

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    request: str = ""
    partition: int | None = None
    next: Next | None = field(default=None, kw_only=True)


@frozen
class Complete(Retract):
    """Acknowledge an item that the sender holds, with a result for its publisher."""

    envelope: bytes = b""
    body_bytes: int = 0


MOST_PUBLISHED: Final = 10
"""The most items that are published with one acknowledgement."""


@frozen
class CompleteAndPublish(Complete):
    """Acknowledge an item that the sender holds, and publish others, all or nothing; an empty `envelope` is no result.

    Of a `publish` only the node, the item with its key, and its delay, priority and time to live can be chosen. The core notes
    why it is `refused`, unless it repeats what is done.
    """

    publishes: tuple[Publish, ...] = ()
    refused: Refused | None = None

    @property
    def more_bytes(self) -> int:
        """How many bytes the items have that are published."""
        return sum(len(each.envelope) for each in self.publishes)


@frozen
class ReadOutcome:
    """Read how an item has ended, as the publisher that asked for it or as an owner; wait for its end for so many seconds."""

    node: str
    sender: Jid
    item_id: str
    wait_seconds: float = 0.0


@frozen
class RetractBatch:
    """Retract several items of one partition, all or none of them (XEP-0060 §12)."""

    node: str
    sender: Jid
    items: tuple[Retract, ...]


@frozen
class Cancel:
    """Remove an item as its publisher or an owner, even if somebody holds it: the holder is notified."""

    node: str
    sender: Jid
    item_id: str
    partition: int | None = None
    token: None = field(default=None, init=False)
    request: str = field(default="cancel", init=False)


@frozen
class Unlock:
    """Release an item without acknowledging it; the hints delay it, give a reason, or make it a dead letter at once (Q32).

    Without a `delay_ms`, also of 0, it rests as its node asks (`stanzaq#retry_delay`).
    `untried`: nobody has worked on it, so it does not count as an attempt.
    """

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    delay_ms: int | None = None
    reason: str = ""
    dead_letter: bool = False
    request: str = ""
    partition: int | None = None
    untried: bool = False


@frozen
class Renew:
    """Restart the lock time of a held item: the node's, or so long from now on; and tell how far the sender is with it.

    `begun`: work on it has begun, so its attempt counts however its lock ends.
    """

    node: str
    sender: Jid
    item_id: str
    token: int | None = None
    partition: int | None = None
    lock_ms: int | None = None
    progress: Progress | None = None
    begun: bool = False


@frozen
class Locks:
    """List what the sender holds on a node."""

    node: str
    sender: Jid


@frozen
class Bounce:
    """Report that a delivery came back undelivered from `sender`; `gone`: no later one can succeed (P30).

    `others` are the position and token of each further item in it.
    """

    sender: Jid
    partition: Partition
    position: str
    token: int
    gone: bool
    stage: Stage = Stage.UNACKNOWLEDGED
    others: tuple[tuple[str, int], ...] = ()

    @property
    def node(self) -> str:
        """The node that the delivery came from."""
        return self.partition.node


@frozen
class Confirm:
    """Report that `sender` has confirmed a delivery (urn:xmpp:qos); with `others` as in `Bounce`.

    An assured message of several items is confirmed as a whole, or not at all; `message` is its name.
    """

    sender: Jid
    partition: Partition
    position: str
    token: int
    stage: Stage
    others: tuple[tuple[str, int], ...] = ()
    message: str = ""

    @property
    def node(self) -> str:
        """The node that the delivery came from."""
        return self.partition.node


@frozen
class Browse:
    """List items without touching their locks; `item_ids` empty means `limit` of them in order.

    Returns the first ones, or those after the place `after`; with `backwards` the last ones, or those before `before`. With a
    `subid`, even an empty one, the sender's subscription must be unambiguous (XEP-0060 §6.5.9.1).
    """

    node: str
    sender: Jid
    item_ids: tuple[str, ...]
    limit: int
    after: Position | None = None
    before: Position | None = None
    backwards: bool = False
    subid: str | None = None


HolderCommand = Retract | Cancel | Unlock | Renew
"""Commands on one item, which is searched for in all partitions if they do not say where it is."""

ItemCommand = (
    Publish
    | PrepareMessage
    | Deliver
    | Reserve
    | Redeem
    | HolderCommand
    | Complete
    | CompleteAndPublish
    | ReadOutcome
    | RetractBatch
    | Locks
    | Receive
    | Bounce
    | Confirm
    | Browse
)
"""Commands on items."""
