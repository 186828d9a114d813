"""Internal commands by which a collection lends its subscribers' credit to the queues below it, and their outcomes.

A reference stands for one item that one subscriber may hold. The collection lends it to a queue, which locks an item under it;
only the queue's word ends it.
"""

from broker.model.frozen import frozen
from broker.model.names import Jid, Partition


@frozen
class Asks:
    """A queue has about `wanted` items for which its own subscribers have no credit.

    By its own clock it is `stamp_ms`; its locks last `lock_ms`. `holders` are the last ones of its first items, by the
    subids that a collection knows, and `-` for none.
    """

    wanted: int
    stamp_ms: int
    lock_ms: int
    holders: str


@frozen
class Pull:
    """A pull subscription wants to receive up to `wanted` items from a queue, until it has `limit`, or its own credit for None.

    By its own clock the queue is `stamp_ms`; the locks last `lock_ms`.
    """

    queue: Partition
    subid: str
    wanted: int
    limit: int | None
    stamp_ms: int
    lock_ms: int


@frozen
class Loan:
    """The names of references that a pull subscription got from a `collection`, as operations write it, for a queue.

    They are not sent after `sent_until`, by this process's monotonic clock, and the queue refuses them from its `deadline_ms` on.
    """

    collection: str
    names: tuple[str, ...]
    deadline_ms: int
    sent_until: float


@frozen
class Turn:
    """Take a turn of a collection: say what became of `references`, and what queues ask, so many levels below; None drops one.

    The `name`, which no other turn has, begins the names of what is lent. What queues say is in the words of `semaphore.book`.
    `afresh`: queues may admit subscribers that they did not admit before.
    """

    node: str
    incarnation: str
    name: str
    references: tuple[tuple[str, str], ...] = ()
    asking: tuple[tuple[Partition, int, Asks | None], ...] = ()
    afresh: bool = False
    pulls: tuple[Pull, ...] = ()


@frozen
class Lent:
    """A reference for a queue to lock an item under, until its own clock is `deadline_ms`; `sending` is as operations write it.

    `whose` is the subid where its JID may have several.
    """

    queue: Partition
    name: str
    subid: str
    jid: Jid
    sending: str
    deadline_ms: int
    whose: str = ""


@frozen
class Look:
    """A reference to be looked at in a queue, which was lent until `deadline_ms`; with a `reason`, its lock there is to end."""

    queue: Partition
    name: str
    deadline_ms: int
    reason: str = ""


@frozen
class Turned:
    """What a turn has lent, what is to be looked at, and whether there may be more to lend.

    `pulled` has the names and the deadline for each pull.
    """

    lent: tuple[Lent, ...]
    looks: tuple[Look, ...]
    more: bool
    pulled: tuple[tuple[tuple[str, ...], int], ...] = ()


@frozen
class ReceiveByReference:
    """Lock and send one item under each reference of a `collection`, as operations write it."""

    node: str
    partition: int
    incarnation: str
    collection: str
    lent: tuple[Lent, ...]


@frozen
class CheckReferences:
    """Ask a queue what has become of references."""

    node: str
    partition: int
    incarnation: str
    looks: tuple[Look, ...]


@frozen
class Told:
    """What a queue says of references, each by a word."""

    words: tuple[tuple[str, str], ...]


@frozen
class ListReferences:
    """List the references of a collection, from a scan cursor on."""

    node: str
    incarnation: str
    scan: str = "0"


@frozen
class References:
    """References, each with the subid of its subscriber; `scan` is `0` at the end."""

    scan: str
    rows: tuple[tuple[str, Look], ...]
