"""How a command turned out: outcomes are values, a refusal is one of them. Must not know how an outcome is worded on a wire."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.frontends import Disconnected, FrontendList
from broker.model.items import Listed, Lock, Owned, Seen
from broker.model.leases import Fetched
from broker.model.names import Jid
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.positions import Place
from broker.model.problems import Problem
from broker.model.qos import Qos
from broker.model.reading import Bound
from broker.model.reservations import Reserved
from broker.model.subscriptions import State, Subscription
from broker.model.tree import Scope


@dataclass(frozen=True, slots=True)
class Refused:
    """The command changed nothing; `detail` is a sentence for the person who reads the error."""

    problem: Problem
    detail: str = ""


@dataclass(frozen=True, slots=True)
class Published:
    """The item is in the log under `item_id`; `duplicate` when the node ignores repeats and this was one (X1).

    `differs`: it was one that said something else.
    """

    item_id: str
    duplicate: bool = False
    differs: bool = False


@dataclass(frozen=True, slots=True)
class Retracted:
    """The item is gone; `holder` is whom to notify (Q20), None when nobody held it; `replayed` when it was gone before (Q27).

    With a `collection` it was held through that, with a `subid` by that one of several subscriptions.
    """

    holder: Jid | None
    replayed: bool = False
    collection: str = ""
    subid: str = ""


@dataclass(frozen=True, slots=True)
class Unlocked:
    """The lock is ended; `holder` is whom to notify (Q29); what it was held through is as in `Retracted`."""

    holder: Jid
    replayed: bool = False
    collection: str = ""
    subid: str = ""


@dataclass(frozen=True, slots=True)
class Renewed:
    """The lock holds until `deadline_ms`."""

    token: int
    deadline_ms: int


@dataclass(frozen=True, slots=True)
class Held:
    """What the sender holds; at most 1,000 for each JID, the earliest deadline first."""

    locks: tuple[Lock, ...]


@dataclass(frozen=True, slots=True)
class Stream:
    """Where a subscription began to read a partition: after `offset`; `gap`: what went with the retention lay before it (EX7)."""

    partition: int
    offset: str
    gap: bool


@dataclass(frozen=True, slots=True)
class Event:
    """An entry of the log, as reading shows it."""

    offset: str
    timestamp_ms: int
    item_id: str
    key: str
    publisher: Jid
    envelope: bytes


@dataclass(frozen=True, slots=True)
class Replay:
    """Entries of a partition's log in order, and how far it reaches; `after` is the offset to go on after.

    `gap`: what went with the retention was asked for too. `more`: a limit cut the list.
    """

    partition: int
    events: tuple[Event, ...]
    earliest: str
    latest: str
    after: str
    gap: bool
    more: bool


@dataclass(frozen=True, slots=True)
class Extents:
    """Each partition of a node, without its entries."""

    partitions: tuple[Replay, ...]


@dataclass(frozen=True, slots=True)
class Subscribed:
    """A subscription as it stands, with the credit that was granted (Q9), or that is asked for while it is pending (P5).

    One that `reads` is a stream's; `streams` say where it has just begun. One to a collection has a `scope`.
    With a `group` it is that of an owner, and these partitions are its own (E11, E27); none while it waits for one (EX19).
    At `until_ms` of Redis's clock it ends by itself unless it is renewed (P31); 0 is never. With a `selector` it is handed
    what that selects.
    """

    jid: Jid
    subid: str
    credit: int
    qos: Qos = Qos.UNACKNOWLEDGED
    reads: bool = False
    streams: tuple[Stream, ...] = ()
    scope: Scope | None = None
    group: str = ""
    owned: tuple[Owned, ...] = ()
    until_ms: int = 0
    state: State = State.SUBSCRIBED
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Kept:
    """The leases of what the sender owns on a node are renewed (EX16)."""

    owned: tuple[Owned, ...]


@dataclass(frozen=True, slots=True)
class Unsubscribed:
    """The subscription is gone."""

    jid: Jid
    subid: str


@dataclass(frozen=True, slots=True)
class Browsed:
    """Items in order; `more` when a limit cut the list, and then `reached` is how far it was looked through.

    `count` is how many there are in all.
    """

    items: tuple[Listed, ...]
    more: bool
    count: int = 0
    reached: Place | None = None


@dataclass(frozen=True, slots=True)
class Declared:
    """The node exists now."""

    node: str


@dataclass(frozen=True, slots=True)
class Described:
    """A node's record, with its children if it is a collection."""

    record: NodeRecord
    children: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Purged:
    """So many waiting items were dropped; `more` when a part alone was, and others wait."""

    count: int
    more: bool = False


@dataclass(frozen=True, slots=True)
class Done:
    """The command took effect and has nothing to say."""


@dataclass(frozen=True, slots=True)
class Counted:
    """What a node holds now; `oldest_ms` is the age of the oldest item that waits, 0 when none does.

    The last three count what there has ever been, so that two looks make a rate: entries that the log took (an item, a version of
    one, what is written anew to be moved), those of them that are done with, and deliveries that have ended, well or not.
    """

    waiting: int
    eligible: int
    delayed: int
    in_flight: int
    dying: int
    oldest_ms: int
    subscribers: int
    credit_free: int
    kept: int = 0
    kept_bytes: int = 0
    published: int = 0
    finished: int = 0
    attempts: int = 0


@dataclass(frozen=True, slots=True)
class Listing:
    """Names of nodes, in order of creation; `more` when a limit cut the list.

    `index` is the number of the first one among all nodes, also those that the asker may not see, and `count` how many these are.
    `collections` are those of them that are no leaves.
    """

    nodes: tuple[str, ...]
    index: int = 0
    count: int = 0
    more: bool = False
    collections: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class SubscriptionList:
    """Subscriptions; `more` when there are others. Of a page `index` is the number of the first one of `count`."""

    subscriptions: tuple[Subscription, ...]
    more: bool = False
    index: int = 0
    count: int = 0


@dataclass(frozen=True, slots=True)
class AffiliationList:
    """How one bare JID stands to nodes, by their names."""

    affiliations: tuple[tuple[str, Affiliation], ...]


@dataclass(frozen=True, slots=True)
class Unaffiliated:
    """Affiliations could not be changed as was asked, and none was; `kept` are those that were asked for, as they are (P26)."""

    detail: str
    kept: tuple[tuple[Jid, Affiliation], ...]


@dataclass(frozen=True, slots=True)
class Managed:
    """Subscriptions were changed; `failed` are those that were not, as they are (P26)."""

    failed: tuple[Subscription, ...]


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Items in the order of their partitions; `scan` is where to go on, empty at the end."""

    items: tuple[Seen, ...]
    scan: str


@dataclass(frozen=True, slots=True)
class Transferred:
    """So many items are on their way, or there already, and arrive whatever happens; `scan` is where to go on, empty at the end.

    `passed` are sentences on why others have stayed, and how many each is true of.
    """

    count: int
    passed: Mapping[str, int]
    scan: str


@dataclass(frozen=True, slots=True)
class Released:
    """So many locks were ended; `left`: so many more were too much for one script."""

    count: int
    left: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """A node in an overview, without its affiliations but for how the asker stands to it."""

    record: NodeRecord
    counted: Counted
    standing: Affiliation = Affiliation.OWNER


@dataclass(frozen=True, slots=True)
class Overviewed:
    """A part of the nodes; there are `total`."""

    nodes: tuple[Summary, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What a node held at a time, and what there had ever been by then, as in `Counted`."""

    at_ms: int
    waiting: int
    in_flight: int
    oldest_ms: int
    published: int
    finished: int
    attempts: int


@dataclass(frozen=True, slots=True)
class History:
    """Samples of a node, at most one a minute, the oldest first and the last one of now.

    Nothing has happened to the node in a minute without a sample. The first may be older than the hour: it tells what there had
    been when the hour began.
    """

    samples: tuple[Sample, ...]


Result = (
    Refused
    | Published
    | Reserved
    | Retracted
    | Unlocked
    | Renewed
    | Held
    | Fetched
    | Subscribed
    | Replay
    | Bound
    | Extents
    | Kept
    | Unsubscribed
    | Browsed
    | Declared
    | Described
    | Purged
    | Done
    | Counted
    | Listing
    | SubscriptionList
    | AffiliationList
    | Managed
    | Unaffiliated
    | Surveyed
    | Transferred
    | Released
    | Overviewed
    | History
    | FrontendList
    | Disconnected
)
