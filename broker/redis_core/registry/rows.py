"""The registry: one row per command says what carries it out, where it goes, who may give it, and how answers are merged.

A new command is a class and a row here. Without an entry in its row, a command is refused to everybody and has no partition.
Pure; handlers, which stand above, are given by name.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final, Protocol

from broker.model.commands import admin, items, log, nodes, schedules, subscriptions
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.problems import Problem
from broker.model.results import (
    Cancelled,
    Done,
    Published,
    Refused,
    Result,
    Retracted,
    RetractedBatch,
    Unlocked,
)
from broker.model.roles import Needed, Role
from broker.redis_core.commands import admin_parts, collections, dependency_parts, internal, outbox, schedule_parts
from broker.redis_core.commands.internal import AnyCommand, Outcome
from broker.redis_core.operations import admin as admin_calls
from broker.redis_core.operations import collections as collection_calls
from broker.redis_core.operations import dependencies as dependency_calls
from broker.redis_core.operations import items as item_calls
from broker.redis_core.operations import log as log_calls
from broker.redis_core.operations import maintenance as maintenance_calls
from broker.redis_core.operations import outbox as outbox_calls
from broker.redis_core.operations import ownership as ownership_calls
from broker.redis_core.operations import schedules as schedule_calls
from broker.redis_core.operations import subscriptions as subscription_calls
from broker.redis_core.operations.operation import Call
from broker.redis_core.registry import authorization as may
from broker.redis_core.registry import merge
from broker.redis_core.registry.partitioner import (
    FIRST_PARTITION,
    PartitionChoice,
    choose_by_hash,
    partition_of_id,
    partition_of_made_id,
)

_SEVERAL = Refused(Problem.NOT_ACCEPTABLE, "the items are in several partitions: retract those of one at a time")


def _metric_of_publish(result: Result) -> str | None:
    match result:
        case Published(duplicate=duplicate):
            return "duplicates" if duplicate else "published"
    return None


def _metric_of_redemption(result: Result) -> str | None:
    # A first redemption is counted by the publish that it causes.
    return "duplicates" if isinstance(result, Published) and result.duplicate else None


def _metric_of_retract(result: Result) -> str | None:
    match result:
        case (Retracted() as first) | RetractedBatch((first, *_)):
            # Without a holder it was waiting, and is deleted.
            return None if first.replayed else "acknowledged" if first.holder else "cancelled"
    return None


def _metric_of_cancel(result: Result) -> str | None:
    return "cancelled" if isinstance(result, Cancelled) and not result.replayed else None


def _metric_of_unlock(result: Result) -> str | None:
    return "released" if isinstance(result, Unlocked) and not result.replayed else None


def _metric_of_bounce(result: Result) -> str | None:
    return "bounced" if isinstance(result, Done) else None


_VIEWER, _OPERATOR, _ADMIN = Role

_RUNNING: Final = frozenset({"stanzaq#state"})
"""The options that say whether a node runs: who may change these alone need not administrate it."""


def _configuring(command: nodes.Configure) -> Role:
    return _OPERATOR if command.options.keys() <= _RUNNING else _ADMIN


class NamesPartition(Protocol):
    """A command that names its partition."""

    @property
    def partition(self) -> int:
        """The partition's number."""


def named_partition(command: NamesPartition, _count: int) -> int:
    """Return the partition that a command names."""
    return command.partition


def of_publish(command: items.Publish | admin.ImportItem, count: int) -> int | PartitionChoice:
    """Return the partition of a publish: the one named, else by the group key, else by the id (E6, E8, E14)."""
    if command.partition is not None:
        return command.partition
    if command.key:
        return choose_by_hash(command.key, count)
    return partition_of_id(command.item_id, count) if command.item_id else PartitionChoice.ANY


def of_item(command: items.HolderCommand, count: int) -> int:
    """Return the partition where an item is looked for first."""
    return partition_of_id(command.item_id, count) if command.partition is None else command.partition


def of_outcome(command: items.ReadOutcome | dependency_parts.AwaitEnd, count: int) -> int | PartitionChoice:
    """Return the partition that keeps the end of an item: any, unless the id names one, since a key may have chosen it."""
    number = partition_of_made_id(command.item_id, count)
    return PartitionChoice.ALL if number is None else number


def of_awaited(command: dependency_parts.AwaitEnd, count: int) -> int | PartitionChoice:
    """Return the partition of an item that another one waits for: the one named, else as of its end."""
    return of_outcome(command, count) if command.partition is None else command.partition


def of_batch(command: items.RetractBatch, count: int) -> int:
    """Return the partition of the first item of a batch."""
    return of_item(command.items[0], count)


def check_one_partition(command: items.RetractBatch, record: NodeRecord, _affiliation: Affiliation) -> Refused | None:
    """Refuse a batch whose items may be in several partitions: no operation could retract all of them or none."""
    partitions = {of_item(each, record.config.partitions) for each in command.items}
    return _SEVERAL if len(partitions) > 1 else None


def of_delivery(command: items.Bounce | items.Confirm, _count: int) -> int:
    """Return the partition that a delivery came from."""
    return command.partition.number


def raise_unaddressed(command: object, _count: int) -> PartitionChoice:
    """Raise TypeError: such a command is sent to a partition by its caller."""
    msg = f"{type(command).__name__} has no place in a node: whoever gives it names the partition"
    raise TypeError(msg)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Everything about one command."""

    call: Call | None = None
    """How it calls its operation in one partition; with a `row`, it shares calls with others of its kind."""

    handler: str = ""
    """The handler of a command that needs more than its operation, by its name among the core's handlers."""

    handled: Callable[[Any], object] | None = None
    """Whether a command needs the handler; each does, if there is nothing here."""

    waits: bool = False
    """Its handler waits for something to happen, and stops when its caller has gone."""

    judge: Callable[[Any, NodeRecord, Affiliation], Refused | None] = may.nobody
    """Who may give it, by the node's record and the sender's affiliation; the handlers of some commands decide otherwise."""

    internal: bool = False
    """The core gives it to itself: no authorization."""

    role: Needed | None = None
    """The least role that lets an account give it to every node, as an owner; without one, only affiliations do."""

    leaf_only: Refused | None = None
    """The refusal for a collection, which has no items (H2)."""

    partition: Callable[[Any, int], int | PartitionChoice] | PartitionChoice | int = raise_unaddressed
    """Its partition by the node's number of partitions, or the choice of several."""

    searched: bool = False
    """Whether its item may be in another partition than this one."""

    part: Callable[[Any, int], Any] | None = None
    """The command for each partition, by number, if it is not the command itself."""

    merge: Callable[[Any, Any], Outcome] | None = None
    """Merges the outcomes of all partitions."""

    administers: bool = False
    """It changes a node, its rights, what others hold, or the service: the audit has an entry of it, also if it is refused."""

    hands_out: bool = False
    """It is not batched and hands out items: if more could be handed out, the partition is swept again."""

    metric: Callable[[Result], str | None] = lambda _result: None
    """The counter that its outcome adds to; None for none, as for a refusal, which the core counts by its reason."""


ROWS: Final[Mapping[type, Row]] = {
    # Items.
    items.Publish: Row(
        role=_ADMIN,
        call=item_calls.publish,
        handler="dependencies.publish",
        handled=attrgetter("hints.after.parents"),
        judge=may.publishing,
        leaf_only=may.NO_PUBLISH,
        partition=of_publish,
        metric=_metric_of_publish,
    ),
    items.Retract: Row(
        call=item_calls.retract,
        handler="receiving.acknowledge",
        handled=attrgetter("next"),
        judge=may.anybody,
        leaf_only=may.NO_RETRACT,
        partition=of_item,
        searched=True,
        metric=_metric_of_retract,
    ),
    items.Complete: Row(
        call=item_calls.complete,
        handler="receiving.acknowledge",
        handled=attrgetter("next"),
        judge=may.completing,
        leaf_only=may.NO_RETRACT,
        partition=of_item,
        searched=True,
        metric=_metric_of_retract,
    ),
    items.CompleteAndPublish: Row(
        call=item_calls.complete_and_publish,
        handler="publishes.complete",
        judge=may.completing,
        leaf_only=may.NO_RETRACT,
        partition=of_item,
        searched=True,
        metric=_metric_of_retract,
    ),
    items.ReadOutcome: Row(
        role=_VIEWER,
        call=item_calls.read_outcome,
        handler="receiving.outcome",
        waits=True,
        judge=may.anybody,
        leaf_only=may.NO_ITEMS,
        partition=of_outcome,
        merge=merge.ended,
    ),
    items.RetractBatch: Row(
        call=item_calls.retract_batch,
        judge=check_one_partition,
        leaf_only=may.NO_RETRACT,
        partition=of_batch,
        hands_out=True,
        metric=_metric_of_retract,
    ),
    items.Cancel: Row(
        role=_OPERATOR,
        call=item_calls.cancel,
        judge=may.cancelling,
        leaf_only=may.NO_ITEMS,
        partition=of_item,
        searched=True,
        metric=_metric_of_cancel,
    ),
    items.Unlock: Row(
        call=item_calls.unlock,
        judge=may.anybody,
        leaf_only=may.NO_ITEMS,
        partition=of_item,
        searched=True,
        metric=_metric_of_unlock,
    ),
    items.Renew: Row(
        call=item_calls.renew, judge=may.anybody, leaf_only=may.NO_ITEMS, partition=of_item, searched=True
    ),
    items.Locks: Row(
        call=subscription_calls.list_locks,
        judge=may.anybody,
        leaf_only=may.NO_ITEMS,
        partition=PartitionChoice.ALL,
        merge=merge.held,
    ),
    items.Browse: Row(
        role=_VIEWER,
        call=item_calls.browse,
        handler="browse",
        judge=may.reading,
        leaf_only=may.NO_BROWSE,
        partition=PartitionChoice.ALL,
        merge=merge.browsed,
    ),
    items.Bounce: Row(call=item_calls.bounce, judge=may.delivered, partition=of_delivery, metric=_metric_of_bounce),
    items.Confirm: Row(call=item_calls.confirm, judge=may.delivered, partition=of_delivery),
    items.Receive: Row(handler="receiving.receive", waits=True),
    items.PrepareMessage: Row(handler="exactly_once.prepare"),
    items.Deliver: Row(handler="exactly_once.deliver"),
    items.Reserve: Row(handler="exactly_once.reserve"),
    items.Redeem: Row(handler="exactly_once.redeem", metric=_metric_of_redemption),
    # Subscriptions.
    subscriptions.Subscribe: Row(
        call=subscription_calls.subscribe,
        handler="subscribe",
        judge=may.subscribing,
        partition=PartitionChoice.SUBSCRIPTION,
    ),
    subscriptions.SetSubscriptionOptions: Row(
        call=subscription_calls.set_options, judge=may.setting_options, partition=PartitionChoice.SUBSCRIPTION
    ),
    subscriptions.Options: Row(
        call=subscription_calls.get_subscription,
        handler="options",
        judge=may.own,
        partition=FIRST_PARTITION,
    ),
    subscriptions.Unsubscribe: Row(
        call=subscription_calls.unsubscribe,
        handler="unsubscribe",
        judge=may.own,
        partition=PartitionChoice.DEPARTURE,
        merge=merge.unsubscribed,
    ),
    subscriptions.RenewOwnership: Row(handler="owners.renew", judge=may.anybody),
    subscriptions.Presence: Row(handler="subscriptions.presence"),
    subscriptions.Subscriptions: Row(handler="lists.subscriptions"),
    subscriptions.Affiliations: Row(handler="lists.affiliations"),
    subscriptions.ListSubscribers: Row(role=_VIEWER, handler="lists.subscribers", judge=may.owners),
    subscriptions.ManageSubscribers: Row(role=_ADMIN, handler="approvals.manage", judge=may.owners, administers=True),
    subscriptions.Approve: Row(role=_ADMIN, handler="approvals.approve", judge=may.owners, administers=True),
    subscriptions.ListPending: Row(role=_VIEWER, handler="approvals.list_pending"),
    subscriptions.ListRequests: Row(role=_VIEWER, handler="approvals.list_requests", judge=may.owners),
    subscriptions.SendPending: Row(role=_ADMIN, handler="approvals.send", judge=may.owners),
    subscriptions.Affiliate: Row(role=_ADMIN, handler="nodes.affiliate", judge=may.owners, administers=True),
    # Logs.
    log.Commit: Row(call=log_calls.commit, judge=may.streaming, leaf_only=may.NO_ITEMS, partition=named_partition),
    log.Read: Row(
        role=_VIEWER, call=log_calls.read_log, judge=may.streaming, leaf_only=may.NO_ITEMS, partition=named_partition
    ),
    log.Bind: Row(call=log_calls.acquire_reader, judge=may.binding, leaf_only=may.NO_ITEMS, partition=named_partition),
    log.Unbind: Row(call=log_calls.release_reader, judge=may.anybody, partition=named_partition),
    log.Partitions: Row(
        role=_VIEWER,
        partition=PartitionChoice.ALL,
        part=lambda command, number: internal.LogExtent(command.node, command.sender, number),
        merge=merge.extents,
    ),
    # Nodes.
    nodes.Declare: Row(role=_ADMIN, handler="nodes.declare", administers=True),
    nodes.Configure: Row(role=_configuring, handler="nodes.configure", judge=may.owners, administers=True),
    nodes.Describe: Row(role=_VIEWER, handler="nodes.describe", judge=may.describing),
    nodes.Delete: Row(role=_ADMIN, handler="nodes.delete", judge=may.owners, administers=True),
    nodes.Purge: Row(
        role=_OPERATOR,
        call=maintenance_calls.purge,
        handler="nodes.purge",
        judge=may.owners,
        leaf_only=may.NO_PURGE,
        partition=PartitionChoice.ALL,
        merge=merge.purged,
        administers=True,
    ),
    nodes.Stats: Row(
        role=_VIEWER,
        call=maintenance_calls.stats,
        judge=may.reading,
        partition=PartitionChoice.ALL,
        merge=merge.counted,
    ),
    nodes.Associate: Row(role=_ADMIN, handler="nodes.placement.associate", administers=True),
    nodes.Dissociate: Row(role=_ADMIN, handler="nodes.placement.dissociate", administers=True),
    nodes.Children: Row(role=_VIEWER, handler="listing.children", judge=may.reading),
    nodes.Nodes: Row(role=_VIEWER, handler="listing.page"),
    # Schedules.
    schedules.PutSchedule: Row(
        role=_ADMIN, handler="schedules.put", judge=may.scheduling, leaf_only=may.NO_PUBLISH, administers=True
    ),
    schedules.ListSchedules: Row(role=_VIEWER, handler="schedules.list", judge=may.owners),
    schedules.PauseSchedule: Row(role=_OPERATOR, handler="schedules.pause", judge=may.owners, administers=True),
    schedules.RemoveSchedule: Row(role=_ADMIN, handler="schedules.remove", judge=may.owners, administers=True),
    # Administration.
    admin.Release: Row(
        role=_OPERATOR,
        call=admin_calls.force_release,
        handler="nodes.release",
        judge=may.owners,
        partition=PartitionChoice.ALL,
        merge=merge.released,
        hands_out=True,
        administers=True,
    ),
    admin.Erase: Row(
        role=_ADMIN,
        call=admin_calls.erase,
        judge=may.owners,
        leaf_only=may.NO_ITEMS,
        partition=named_partition,
        hands_out=True,
    ),
    admin.NoteErasure: Row(role=_ADMIN, handler="erasure.note", administers=True),
    admin.ListEnds: Row(
        role=_VIEWER,
        call=admin_calls.list_ends,
        judge=may.owners,
        leaf_only=may.NO_ITEMS,
        partition=PartitionChoice.ALL,
        merge=merge.kept_ends,
    ),
    admin.InspectItems: Row(role=_VIEWER, handler="inspection.inspect_items"),
    admin.MoveItems: Row(role=_OPERATOR, handler="item_moves.move_items", administers=True),
    admin.ImportItem: Row(
        role=_ADMIN, call=admin_calls.import_item, judge=may.owners, leaf_only=may.NO_PUBLISH, partition=of_publish
    ),
    admin.Overview: Row(role=_VIEWER, handler="inspection.overview"),
    admin.ShowHistory: Row(role=_VIEWER, handler="histories.show", judge=may.reading),
    admin.Frontends: Row(role=_VIEWER, handler="instances.list"),
    admin.Disconnect: Row(role=_ADMIN, handler="instances.disconnect", administers=True),
    admin.RestoreNode: Row(role=_ADMIN, handler="restoring.restore", judge=may.owners),
    admin.ListQuotas: Row(role=_VIEWER, handler="quotas.list"),
    admin.SetQuota: Row(role=_ADMIN, handler="quotas.set", administers=True),
    # Parts of these commands, with the same authorization.
    internal.AcquirePartition: Row(
        call=ownership_calls.acquire_partition,
        judge=may.attaching,
        leaf_only=may.NO_ITEMS,
        partition=named_partition,
    ),
    internal.LogExtent: Row(role=_VIEWER, call=log_calls.log_extent, judge=may.reading),
    internal.ReceiveNow: Row(
        partition=PartitionChoice.RECEIVER, part=lambda command, _number: command.from_only_partition()
    ),
    internal.ReceiveFrom: Row(call=subscription_calls.receive, judge=may.receiving),
    internal.SubscribeLog: Row(call=log_calls.subscribe_log, judge=may.following, leaf_only=may.NO_ITEMS),
    dependency_parts.PublishDependent: Row(
        role=_ADMIN,
        call=dependency_calls.publish_dependent,
        judge=may.publishing,
        leaf_only=may.NO_PUBLISH,
        partition=of_publish,
    ),
    admin_parts.InspectPartition: Row(
        role=_VIEWER, call=admin_calls.inspect_items, judge=may.owners, partition=named_partition
    ),
    admin_parts.MoveFromPartition: Row(
        role=_OPERATOR, call=admin_calls.move_items, judge=may.owners, partition=named_partition, hands_out=True
    ),
    # Internal commands.
    outbox.ReadOutbox: Row(call=outbox_calls.read_outbox, internal=True, partition=named_partition),
    outbox.EndEntry: Row(call=outbox_calls.end_entries, internal=True, partition=named_partition),
    outbox.AcceptEntry: Row(
        call=outbox_calls.accept_entry, internal=True, leaf_only=may.NO_ADMIT, partition=named_partition
    ),
    outbox.ExpireTicket: Row(call=outbox_calls.expire_tickets, internal=True, partition=named_partition),
    schedule_parts.ReadSchedules: Row(call=schedule_calls.read_schedules, internal=True, partition=FIRST_PARTITION),
    schedule_parts.StoreSchedule: Row(call=schedule_calls.store_schedule, internal=True, partition=FIRST_PARTITION),
    dependency_parts.AwaitEnd: Row(
        call=dependency_calls.await_end,
        internal=True,
        leaf_only=may.NO_ITEMS,
        partition=of_awaited,
        merge=merge.awaited,
    ),
    dependency_parts.NoteParent: Row(call=dependency_calls.note_parents, internal=True, partition=named_partition),
    internal.FindItem: Row(call=item_calls.find_item, internal=True, partition=named_partition),
    internal.Leave: Row(
        call=subscription_calls.leave, internal=True, partition=PartitionChoice.DEPARTURE, merge=merge.unsubscribed
    ),
    internal.PassOn: Row(call=subscription_calls.pass_on, internal=True, partition=named_partition),
    internal.ReleasePartition: Row(call=ownership_calls.release_partition, internal=True, partition=named_partition),
    internal.RenewPartition: Row(call=ownership_calls.renew_ownership, internal=True, partition=named_partition),
    internal.Sweep: Row(call=maintenance_calls.sweep, internal=True, partition=named_partition, hands_out=True),
    internal.RaiseNumbers: Row(call=maintenance_calls.raise_numbers, internal=True, partition=named_partition),
    internal.TakeOver: Row(call=maintenance_calls.take_over, internal=True, partition=named_partition),
    internal.ScanSubscribers: Row(call=maintenance_calls.list_subscribers, internal=True, partition=named_partition),
    collections.Turn: Row(call=collection_calls.turn, internal=True),
    collections.ReceiveByReference: Row(
        call=collection_calls.receive_by_reference, internal=True, leaf_only=may.NO_ITEMS, hands_out=True
    ),
    collections.CheckReferences: Row(
        call=collection_calls.check_references, internal=True, leaf_only=may.NO_ITEMS, hands_out=True
    ),
    collections.ListReferences: Row(call=collection_calls.list_references, internal=True),
}
"""The row of each command."""

UNKNOWN: Final = Row()
"""The row of a command without one: nobody may give it."""

ROLES: Final[Mapping[type, Needed]] = {kind: row.role for kind, row in ROWS.items() if row.role}
"""The least role for each kind of command that a role is enough for."""

CALLS: Final[Mapping[type, Call]] = {kind: row.call for kind, row in ROWS.items() if row.call}
"""How each kind of command calls its operation."""


def choose_partition(command: AnyCommand, count: int) -> int | PartitionChoice:
    """Return the partition of a command, or how several are chosen; raises TypeError for commands that its caller addresses."""
    where = ROWS.get(type(command), UNKNOWN).partition
    if callable(where):
        where = where(command, count)
    return PartitionChoice.NOWHERE if isinstance(where, int) and where >= count else where


def refusal(command: AnyCommand, record: NodeRecord) -> Refused | None:
    """Return why a command's sender may not give it; None lets it pass on to its operation."""
    row = ROWS.get(type(command), UNKNOWN)
    if row.internal:
        return row.leaf_only if record.config.collects else None
    if record.destinations and not may.is_for_lease(command, record):
        return internal.GONE
    refused = _judge(row, command, record, record.affiliation_of(command))
    if refused and record.role_lets(command):
        return _judge(row, command, record, Affiliation.OWNER)
    return refused


def _judge(row: Row, command: AnyCommand, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    if affiliation is Affiliation.OUTCAST:
        return may.OUTCAST
    if row.leaf_only and record.config.collects:
        return row.leaf_only
    return row.judge(command, record, affiliation)


def merge_outcomes(command: AnyCommand, outcomes: Sequence[Outcome]) -> Outcome:
    """Merge the outcomes of all partitions, in their order; a refusal by any of them is the answer."""
    refused = next((outcome for outcome in outcomes if isinstance(outcome, Refused)), None)
    if refused is not None:
        return refused
    join = ROWS[type(command)].merge
    assert join is not None, "only what has a merge goes to all partitions"
    return join(command, outcomes)
