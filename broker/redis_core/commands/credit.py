"""How the credit of a subscriber is shared by several partitions: commands that the core gives itself, and how they turn out.

One partition coordinates: the first of a node that has several, and a collection's own. It grants credit to partitions that
have items for it; scripts tell what becomes of that (`CreditReport`).
"""

from dataclasses import dataclass

from broker.model.names import Jid, Partition
from broker.model.qos import Qos
from broker.model.tree import Scope


@dataclass(frozen=True, slots=True)
class ReregisterSubscription:
    """Make a subscription known anew in all partitions, also in those that have come since."""

    node: str
    subid: str


@dataclass(frozen=True, slots=True)
class RegisterSubscription:
    """Let a partition know a subscription, under the number of this registration: grants from before it are void.

    `several`: it is not its JID's first.
    """

    node: str
    subid: str
    jid: Jid
    qos: Qos
    registration: str
    several: bool
    scope: Scope | None = None
    selector: str = ""


@dataclass(frozen=True, slots=True)
class RegisterPoolSubscription:
    """Let a leaf's partition know a subscriber of a collection, as `RegisterSubscription` does; judged like a subscription."""

    node: str
    sender: Jid
    subid: str
    jid: Jid
    qos: Qos
    registration: str
    pool: str
    several: bool
    incarnation: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Registered:
    """So much is held in a partition, as of the number `version`; `shut`: the subscriber may not work there."""

    held: int
    version: int
    shut: bool = False


@dataclass(frozen=True, slots=True)
class RegisterPoolPartitions:
    """Note which partitions are below a collection, and which of those noted are `gone`."""

    node: str
    partitions: tuple[Partition, ...]
    gone: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class PoolPartitions:
    """The partitions below a collection, by their numbers there."""

    partitions: dict[int, Partition]


SHUT, UNUSED = 1, 2


@dataclass(frozen=True, slots=True)
class Holding:
    """What a subscriber holds in a partition as of the number `version`, and the number of the last grant taken there.

    `state` is `SHUT` where it may be granted nothing there, and `UNUSED` when the grant was of no use. `full`: it was asked for,
    and counts also where nothing is known yet.
    """

    number: int
    subid: str
    version: int
    held: int
    last: int
    state: int = 0
    full: bool = False


@dataclass(frozen=True, slots=True)
class Demand:
    """A partition wants so much credit; `whom` is `A` and whom to avoid for the first items, or `W` and whose is of use."""

    number: int
    version: int
    wanted: int
    whom: str


@dataclass(frozen=True, slots=True)
class GrantCredit:
    """Tell a coordinator what partitions hold and want, and let it grant credit to those that want some.

    `registered`, a subid and a number, ends that registration; `gone` are partitions, with a subid each, that are no more.
    """

    node: str
    holdings: tuple[Holding, ...] = ()
    demand: Demand | None = None
    registered: tuple[str, str] | None = None
    gone: tuple[tuple[int, str], ...] = ()


@dataclass(frozen=True, slots=True)
class Granted:
    """So much has been granted to the partition that wanted it."""

    amount: int


@dataclass(frozen=True, slots=True)
class Grant:
    """Credit of a subscriber for the partition `number`, once under the number `grant`."""

    number: int
    subid: str
    grant: int
    amount: int


@dataclass(frozen=True, slots=True)
class HandOut:
    """Hand items out with credit that was granted; through a collection if of a `pool`."""

    node: str
    subid: str
    grant: int
    amount: int
    pool: str = ""
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class ListHoldings:
    """Ask a partition what these subscribers hold there, or all from the subid `past` on."""

    node: str
    subids: tuple[str, ...] = ()
    past: str = ""
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class HeldCredit:
    """How much a subscriber holds in a partition, the last grant taken there, its pool, and its state as in `Holding`."""

    subid: str
    held: int
    last: int
    pool: str
    state: int = 0


@dataclass(frozen=True, slots=True)
class Holdings:
    """What is held; the page ends at `past`, empty at the end."""

    rows: tuple[HeldCredit, ...]
    past: str
    version: int


@dataclass(frozen=True, slots=True)
class ListUsage:
    """Ask a coordinator who it believes to hold something where, from a scan cursor on."""

    node: str
    scan: str = "0"


@dataclass(frozen=True, slots=True)
class Usage:
    """Subids with the numbers of partitions, and whether they are not known there; `scan` is `0` at the end."""

    scan: str
    pairs: tuple[tuple[str, int, bool], ...]


@dataclass(frozen=True, slots=True)
class CreditReport:
    """What a script says of shared credit as of `version`: how much is `wanted`, since when and of whom, and what changed.

    `whom` is the text of a `Demand`, or pairs of a subid and a pool. `pools` are those with subscribers there, told where
    something is wanted. `grants` are a coordinator's.
    """

    version: int
    wanted: int
    since: str
    whom: str | tuple[tuple[str, str], ...]
    holdings: tuple[HeldCredit, ...]
    pools: tuple[str, ...]
    grants: tuple[Grant, ...]
