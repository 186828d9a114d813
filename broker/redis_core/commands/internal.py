"""Commands that the core gives itself: the sweeper's, the rescuer's and the hand-over's. No door can submit them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from broker.model import commands
from broker.model.commands import Fetch, Publish
from broker.model.items import Owned
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.qos import Qos
from broker.model.results import Refused, Result, Subscribed
from broker.model.tree import Scope
from broker.redis_core.commands.admin_parts import (
    AcceptHandover,
    EndHandover,
    ExpireTickets,
    HandoverItem,
    InspectedItems,
    InspectItems,
    MovedItems,
    MoveItems,
    ReadHandovers,
    Remaining,
)
from broker.redis_core.commands.credit import (
    GrantCredit,
    Granted,
    HandOut,
    Holdings,
    ListHoldings,
    ListUsage,
    PoolPartitions,
    Registered,
    RegisterPoolPartitions,
    RegisterPoolSubscription,
    RegisterSubscription,
    ReregisterSubscription,
    Usage,
)


@dataclass(frozen=True, slots=True)
class Sweep:
    """Do in a partition what time asks for; in `passing` nothing says that there is anything to do.

    Items on their way that were told of before `told_before_ms`, Redis's time, are told of again.
    """

    node: str
    partition: int = 0
    passing: bool = False
    told_before_ms: int = 0


@dataclass(frozen=True, slots=True)
class TakeOver:
    """Take over what a lapsed frontend has not sent; `after` None means after its mark, `upto` None up to now."""

    node: str
    lapsed: str
    after: int | None = None
    upto: int | None = None
    scan: str = "0"
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Leave:
    """Remove a subscription and, if it is to `release`, give back all that it holds; `lapsed`: only if its lease is over still.

    Without a `subid` it is all that the JID has. With a `pool` it is through a collection, of that life of the node; with
    `born` it is as of that registration: a later one stays. One that is `told` hears of each lock that ends.
    """

    node: str
    jid: Jid
    lapsed: bool = False
    release: bool = True
    pool: str = ""
    subid: str = ""
    born: str = ""
    incarnation: str = ""
    told: bool = False


@dataclass(frozen=True, slots=True)
class PublishIfKnown(Publish):
    """Publish to a partition where an item went before its node grew; nothing comes in there that it does not know."""


@dataclass(frozen=True, slots=True)
class FindItem:
    """Ask a partition whether it has an item of this id, if the sender holds it, and if the `request` was answered there."""

    node: str
    sender: Jid
    item_id: str
    token: int | None
    request: str
    partition: int


@dataclass(frozen=True, slots=True)
class SubscribeLog:
    """Let a JID read a partition's log from a start on; without one it is known there and reads elsewhere."""

    node: str
    sender: Jid
    jid: Jid
    credit: int
    qos: Qos
    start: str
    partition: int
    until_ms: int = 0


@dataclass(frozen=True, slots=True)
class LogExtent:
    """Tell how far a partition's log reaches."""

    node: str
    sender: Jid
    partition: int


@dataclass(frozen=True, slots=True)
class PullItems:
    """Read what a lease holds in one partition, of which its owner has seen what came up to the token `after`.

    The first partition knows whether it lasts: with `lease_ms` it is asked, and with more than 0 it lasts so long from now on.
    """

    node: str
    sender: Jid
    jid: Jid
    lease_ms: int | None
    after: int
    partition: int = 0
    incarnation: str = ""
    comes: bool = True


@dataclass(frozen=True, slots=True)
class ScanSubscribers:
    """List who is subscribed, from a scan cursor on."""

    node: str
    scan: str = "0"
    partition: int = 0


@dataclass(frozen=True, slots=True)
class AcquirePartition:
    """Let a subscriber own a partition; judged like a subscription of `sender`.

    `epoch` None asks for none, and `EPOCH_NEXT` for the one after the recorded whoever owns it. `expected` is the fence that
    a hand-over was computed from. `dry`: judge and change nothing.
    """

    node: str
    sender: Jid
    jid: Jid
    credit: int
    qos: Qos
    group: str
    epoch: int | None
    partition: int
    expected: int | None = None
    reason: str = "stolen"
    dry: bool = False


EPOCH_NEXT = -1


@dataclass(frozen=True, slots=True)
class ReleasePartition:
    """End the ownership of one partition in order, with the locks; with a `reason` the owner is told."""

    node: str
    jid: Jid
    partition: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class RenewOwnership:
    """Renew the lease of one partition, if the sender owns it."""

    node: str
    sender: Jid
    partition: int


Internal = (
    Sweep
    | TakeOver
    | Leave
    | RegisterPoolPartitions
    | ReadHandovers
    | AcceptHandover
    | EndHandover
    | ExpireTickets
    | FindItem
    | ReregisterSubscription
    | RegisterSubscription
    | GrantCredit
    | HandOut
    | ListHoldings
    | ListUsage
    | ScanSubscribers
    | ReleasePartition
    | RenewOwnership
)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A part of a scan: the cursor to go on from (`0` at the end) and what `TakeOver` must be told to go on with."""

    scan: str
    upto: int = 0
    jids: tuple[Jid, ...] = ()
    scopes: tuple[Scope | None, ...] = ()
    subids: tuple[str, ...] = ()
    credits: tuple[int, ...] = ()
    holdings: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """The subscriptions that have `ended`, and how much they still hold; `others`: their JID has more to do with the node."""

    ended: tuple[str, ...]
    held: int
    others: bool = False


@dataclass(frozen=True, slots=True)
class Begun:
    """A subscription as its coordinator has it now, which the other partitions have to hear of under this number."""

    subscribed: Subscribed
    registration: str


@dataclass(frozen=True, slots=True)
class Found:
    """What a partition knows of an item: held by whoever asks, or there at all; or that the request was answered there."""

    held: bool
    answered: bool
    there: bool


@dataclass(frozen=True, slots=True)
class Unknown:
    """A partition does not know the item; with `over` it knows none any more that has another partition now."""

    over: bool


PartitionCommand = (
    Internal
    | RegisterPoolSubscription
    | SubscribeLog
    | LogExtent
    | Fetch
    | PullItems
    | PublishIfKnown
    | AcquirePartition
    | InspectItems
    | MoveItems
    | commands.Publish
    | commands.Retract
    | commands.Unlock
    | commands.Renew
    | commands.Locks
    | commands.Subscribe
    | commands.Commit
    | commands.Read
    | commands.Bind
    | commands.Unbind
    | commands.Partitions
    | commands.Adjust
    | commands.Options
    | commands.Unsubscribe
    | commands.Browse
    | commands.Purge
    | commands.Release
    | commands.Stats
)
"""What a partition's pipeline carries out by one script; a `Bounce` or a `Confirm` too, which name their partition in full."""

AnyCommand = commands.Command | PartitionCommand
"""What has a row in the registry."""

Outcome = (
    Result
    | Scanned
    | Left
    | Owned
    | Found
    | Begun
    | Registered
    | Granted
    | Holdings
    | Usage
    | PoolPartitions
    | InspectedItems
    | MovedItems
    | tuple[HandoverItem, ...]
    | Remaining
)
"""How any of these turns out."""

GONE: Final = Refused(Problem.NODE_NOT_FOUND, "there is no such node")
"""What is answered wherever it turns out that a node is not there."""

Ask = Callable[[PartitionCommand], Awaitable[Outcome]]
"""Submits to a pipeline and waits."""


def ignored(_outcome: Outcome) -> None:
    """Answer nobody: the core asked on its own account."""


def fulfil(future: asyncio.Future[Any], outcome: Outcome) -> None:
    """Answer one who waits, unless it has been given up."""
    if not future.done():
        future.set_result(outcome)
