"""Who may do what with a node (P3, P5, P6, P7): pure judgement on a node's record. Must not know items or locks.

The record may be a cached one: the script that follows is told its revision and refuses to act on an old one.
"""

from broker.model import offsets
from broker.model.commands import (
    Adjust,
    Affiliate,
    Bounce,
    Browse,
    Command,
    Commit,
    Configure,
    Confirm,
    Delete,
    Describe,
    Options,
    Publish,
    Purge,
    Read,
    Subscribe,
    Unsubscribe,
)
from broker.model.names import bare
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.options import AccessModel, PublishModel
from broker.model.problems import MalformedRequest, Problem
from broker.model.qos import Qos
from broker.model.results import Refused
from broker.redis_core.calls.workers import subid_refusal
from broker.redis_core.internal import Attach, Extent, Follow

_PUBLISHERS = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.PUBLISH_ONLY)
_READERS = (Affiliation.OWNER, Affiliation.PUBLISHER, Affiliation.MEMBER)
_CLOSED = Refused(Problem.CLOSED_NODE, "the node admits only those on its list")
_OUTCAST = Refused(Problem.FORBIDDEN, "the node's owners have barred you from it")
_OWNERS_ONLY = Refused(Problem.FORBIDDEN, "only the node's owners may do this")


def refusal(  # noqa: PLR0911  (a table of cases)
    command: Command | Follow | Extent | Attach, record: NodeRecord
) -> Refused | None:
    """Refuse a command that its sender's standing does not allow; None lets it pass on to its script."""
    standing = record.affiliation(bare(command.sender))
    if standing is Affiliation.OUTCAST:
        return _OUTCAST
    match command:
        case Publish():
            return _publishing(command, record, standing)
        case Subscribe() | Attach() | Adjust() | Options() | Unsubscribe():
            if bare(command.jid) != bare(command.sender):
                return Refused(Problem.JID_MISMATCH, "you may act for your own JID only")
            if isinstance(command, Subscribe | Attach):
                return _reading(record, standing) or _working(command, record)
            return subid_refusal(command)
        case Browse() | Extent():
            return _reading(record, standing)
        case Read() | Commit() | Follow():
            return _reading(record, standing) or _streaming(command, record)
        case Configure() | Affiliate() | Purge() | Delete() | Describe(as_owner=True):
            return None if standing is Affiliation.OWNER else _OWNERS_ONLY
        case Bounce() | Confirm():
            alive = command.partition.incarnation == record.incarnation
            return None if alive else Refused(Problem.LOCK_LOST, "the delivery was of an earlier node of this name")
        case _:
            return None


def _publishing(command: Publish, record: NodeRecord, standing: Affiliation) -> Refused | None:
    if record.config.publish_model is PublishModel.PUBLISHERS and standing not in _PUBLISHERS:
        return Refused(Problem.FORBIDDEN, "only the node's publishers may publish to it")
    if command.body_bytes > record.config.max_payload_bytes:
        return Refused(
            Problem.PAYLOAD_TOO_BIG,
            f"the payload has {command.body_bytes} bytes, the node takes {record.config.max_payload_bytes}",
        )
    return None


def _working(command: Subscribe | Attach, record: NodeRecord) -> Refused | None:
    if not record.config.queueing:
        return Refused(Problem.UNAVAILABLE, "the node is being changed")
    return Refused(Problem.OPTIONS_REQUIRED) if command.credit is None else None


def _streaming(command: Read | Commit | Follow, record: NodeRecord) -> Refused | None:
    """Judge where a stream begins or has come: an offset is of one partition of one life of a node."""
    if command.partition >= record.config.partitions:
        return Refused(Problem.PARTITION_NOT_FOUND, "the node has no such partition")
    partition = record.partition(command.partition)
    try:
        match command:
            case Commit():
                offsets.read(command.offset, partition)
            case Read():
                offsets.spelled(command.start, partition)
            case Follow() if command.start:
                offsets.spelled(command.start, partition)
    except MalformedRequest as wrong:
        return Refused(wrong.problem, wrong.detail)
    if isinstance(command, Follow) and command.qos is not Qos.UNACKNOWLEDGED:
        return Refused(Problem.OPTIONS_INVALID, "a stream is not confirmed by quality of service but by commits")
    return None


def _reading(record: NodeRecord, standing: Affiliation) -> Refused | None:
    if standing is Affiliation.PUBLISH_ONLY:
        return Refused(Problem.FORBIDDEN, "you may only publish to this node")
    if record.config.access_model is AccessModel.WHITELIST and standing not in _READERS:
        return _CLOSED
    return None
