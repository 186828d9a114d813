"""Internal commands of the core: for sweeps, takeovers and the outbox. No door can submit them."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import field, fields
from typing import Any, Final, TypeVar, cast

from broker.model import commands
from broker.model.commands import Receive
from broker.model.frozen import frozen
from broker.model.items.items import Owned
from broker.model.items.qos import Qos, Sending
from broker.model.names import Jid, Partition
from broker.model.nodes.tree import Scope
from broker.model.problems import Problem
from broker.model.results import Received, Refused, Result
from broker.redis_core.commands.admin_parts import (
    InspectedPartition,
    InspectPartition,
    MovedFromPartition,
    MoveFromPartition,
)
from broker.redis_core.commands.collections import (
    CheckReferences,
    ListReferences,
    Loan,
    ReceiveByReference,
    References,
    Told,
    Turn,
    Turned,
)
from broker.redis_core.commands.dependency_parts import (
    Awaited,
    AwaitEnd,
    DependentStored,
    NoteParent,
    ParentNoted,
    PublishDependent,
)
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, ExpireTicket, OutboxPage, ReadOutbox
from broker.redis_core.commands.schedule_parts import FoundSchedules, ReadSchedules, ScheduleStored, StoreSchedule

_T = TypeVar("_T")


@frozen
class Sweep:
    """Do what is due in a partition; `passing`: a background scan, without a known reason."""

    node: str
    partition: int = 0
    passing: bool = False


@frozen
class RaiseNumbers:
    """Raise a partition's numbers and positions to a time; `check`: change nothing."""

    node: str
    partition: int
    floor_ms: int
    check: bool


@frozen
class NumbersRaised:
    """A partition's last number before they were raised, and Redis's time."""

    now_ms: int
    token: int


@frozen
class TakeOver:
    """Send again what was handed to the `previous` frontend in the last `age_ms`, or else after the sequence `after`.

    With `upto` None it looks at all up to now.
    """

    node: str
    previous: str
    age_ms: int
    after: int | None = None
    upto: int | None = None
    scan: str = "0"
    partition: int = 0


@frozen
class Leave:
    """End a subscription and, with `release`, all its locks; `lapsed`: only if its lease is still expired.

    Without a `subid` all subscriptions of the JID end. `notices`: the subscriber is notified of each lock that ends.
    """

    node: str
    jid: Jid
    lapsed: bool = False
    release: bool = True
    subid: str = ""
    notices: bool = False


@frozen
class FindItem:
    """Ask a partition whether it has an item of this id, whether the sender holds it, and whether it answered the `request`."""

    node: str
    sender: Jid
    item_id: str
    token: int | None
    request: str
    partition: int


@frozen
class SubscribeLog:
    """Read a partition's log from a start on; without a start the partition only knows the reader."""

    node: str
    sender: Jid
    jid: Jid
    credit: int
    qos: Qos
    start: str
    partition: int
    until_ms: int = 0


@frozen
class LogExtent:
    """Return how far a partition's log reaches."""

    node: str
    sender: Jid
    partition: int


@frozen
class ReceiveFrom:
    """Receive from one partition; its sender has seen what was locked up to the token `after`.

    The first partition knows the lease: with `lease_ms` it is checked, and above 0 renewed for so long; the `credit` of a link is
    shown there. With a `limit` items are
    locked until so many are held there, up to the subscription's own credit for OWN_CREDIT. `process` is woken when there may be
    more. `below`: the partition belongs to a leaf below the subscribed collection, whose `selector` it is told, as it was read;
    items are locked under the references of a `loan` of the collection, whatever the limit.
    """

    node: str
    sender: Jid
    jid: Jid
    lease_ms: int | None
    limit: int | None
    lock_ms: int | None
    after: int
    process: str = ""
    selector: str = "="
    partition: int = 0
    incarnation: str = ""
    below: bool = False
    loan: Loan | None = None
    credit: int | None = None


OWN_CREDIT = -1


@frozen
class ReceivedFrom:
    """What a pull subscription received from a partition. Its `selector` is known with its lease.

    If it was asked, about `waits` more items may go out. The partition's clock is `stamp_ms`, and its locks last `lock_ms`; under
    `unused` references nothing is locked.
    """

    received: Received
    selector: str
    waits: int
    stamp_ms: int
    lock_ms: int
    unused: tuple[str, ...]


@frozen
class ReceiveNow:
    """Receive from all partitions without waiting, and leave word where a `process` is to be woken when there may be more.

    Of a subscription that was woken by some partitions only those are asked; in others it had `held` so many items.
    """

    node: str
    command: Receive
    process: str = ""
    woken: frozenset[Partition] = frozenset()
    held: Mapping[Partition, int] = field(default_factory=dict, hash=False)

    @property
    def takes(self) -> bool:
        """Whether it receives items, and does not only look."""
        return self.command.takes and self.command.only is None

    def from_only_partition(self) -> ReceiveFrom:
        """Return the command for the only partition of a node."""
        command = self.command
        limit = OWN_CREDIT if command.limit is None else command.limit
        after = command.only[2] - 1 if command.only else next(iter(command.after.values()), 0)
        about = command.node, command.sender, command.jid, command.lease_ms or 0
        return ReceiveFrom(
            *about, limit if self.takes else None, command.lock_ms, after, self.process, credit=command.limit
        )


@frozen
class PassOn:
    """Let a partition wake another subscription than one that waits no longer."""

    node: str
    subid: str
    partition: int
    incarnation: str


@frozen
class ScanSubscribers:
    """List the subscribers, from a scan cursor on."""

    node: str
    scan: str = "0"
    partition: int = 0


@frozen
class AcquirePartition:
    """Make a subscriber the owner of a partition; authorized like a subscription of `sender`.

    `epoch` None asks for none, and `EPOCH_NEXT` for the one after the recorded one, whoever the owner is. `expected` is the
    fence that a change of owner was planned with. `dry`: decide and change nothing. `alone`: refused as superseded if the
    subscriber shares the partition.
    """

    node: str
    sender: Jid
    jid: Jid
    credit: int
    sending: Sending
    group: str
    epoch: int | None
    partition: int
    expected: int | None = None
    reason: str = "stolen"
    dry: bool = False
    alone: bool = False


EPOCH_NEXT = -1


@frozen
class ReleasePartition:
    """End the ownership of one partition for one group, with its locks; with a `reason` the owner is notified."""

    node: str
    jid: Jid
    partition: int
    group: str
    reason: str = ""


@frozen
class RenewPartition:
    """Renew the ownership of one partition, if the sender owns it."""

    node: str
    sender: Jid
    partition: int


Internal = (
    Sweep
    | RaiseNumbers
    | TakeOver
    | Leave
    | ReadOutbox
    | EndEntry
    | AcceptEntry
    | ExpireTicket
    | ReadSchedules
    | StoreSchedule
    | AwaitEnd
    | NoteParent
    | FindItem
    | Turn
    | ReceiveByReference
    | CheckReferences
    | ListReferences
    | ScanSubscribers
    | PassOn
    | ReleasePartition
    | RenewPartition
)


@frozen
class Scanned:
    """A page of a scan: the cursor to continue from (`0` at the end), and the `upto` that `TakeOver` continues with."""

    scan: str
    upto: int = 0
    jids: tuple[Jid, ...] = ()
    scopes: tuple[Scope | None, ...] = ()
    subids: tuple[str, ...] = ()
    credits: tuple[int, ...] = ()
    holdings: tuple[int, ...] = ()


@frozen
class Left:
    """The subscriptions that `ended`, and how much they still hold; `others`: their JID has more to do with the node."""

    ended: tuple[str, ...]
    held: int
    others: bool = False


@frozen
class Found:
    """What a partition knows of an item: the asker holds it, it exists, or the request was answered there."""

    held: bool
    answered: bool
    there: bool


PartitionCommand = (
    Internal
    | SubscribeLog
    | LogExtent
    | ReceiveNow
    | ReceiveFrom
    | PublishDependent
    | AcquirePartition
    | InspectPartition
    | MoveFromPartition
    | commands.Publish
    | commands.ImportItem
    | commands.Retract
    | commands.Complete
    | commands.ReadOutcome
    | commands.Unlock
    | commands.Renew
    | commands.Locks
    | commands.Subscribe
    | commands.Commit
    | commands.Read
    | commands.Bind
    | commands.Unbind
    | commands.Partitions
    | commands.SetSubscriptionOptions
    | commands.Options
    | commands.Unsubscribe
    | commands.Browse
    | commands.Purge
    | commands.Release
    | commands.Stats
)
"""Commands that a partition's pipeline carries out by one operation; `Bounce` and `Confirm` are too, and name their partition."""

AnyCommand = commands.Command | PartitionCommand
"""Commands that have a row in the registry."""

Outcome = (
    Result
    | ReceivedFrom
    | Scanned
    | Left
    | Owned
    | Found
    | NumbersRaised
    | Turned
    | Told
    | References
    | InspectedPartition
    | MovedFromPartition
    | OutboxPage
    | FoundSchedules
    | ScheduleStored
    | DependentStored
    | Awaited
    | ParentNoted
)
"""Their outcomes."""

GONE: Final = Refused(Problem.NODE_NOT_FOUND, "there is no such node")
"""The answer for a node that does not exist."""

Ask = Callable[[PartitionCommand], Awaitable[Outcome]]
"""Submits a command to a pipeline and waits for its outcome."""


def ignore_outcome(_outcome: Outcome) -> None:
    """Ignore the outcome of a command that the core gave itself."""


def convert(command: Any, kind: Callable[..., _T], **more: Any) -> _T:  # noqa: ANN401  (commands of every kind)
    """Return a command of another kind with the values of `command` that it has fields for, and `more`."""
    # mypy knows no type of dataclasses that can be called.
    names = [each.name for each in fields(cast("Any", kind)) if each.name not in more]
    return kind(**{name: getattr(command, name) for name in names}, **more)
