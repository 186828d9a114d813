"""Calls for a node's owners: inspect, move and release items."""

from typing import Any

from broker.model.commands import Release
from broker.model.items import attempts
from broker.model.items.dependencies import read_record
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


def _inspect_arguments(command: InspectPartition, _record: NodeRecord) -> Values:
    return {"past": command.after, "till": command.upto, "limit": command.limit, "max_bytes": BROWSE_BYTES}


def _item_details(row: list[Any], partition: int) -> ItemDetails:
    (
        position,
        item,
        state,
        by,
        key,
        published_ms,
        body,
        tries,
        until_ms,
        held,
        holders,
        priority,
        ends_ms,
        lines,
        *parents,
    ) = row
    lock = None
    if held:
        jid, token, since_ms, deadline_ms, frontend, told = held
        progress = Progress.read(told.decode())
        lock = LockDetails(Jid(jid.decode()), token, since_ms, deadline_ms, frontend.decode(), progress)
    return ItemDetails(
        partition,
        position.decode(),
        item.decode(),
        state.decode(),
        Jid(by.decode()),
        key.decode(),
        published_ms,
        body,
        tries,
        until_ms,
        lock,
        tuple(Jid(jid.decode()) for jid in holders),
        priority,
        ends_ms,
        attempts.read(lines),
        read_record(*parents),
    )


def _read_inspected(command: InspectPartition, reply: OperationReply, _record: NodeRecord) -> InspectedPartition:
    come, found = reply.rows
    return InspectedPartition(tuple(_item_details(row, command.partition) for row in found), come.decode())


def _transfer_rows(command: MoveFromPartition, _record: NodeRecord) -> list[Values]:
    return [{"position": position, "item": item, "to": to} for position, item, to in command.departures]


def _read_moved(_command: MoveFromPartition, reply: OperationReply, _record: NodeRecord) -> MovedFromPartition:
    return MovedFromPartition(sum(row[0] == b"ok" for row in reply.rows), len(reply.rows))


def _release_rows(command: Release, _record: NodeRecord) -> list[Values]:
    return [{"item": item_id} for item_id in command.item_ids]


def _read_released(_command: Release, reply: OperationReply, _record: NodeRecord) -> Released:
    return Released(*reply.rows)


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
