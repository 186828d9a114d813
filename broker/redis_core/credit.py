"""How credit moves and is counted among partitions: commands that the core gives itself, and how they turn out."""

from dataclasses import dataclass

from broker.model.names import Jid, Partition
from broker.model.qos import Qos
from broker.model.tree import Scope


@dataclass(frozen=True, slots=True)
class Recount:
    """Count anew what a subscriber has in the partitions of a node, so that credit lost on its way comes back."""

    node: str
    subid: str


@dataclass(frozen=True, slots=True)
class Sit:
    """Let a partition know a subscription, as part of the count `born`; it answers what credit lies there.

    With `forgive` what is held beyond that is credit again. `several`: it is not its JID's first.
    """

    node: str
    subid: str
    jid: Jid
    qos: Qos
    born: str
    several: bool
    forgive: bool = False
    scope: Scope | None = None
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Join:
    """Let a leaf's partition know a subscriber that comes through a collection, as `Sit` does; judged like a subscription.

    `several`: it is not its JID's first.
    """

    node: str
    sender: Jid
    subid: str
    jid: Jid
    qos: Qos
    born: str
    forgive: bool
    pool: str
    several: bool
    incarnation: str
    selector: str = ""


@dataclass(frozen=True, slots=True)
class Reach:
    """Note which partitions are below a collection, and which of those noted are `gone`."""

    node: str
    partitions: tuple[Partition, ...]
    gone: tuple[Partition, ...]


@dataclass(frozen=True, slots=True)
class Settle:
    """End the count `born` in the bank: the other partitions have `lent`."""

    node: str
    subid: str
    born: str
    lent: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take free credit out of a partition: of anyone when `subid` is empty; with `recall` what is in use ends with its locks.

    With a `pool` it is of those who come through that collection. With `whom` it is of the subids named, where `*` is all who
    take whatever comes.
    """

    node: str
    subid: str
    most: int
    recall: bool = False
    pool: str = ""
    incarnation: str = ""
    whom: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Deposit:
    """Put credit that was taken out elsewhere into a partition."""

    node: str
    subid: str
    born: str
    amount: int
    incarnation: str = ""


@dataclass(frozen=True, slots=True)
class Sat:
    """So much of a subscriber's credit lies in a partition, or is held there beyond it when it `owes`."""

    credit: int
    owes: bool


@dataclass(frozen=True, slots=True)
class Settled:
    """A count has ended; the other partitions have `excess` more than the subscriber may hold beside what it has in the bank."""

    excess: int


@dataclass(frozen=True, slots=True)
class Gift:
    """Credit of one subscriber on its way between partitions; it belongs to the count `born`."""

    subid: str
    born: str
    amount: int


@dataclass(frozen=True, slots=True)
class Withdrawn:
    """What was taken out."""

    gifts: tuple[Gift, ...]


@dataclass(frozen=True, slots=True)
class Reached:
    """The partitions that a pool's credit may lie in, by their numbers there."""

    partitions: dict[int, Partition]
