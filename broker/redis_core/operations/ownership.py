"""Calls about the owner of a partition: acquire, release, renew."""

from broker.model.items.items import Owned
from broker.model.nodes.nodes import NodeRecord
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.commands.internal import EPOCH_NEXT, AcquirePartition, ReleasePartition, RenewPartition
from broker.redis_core.operations.operation import Call, Fields, Values, refuse, subid, subids
from broker.redis_core.operations.subscriptions import DETAILS, departure, max_subscribers, read_ended
from broker.scripts.answers import Answer

_MOVED = Refused(Problem.UNAVAILABLE, "the partition has changed hands meanwhile")


def _epoch_text(epoch: int | None) -> str:
    return "" if epoch is None else "+" if epoch == EPOCH_NEXT else str(epoch)


def _row(command: AcquirePartition, _record: NodeRecord) -> Values:
    return Fields(command, subid=subid(command.jid), epoch=_epoch_text(command.epoch))


def _read_acquired(command: AcquirePartition, answer: Answer, _record: NodeRecord) -> Owned | Refused:
    match answer.code:
        case b"ok" if answer.epoch is None:
            return Owned(command.partition, command.group, 0, 0, 0, command.credit)
        case b"ok":
            return _read_owned(command.partition, command.group, answer)
        case b"partition-owned":
            epoch = answer.epoch.decode()
            detail = f"partition {command.partition} has an owner: a higher epoch than {epoch} takes it"
            another = f"partition {command.partition} is another group's now"
            return Refused(Problem.PARTITION_OWNED, detail if epoch else another)
        case b"stale":
            return _MOVED
    return refuse(answer.code, DETAILS.get(answer.code, ""))


def _read_owned(partition: int, group: str, answer: Answer) -> Owned:
    return Owned(partition, group, int(answer.epoch), answer.fence, answer.until_ms, answer.credit)


def _detach_row(command: ReleasePartition, _record: NodeRecord) -> Values:
    return departure(subid(command.jid), release=True) | {
        "kept": "",
        "reason": command.reason,
        "group": command.group,
    }


def _read_renewed(command: RenewPartition, answer: Answer, _record: NodeRecord) -> Owned | Refused:
    if answer.code != b"ok":
        return refuse(answer.code, DETAILS.get(answer.code, ""))
    return _read_owned(command.partition, answer.group.decode(), answer)


acquire_partition = Call("acquire_partition", _read_acquired, max_subscribers, _row)
release_partition = Call("unsubscribe", read_ended, row=_detach_row)
renew_ownership = Call(
    "renew_ownership", _read_renewed, row=lambda command, _record: {"subids": subids(command.sender)}
)
