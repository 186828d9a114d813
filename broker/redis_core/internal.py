"""Commands that the core gives itself: the sweeper's, the rescuer's and the hand-over's. No door can submit them."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any, Final

from broker.model import commands
from broker.model.items import Owned
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.qos import Qos
from broker.model.results import Refused, Result, Subscribed


@dataclass(frozen=True, slots=True)
class Expire:
    """Do in a partition what time asks for."""

    node: str
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Resend:
    """Take over what a lapsed frontend has not sent; `after` None means after its mark, `upto` None up to now."""

    node: str
    lapsed: str
    after: int | None = None
    upto: int | None = None
    scan: str = "0"
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Leave:
    """Remove a subscription and give back all that it holds."""

    node: str
    jid: Jid


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """Publish an item into the node of dead letters, once however often it is asked."""

    node: str
    item_id: str
    key: str
    publisher: Jid
    envelope: bytes


@dataclass(frozen=True, slots=True)
class Handed:
    """Forget a dead letter that has arrived."""

    node: str
    incarnation: str
    position: str
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Find:
    """Ask a partition whether it has an item of this id, and whether the sender holds it."""

    node: str
    sender: Jid
    item_id: str
    token: int | None
    partition: int


@dataclass(frozen=True, slots=True)
class Follow:
    """Let a JID read a partition's log from a start on; without one it is known there and reads elsewhere."""

    node: str
    sender: Jid
    jid: Jid
    credit: int
    qos: Qos
    start: str
    partition: int


@dataclass(frozen=True, slots=True)
class Extent:
    """Tell how far a partition's log reaches."""

    node: str
    sender: Jid
    partition: int


@dataclass(frozen=True, slots=True)
class Recount:
    """Count anew what a subscriber has in the partitions of a node, so that credit lost on its way comes back."""

    node: str
    subid: str


@dataclass(frozen=True, slots=True)
class Sit:
    """Let a partition know a subscription, as part of the count `born`; it answers what credit lies there.

    With `forgive` what is held beyond that is credit again.
    """

    node: str
    subid: str
    jid: Jid
    qos: Qos
    born: str
    forgive: bool = False


@dataclass(frozen=True, slots=True)
class Settle:
    """End the count `born` in the bank: the other partitions have `lent`."""

    node: str
    subid: str
    born: str
    lent: int


@dataclass(frozen=True, slots=True)
class Withdraw:
    """Take free credit out of a partition: of anyone when `subid` is empty; with `recall` what is in use ends with its locks."""

    node: str
    subid: str
    most: int
    recall: bool = False


@dataclass(frozen=True, slots=True)
class Deposit:
    """Put credit that was taken out elsewhere into a partition."""

    node: str
    subid: str
    born: str
    amount: int


@dataclass(frozen=True, slots=True)
class Subscribers:
    """List who is subscribed, from a scan cursor on."""

    node: str
    scan: str = "0"
    partition: int = 0


@dataclass(frozen=True, slots=True)
class Attach:
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
class Detach:
    """End the ownership of one partition in order, with the locks; with a `reason` the owner is told."""

    node: str
    jid: Jid
    partition: int
    reason: str = ""


@dataclass(frozen=True, slots=True)
class KeepOne:
    """Renew the lease of one partition, if the sender owns it."""

    node: str
    sender: Jid
    partition: int


Internal = (
    Expire
    | Resend
    | Leave
    | DeadLetter
    | Handed
    | Find
    | Recount
    | Sit
    | Settle
    | Withdraw
    | Deposit
    | Subscribers
    | Detach
    | KeepOne
)


@dataclass(frozen=True, slots=True)
class Scanned:
    """A part of a scan: the cursor to go on from (`0` at the end) and what `Resend` must be told to go on with."""

    scan: str
    upto: int = 0
    jids: tuple[Jid, ...] = ()


@dataclass(frozen=True, slots=True)
class Left:
    """A subscription is gone and so much is still held by its former owner."""

    was_subscribed: bool
    held: int


@dataclass(frozen=True, slots=True)
class Begun:
    """A subscription as its bank has it now, where the count `born` has begun."""

    subscribed: Subscribed
    born: str


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
class Found:
    """What a partition knows of an item: held by whoever asks, or there at all."""

    held: bool
    there: bool


LaneCommand = (
    Internal
    | Follow
    | Extent
    | Attach
    | commands.Publish
    | commands.Retract
    | commands.Unlock
    | commands.Renew
    | commands.Locks
    | commands.Subscribe
    | commands.Commit
    | commands.Read
    | commands.Partitions
    | commands.Adjust
    | commands.Options
    | commands.Unsubscribe
    | commands.Browse
    | commands.Purge
    | commands.Stats
)
"""What a partition's lane carries out by one script; a `Bounce` or a `Confirm` too, which name their partition in full."""

Outcome = Result | Scanned | Left | Owned | Found | Begun | Sat | Settled | Withdrawn
"""How any of these turns out."""

GONE: Final = Refused(Problem.NODE_NOT_FOUND, "there is no such node")
FAILED: Final = Refused(Problem.UNAVAILABLE, "the service could not carry this out")
"""What is answered wherever it turns out that a node is not there, or that we are at fault."""

Ask = Callable[[LaneCommand], Awaitable[Outcome]]
"""Submits to a lane and waits."""


def ignored(_outcome: Outcome) -> None:
    """Answer nobody: the core asked on its own account."""


def fulfil(future: asyncio.Future[Any], outcome: Outcome) -> None:
    """Answer one who waits, unless it has been given up."""
    if not future.done():
        future.set_result(outcome)
