"""Calls for a node's owners: inspect, move and release items."""

from broker.model.commands import Release
from broker.model.items import attempts
from broker.model.items.dependencies import Dependent, read_record
from broker.model.items.items import ItemDetails, LockDetails
from broker.model.items.progress import Progress
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.results import Released
from broker.redis_core.commands.admin_parts import (
    InspectedPartition,
    InspectPartition,
    MovedFromPartition,
    MoveFromPartition,
)
from broker.redis_core.operations.items import BROWSE_BYTES
from broker.redis_core.operations.operation import Call, OperationReply, Values, subid
from broker.scripts.answers import Answer


def _inspect_arguments(command: InspectPartition, _record: NodeRecord) -> Values:
    return {"past": command.after, "till": command.upto, "limit": command.limit, "max_bytes": BROWSE_BYTES}


def _lock_details(lock: Answer) -> LockDetails:
    progress = Progress.read(lock.progress.decode())
    jid, frontend = Jid(lock.jid.decode()), lock.frontend.decode()
    return LockDetails(jid, lock.token, lock.since_ms, lock.deadline_ms, frontend, progress)


def _item_details(item: Answer, partition: int) -> ItemDetails:
    return ItemDetails(
        partition,
        item.position.decode(),
        item.item.decode(),
        item.state.decode(),
        Jid(item.publisher.decode()),
        item.key.decode(),
        item.published_ms,
        item.body,
        item.attempts,
        item.until_ms,
        item.lock and _lock_details(item.lock),
        tuple(Jid(jid.decode()) for jid in item.holders),
        item.priority,
        item.ends_ms,
        attempts.read(item.history),
        read_record(item.parents),
        tuple(Dependent.read(each.decode()) for each in item.awaited_by),
    )


def _read_inspected(command: InspectPartition, reply: OperationReply, _record: NodeRecord) -> InspectedPartition:
    found = reply.rows
    return InspectedPartition(
        tuple(_item_details(item, command.partition) for item in found.items), found.last.decode()
    )


def _transfer_rows(command: MoveFromPartition, _record: NodeRecord) -> list[Values]:
    return [{"position": position, "item": item, "to": to} for position, item, to in command.departures]


def _read_moved(_command: MoveFromPartition, reply: OperationReply, _record: NodeRecord) -> MovedFromPartition:
    return MovedFromPartition(sum(answer.code == b"ok" for answer in reply.rows), len(reply.rows))


def _release_rows(command: Release, _record: NodeRecord) -> list[Values]:
    return [{"item": item_id} for item_id in command.item_ids]


def _read_released(_command: Release, reply: OperationReply, _record: NodeRecord) -> Released:
    return Released(reply.rows.count, reply.rows.left)


inspect_items = Call(
    "inspect_items",
    _read_inspected,
    _inspect_arguments,
    rows=lambda command, _record: [{"item": item_id} for item_id in command.item_ids],
)
move_items = Call("move_items", _read_moved, rows=_transfer_rows)
force_release = Call(
    "force_release",
    _read_released,
    lambda command, _record: {"subid": subid(command.holder) if command.holder else ""},
    rows=_release_rows,
)
