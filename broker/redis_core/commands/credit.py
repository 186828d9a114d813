"""Internal commands that share a subscriber's credit among several partitions, and their outcomes.

One partition coordinates: the first of a node with several, and a collection's own. It grants credit to partitions that
have items for it; scripts report the use of it (`CreditReport`).
"""

from broker.model.frozen import frozen
from broker.model.names import Jid, Partition
from broker.model.qos import Sending
from broker.model.tree import Scope


@frozen
class ReregisterSubscription:
    """Register a subscription again in all partitions, new ones included."""

    node: str
    subid: str


@frozen
class RegisterReader:
    """Let a partition that does not know a log reader know that it reads elsewhere."""

    node: str
    jid: Jid
    credit: int


@frozen
class RegisterSubscription:
    """Register a subscription in a partition, under the number of this registration: earlier grants are void.

    `several`: it is not its JID's first.
    """

    node: str
    subid: str
    jid: Jid
    sending: Sending
    registration: str
    several: bool
    scope: Scope | None = None
    selector: str = ""


@frozen
class RegisterPoolSubscription:
    """Register a subscriber of a collection in a leaf's partition; authorized like a subscription."""

    node: str
    sender: Jid
    subid: str
    jid: Jid
    sending: Sending
    registration: str
    pool: str
    several: bool
    incarnation: str
    selector: str = ""


@frozen
class Registered:
    """What a subscriber holds in a partition as of `version`; `shut`: it may not work there."""

    held: int
    version: int
    shut: bool = False


@frozen
class RegisterPoolPartitions:
    """Register the partitions below a collection, and remove those that are `gone`."""

    node: str
    partitions: tuple[Partition, ...]
    gone: tuple[Partition, ...]


@frozen
class PoolPartitions:
    """The partitions below a collection, by their numbers there; `added`: some are new."""

    partitions: dict[int, Partition]
    added: bool


SHUT = 1


@frozen
class Holding:
    """What a subscriber holds in a partition as of `version`, and the number of the last grant accepted there.

    `state` is `SHUT` where it may not be granted credit, and two more for each item that was granted or reserved and not handed
    out. `full`: an answer to a question, which counts even where the coordinator knew nothing.
    """

    number: int
    subid: str
    version: int
    held: int
    last: int
    state: int = 0
    full: bool = False


@frozen
class Demand:
    """A partition wants so much credit; `whom` is `A` and subids to avoid for the first items, or `W` and useful subids."""

    number: int
    version: int
    wanted: int
    whom: str


@frozen
class GrantCredit:
    """Report what partitions hold and want to a coordinator, which grants credit to those with demand.

    `registered`, a subid and a number, ends that registration; `gone` are deleted partitions, with a subid each.
    """

    node: str
    holdings: tuple[Holding, ...] = ()
    demand: Demand | None = None
    registered: tuple[str, str] | None = None
    gone: tuple[tuple[int, str], ...] = ()


@frozen
class Granted:
    """The amount that was granted to the partition."""

    amount: int


@frozen
class Grant:
    """Credit of a subscriber for the partition `number`; the number `grant` makes it count once."""

    number: int
    subid: str
    grant: int
    amount: int


@frozen
class HandOut:
    """Hand out items with granted credit; `pool` names the collection of the subscription, if any."""

    node: str
    subid: str
    grant: int
    amount: int
    pool: str = ""
    incarnation: str = ""


@frozen
class ListHoldings:
    """Ask a partition what these subscribers hold there, or all from the subid `past` on."""

    node: str
    subids: tuple[str, ...] = ()
    past: str = ""
    incarnation: str = ""


@frozen
class HeldCredit:
    """How much a subscriber holds in a partition, its last grant there, its collection, and its state as in `Holding`."""

    subid: str
    held: int
    last: int
    pool: str
    state: int = 0


@frozen
class Holdings:
    """What is held in a partition; the page ends at `past`, empty at the end."""

    rows: tuple[HeldCredit, ...]
    past: str
    version: int


@frozen
class ListUsage:
    """Ask a coordinator for its ledger of holdings, from a scan cursor on."""

    node: str
    scan: str = "0"


@frozen
class CreditUsage:
    """Pairs of subid and partition number, and whether the subid is not known there; `scan` is `0` at the end."""

    scan: str
    pairs: tuple[tuple[str, int, bool], ...]


@frozen
class CreditReport:
    """A script's report on shared credit as of `version`: how much is `wanted`, since when and of whom, and what changed.

    `wanted` is None when the script does not tell it. `whom` is the text of a `Demand`, or pairs of a subid and a collection.
    `pools` are the collections with subscribers there, told when there is a demand. `grants` come from a coordinator.
    """

    version: int
    wanted: int | None
    since: str
    whom: str | tuple[tuple[str, str], ...]
    holdings: tuple[HeldCredit, ...]
    pools: tuple[str, ...]
    grants: tuple[Grant, ...]
