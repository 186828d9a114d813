"""Authorization: who may do what with a node (P3, P5, P6, P7), decided by the node's record. Pure; must not know items or locks.

The record may be a cached one: the operation that follows checks its revision and refuses to act on an old one.
"""

from collections.abc import Mapping
from typing import assert_never

from broker.model import offsets
from broker.model.commands import (
    Bind,
    Bounce,
    Commit,
    Complete,
    Confirm,
    Describe,
    Options,
    Publish,
    PutSchedule,
    Read,
    SetSubscriptionOptions,
    Subscribe,
    Unsubscribe,
)
from broker.model.items.durability import Durability
from broker.model.items.hints import NO_HINTS
from broker.model.items.outcomes import RESULT_BYTES, ReplyMode
from broker.model.items.qos import Qos
from broker.model.names import bare_jid, resource
from broker.model.nodes.nodes import Affiliation, NodeRecord, find_unmet
from broker.model.nodes.options import AccessModel, NodeState, PublishModel
from broker.model.nodes.pull_subscriptions import is_pull_subscription
from broker.model.nodes.schedules import Overlap
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Refused
from broker.redis_core.commands.internal import AcquirePartition, ReceiveFrom, SubscribeLog
from broker.selectors.text import UnreadableSelector, read

_PUBLISHERS = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY)

_CLOSED = Refused(Problem.CLOSED_NODE, "the node admits only accounts on its list: its owner can add yours as a member")
_UNAPPROVED = Refused(Problem.APPROVAL_REQUIRED, "the node's owners have to approve your subscription first")
OUTCAST = Refused(Problem.FORBIDDEN, "the node's owners have barred you from it")
_LEASED = Refused(Problem.FORBIDDEN, "the lease belongs to another")
_OWNERS_ONLY = Refused(Problem.FORBIDDEN, "only the node's owners may do this")


_NO_WORK = Refused(Problem.UNSUPPORTED, "the node is a log: its entries are not handed out as work")
_NEVER_HANDED_OUT = Refused(
    Problem.UNSUPPORTED,
    "the node is a log: its entries have no delay, priority, time to live, reply or kept end, and wait for nothing",
)
_NEVER_CANCELLED = Refused(Problem.UNSUPPORTED, "the node is a log: its entries are no work that can be cancelled")
_ALWAYS_THERE = Refused(
    Problem.UNSUPPORTED, "the node is a log: its entries stay, so a schedule cannot wait for the last one to go"
)
_NOT_SHARED = Refused(
    Problem.NOT_ACCEPTABLE,
    "the queue has several partitions, which are not shared: name a group or partitions. A queue of one partition is shared; "
    "a subscription to a collection above it takes from all partitions that nobody owns",
)
_NEVER_SELECTS = Refused(
    Problem.OPTIONS_INVALID,
    "a subscription to a collection has no selector: it takes what a queue's own subscribers leave",
)
_CHANGED = Refused(Problem.UNAVAILABLE, "the node was changed just now: publish again")
_NO_PUBLISHER = Refused(Problem.FORBIDDEN, "only the node's publishers may publish to it")
NOT_SUBSCRIBED = Refused(Problem.FORBIDDEN, "only subscribers may publish to this node")
_NO_RESULTS = Refused(
    Problem.UNSUPPORTED, "the node keeps no ends of items, for its stanzaq#result_seconds is 0: an owner may change it"
)
NO_ITEMS = Refused(Problem.UNSUPPORTED, "a collection holds no items: name the leaf")
NO_PUBLISH = Refused(Problem.PUBLISH_UNSUPPORTED, "a collection holds no items: publish to a leaf")
NO_BROWSE = Refused(Problem.ITEMS_UNSUPPORTED, "a collection holds no items: ask its leaves for theirs")
NO_PURGE = Refused(Problem.PERSISTENCE_UNSUPPORTED, "a collection holds no items: purge its leaves")
# XEP-0060 §7.2.3.5.
NO_RETRACT = Refused(Problem.PERSISTENCE_UNSUPPORTED, "a collection holds no items: name the leaf")
NO_ADMIT = Refused(Problem.PUBLISH_UNSUPPORTED, "a collection takes no items")
NOT_SAID = Refused(Problem.FORBIDDEN, "nobody may do this to a node")
"""The refusal of a command whose row allows nobody."""


def nobody(_command: object, _record: NodeRecord, _affiliation: Affiliation) -> Refused:
    """Refuse a command that nobody may give."""
    return NOT_SAID


def anybody(_command: object, _record: NodeRecord, _affiliation: Affiliation) -> None:
    """Allow everybody but outcasts: the command concerns the sender's own things, or public ones."""


def owners(_command: object, _record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Allow owners only."""
    return None if affiliation is Affiliation.OWNER else _OWNERS_ONLY


def describing(command: Describe, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a read of a node's record: also for who may not read its items, but use it in another way."""
    if command.as_owner:
        return owners(command, record, affiliation)
    refused = _check_reading(record, affiliation)
    publishes = affiliation in _PUBLISHERS or record.config.publish_model is PublishModel.OPEN
    return None if publishes or refused is _UNAPPROVED else refused


def is_for_lease(command: object, record: NodeRecord) -> bool:
    """Return whether a command is for the lease that a record belongs to: for all others there is no node of that name."""
    if isinstance(command, Subscribe | Unsubscribe | Options | ReceiveFrom):
        made = not isinstance(command, Subscribe) or bool(command.destinations)
        return made and resource(command.jid) == record.name
    return isinstance(command, Describe)


def cancelling(_command: object, record: NodeRecord, _affiliation: Affiliation) -> Refused | None:
    """Allow everybody, in a queue: the operation knows the item's publisher."""
    return None if record.config.queueing else _NEVER_CANCELLED


def completing(command: Complete, _record: NodeRecord, _affiliation: Affiliation) -> Refused | None:
    """Limit the result of an item."""
    if command.body_bytes <= RESULT_BYTES:
        return None
    return Refused(
        Problem.PAYLOAD_TOO_BIG, f"the result has {command.body_bytes} bytes, at most {RESULT_BYTES} are passed on"
    )


def own(command: Options | Unsubscribe, _record: NodeRecord, _affiliation: Affiliation) -> Refused | None:
    """Allow a sender to act for its own JID only."""
    return _check_own(command)


def setting_options(command: SetSubscriptionOptions, record: NodeRecord, _affiliation: Affiliation) -> Refused | None:
    """Authorize a change of a subscription."""
    if command.selector and record.config.collects and not is_pull_subscription(command.jid):
        return _NEVER_SELECTS
    return _check_own(command) or _check_selector(command)


def subscribing(command: Subscribe, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a subscription."""
    wrong = _check_own(command, Problem.JID_MISMATCH) or _check_selector(command)
    return wrong or _complete(_check_reading(record, affiliation), _check_queueing(command, record))


def attaching(command: AcquirePartition, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize an owner of a partition like a subscription."""
    wrong = _check_own(command, Problem.JID_MISMATCH)
    return wrong or _complete(_check_reading(record, affiliation), _check_queueing(command, record))


def receiving(command: ReceiveFrom, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Allow a pull subscription's own JID to receive, and the node's owners to see what it holds."""
    mine = bare_jid(command.jid) == bare_jid(command.sender)
    if not mine and affiliation is not Affiliation.OWNER:
        return _LEASED
    if command.below:
        return joining(command, record, affiliation)
    # A right by a token may end before its subscription does.
    return _check_reading(record, affiliation) if mine else None


def reading(_command: object, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Allow those that may read the node."""
    return _check_reading(record, affiliation)


def joining(_command: ReceiveFrom, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a pull subscription to a collection."""
    return _check_reading(record, affiliation) or (None if record.config.queueing else _NO_WORK)


def following(command: SubscribeLog, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a log reader in one partition."""
    return _complete(
        _check_reading(record, affiliation), _check_one_subscription(record) or _check_offset(command, record)
    )


def streaming(command: Read | Commit, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a read of a log, or a commit."""
    return _check_reading(record, affiliation) or _check_offset(command, record)


def binding(command: Bind, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a group's reader of a partition."""
    return _check_reading(record, affiliation) or _check_partition(command, record)


def delivered(command: Bounce | Confirm, record: NodeRecord, _affiliation: Affiliation) -> Refused | None:
    """Check an answer to a delivery, which may be of an earlier incarnation of the node."""
    alive = command.partition.incarnation == record.incarnation
    return None if alive else Refused(Problem.LOCK_LOST, "the delivery came from an earlier node of this name")


def visible(affiliation: str, access_model: str) -> bool:
    """Return whether a node is listed for a JID with this stored affiliation and this access model (P9).

    An empty word is the default. Only a whitelist hides a node: to be asked for admission it must be visible.
    """
    if affiliation in {"", Affiliation.NONE.value}:
        return access_model != AccessModel.WHITELIST.value
    return affiliation != Affiliation.OUTCAST.value


def publishing(command: Publish, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize a publish. Only who may publish learns that an item is stored already."""
    model = record.config.publish_model
    if model is PublishModel.OPEN or affiliation in _PUBLISHERS:
        return None
    if model is PublishModel.PUBLISHERS:
        return _NO_PUBLISHER
    # The node admitted everybody a moment ago: the router asks when it is repeated.
    return None if command.subscribed else _CHANGED


def accepting(command: Publish, record: NodeRecord) -> Refused | None:
    """Return why a node does not accept an item, unless it is stored already: its state, or the item's size and options."""
    if record.config.state is NodeState.DRAINING:
        return Refused(Problem.NODE_DRAINING, "the node is being drained: it takes no new items for now")
    if command.body_bytes > record.config.max_payload_bytes:
        return Refused(
            Problem.PAYLOAD_TOO_BIG,
            f"the payload has {command.body_bytes} bytes, the node takes {record.config.max_payload_bytes}",
        )
    if command.hints != NO_HINTS:
        if not record.config.queueing:
            return _NEVER_HANDED_OUT
        if command.hints.reply is ReplyMode.KEPT and not record.config.result_seconds:
            return _NO_RESULTS
    asked, own = command.hints.confirm, record.config.confirm
    if asked is not None and own not in {Durability.STORED, asked}:
        detail = f"stanzaq#confirm is {own.value} here, so a publish may not ask for {asked.value}"
        return Refused(Problem.NOT_ACCEPTABLE, detail)
    return None if command.options is None else _preconditions(command.options, record)


def must_be_subscribed(record: NodeRecord, command: Publish) -> bool:
    """Return whether it is still to be asked whether a sender is subscribed, where subscribers publish."""
    if command.subscribed or record.config.publish_model is not PublishModel.SUBSCRIBERS:
        return False
    return record.affiliation_of(command) not in _PUBLISHERS and not record.role_lets(command)


def may_await(record: NodeRecord, command: Publish) -> bool:
    """Return whether a publish elsewhere may name items of a node as parents: whoever may publish to it sends one."""
    affiliation = record.affiliation_of(command)
    if record.config.collects or not record.config.queueing:
        return False
    if record.role_lets(command):
        return True
    if affiliation is Affiliation.OUTCAST:
        return False
    return affiliation in _PUBLISHERS or record.config.publish_model is not PublishModel.PUBLISHERS


def scheduling(command: PutSchedule, record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    """Authorize an owner's schedule, and check its item as one that is published now."""
    schedule, item = command.schedule, (command.envelope, command.body_bytes)
    if schedule.overlap is Overlap.SKIP and not record.config.queueing:
        return _ALWAYS_THERE
    published = Publish(command.node, command.sender, None, *item, key=command.key, hints=command.hints)
    return owners(command, record, affiliation) or accepting(published, record)


def _check_own(
    command: Subscribe | AcquirePartition | SetSubscriptionOptions | Options | Unsubscribe,
    problem: Problem = Problem.FORBIDDEN,
) -> Refused | None:
    """Refuse to act for others; a subscribe has an error of its own (XEP-0060 §6.1.3.1; §6.2.3.3, §6.3.4.1)."""
    return (
        None
        if bare_jid(command.jid) == bare_jid(command.sender)
        else Refused(problem, "you may act for your own JID only")
    )


def _preconditions(options: Mapping[str, tuple[str, ...]], record: NodeRecord) -> Refused | None:
    try:
        name = find_unmet(record, options)
    except MalformedRequest as wrong:
        return Refused(wrong.problem, wrong.detail)
    if name is None:
        return None
    return Refused(Problem.PRECONDITION_NOT_MET, f"the node is configured otherwise in {name}")


def _complete(refused: Refused | None, wrong: Refused | None) -> Refused | None:
    """Check a request before it may wait for approval: owners are only asked about subscriptions that can be made."""
    return wrong or refused if refused in {None, _UNAPPROVED} else refused


def _check_queueing(command: Subscribe | AcquirePartition, record: NodeRecord) -> Refused | None:
    if not record.config.queueing:
        return Refused(Problem.UNAVAILABLE, "the node is being changed")
    if isinstance(command, Subscribe) and (command.partitions or command.group or command.epoch is not None):
        refused = _check_one_subscription(record)
        if refused:
            return refused
    elif isinstance(command, Subscribe) and _is_shared(command, record):
        return _NOT_SHARED
    if isinstance(command, Subscribe) and record.config.collects:
        return _check_collection(command)
    if isinstance(command, Subscribe) and command.scope is not None:
        return Refused(Problem.OPTIONS_INVALID, "a leaf has nothing below it: type and depth apply to collections")
    return Refused(Problem.OPTIONS_REQUIRED) if command.credit is None else None


def _is_shared(command: Subscribe, record: NodeRecord) -> bool:
    """Return whether a subscription would be sent items of several partitions that it does not own."""
    return record.config.partitions > 1 and not command.start and command.qos is not Qos.PULLED


def _check_one_subscription(record: NodeRecord) -> Refused | None:
    """Refuse what needs one subscription per JID where a JID may have several."""
    if not record.config.multi_subscribe:
        return None
    return Refused(
        Problem.OPTIONS_INVALID, "a node with stanzaq#multi_subscribe has neither partition owners nor log readers"
    )


def _check_collection(command: Subscribe) -> Refused | None:
    if command.partitions or command.group or command.epoch is not None or command.start:
        return Refused(Problem.OPTIONS_INVALID, "partitions, groups and start offsets apply to leaves")
    works = command.scope.works if command.scope else command.credit is not None
    if command.selector and command.qos is not Qos.PULLED:
        return _NEVER_SELECTS
    return Refused(Problem.OPTIONS_REQUIRED) if works and command.credit is None else None


def _check_selector(command: Subscribe | SetSubscriptionOptions) -> Refused | None:
    try:
        if command.selector:
            read(command.selector)
    except UnreadableSelector as wrong:
        return Refused(Problem.OPTIONS_INVALID, f"the selector cannot be read: {wrong}")
    return None


def _check_offset(command: Read | Commit | SubscribeLog, record: NodeRecord) -> Refused | None:
    """Check a start or commit offset: it belongs to one partition of one incarnation of a node."""
    if command.partition >= record.config.partitions:
        return Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
    partition = record.partition(command.partition)
    try:
        match command:
            case Commit():
                offsets.read(command.offset, partition)
            case Read():
                offsets.write_start(command.start, partition)
            case SubscribeLog():
                if command.start:
                    offsets.write_start(command.start, partition)
            case _:
                assert_never(command)
    except MalformedRequest as wrong:
        return Refused(wrong.problem, wrong.detail)
    if not isinstance(command, SubscribeLog) or command.qos is Qos.UNACKNOWLEDGED:
        return None
    if command.qos is Qos.PULLED:
        return _NO_WORK
    return Refused(Problem.OPTIONS_INVALID, "a log reader confirms by commits, not by quality of service")


def _check_partition(command: Bind, record: NodeRecord) -> Refused | None:
    if command.partition >= record.config.partitions:
        return Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
    if not record.config.admits(command.group):
        return Refused(Problem.GROUP_NOT_FOUND, f"the node has no group {command.group}")
    return None


def _check_reading(record: NodeRecord, affiliation: Affiliation) -> Refused | None:
    if affiliation is Affiliation.PUBLISH_ONLY:
        return Refused(Problem.FORBIDDEN, "you may only publish to this node")
    if record.lets_read(affiliation):
        return None
    return _UNAPPROVED if record.config.access_model is AccessModel.AUTHORIZE else _CLOSED
