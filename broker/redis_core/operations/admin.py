"""Calls for a node's owners: inspect, move and release items; and the steps of a hand-over."""

from typing import Any

from broker.model import attempts
from broker.model.commands import Release
from broker.model.dependencies import read_record
from broker.model.items import ItemDetails, LockDetails
from broker.model.names import Jid
from broker.model.nodes import NodeRecord
from broker.model.progress import Progress
from broker.model.results import Done, Released
from broker.redis_core.commands.admin_parts import (
    AcceptHandover,
    EndHandover,
    HandoverItem,
    InspectedPartition,
    InspectPartition,
    MovedFromPartition,
    MoveFromPartition,
    ReadHandovers,
    Remaining,
)
from broker.redis_core.operations.items import BROWSE_BYTES, intake, read_published
from broker.redis_core.operations.operation import Call, ScriptReply, Values, subid

TICKET_MS = 365 * 24 * 3_600_000
"""How long an arrived item's ticket is remembered, unless the old node has confirmed the arrival."""

LATE_MS = 3_600_000
"""How long it is remembered after that: a script may run late."""


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


def _read_inspected(command: InspectPartition, reply: ScriptReply, _record: NodeRecord) -> InspectedPartition:
    come, found = reply.rows
    return InspectedPartition(tuple(_item_details(row, command.partition) for row in found), come.decode())


def _transfer_rows(command: MoveFromPartition, _record: NodeRecord) -> list[Values]:
    return [{"position": position, "item": item, "to": to} for position, item, to in command.departures]


def _read_moved(_command: MoveFromPartition, reply: ScriptReply, _record: NodeRecord) -> MovedFromPartition:
    return MovedFromPartition(sum(row[0] == b"ok" for row in reply.rows), len(reply.rows))


def _admit_intake(command: AcceptHandover, record: NodeRecord) -> Values:
    taken = {name: value for name, value in intake(command, record).items() if name != "publish_rate"}
    return taken | {"once_ms": TICKET_MS}


def _admit_row(command: AcceptHandover, _record: NodeRecord) -> Values:
    return {
        "item": command.item_id,
        "key": command.key,
        "by": command.publisher,
        "body": command.envelope,
        "ticket": command.ticket,
        "hints": command.hints,
    }


def _letters_arguments(command: ReadHandovers, _record: NodeRecord) -> Values:
    return {"note": command.note, "max_bytes": command.max_bytes}


def _read(_command: ReadHandovers, reply: ScriptReply, _record: NodeRecord) -> tuple[HandoverItem, ...]:
    return tuple(
        HandoverItem(
            position.decode(),
            item.decode(),
            Jid(by.decode()),
            body,
            tries,
            holder,
            reason.decode(),
            key.decode(),
            note.decode(),
            attempts.read(lines),
        )
        for position, item, by, body, tries, holder, reason, key, note, lines in reply.rows
    )


def _end_handover_row(command: EndHandover, _record: NodeRecord) -> Values:
    return {"position": command.position, "arrived": "1" if command.arrived else ""}


def _release_rows(command: Release, _record: NodeRecord) -> list[Values]:
    return [{"item": item_id} for item_id in command.item_ids]


def _read_released(_command: Release, reply: ScriptReply, _record: NodeRecord) -> Released:
    return Released(*reply.rows)


inspect_items = Call(
    "inspect_items",
    _read_inspected,
    _inspect_arguments,
    rows=lambda command, _record: [{"item": item_id} for item_id in command.item_ids],
)
move_items = Call("move_items", _read_moved, rows=_transfer_rows)
read_handovers = Call(
    "read_handovers",
    _read,
    _letters_arguments,
    rows=lambda command, _record: [{"position": position} for position in command.positions],
)
accept_handover = Call("accept_handover", read_published, _admit_intake, _admit_row)
end_handover = Call("end_handover", lambda _command, reply, _record: Remaining(reply[1]), row=_end_handover_row)
expire_tickets = Call(
    "expire_tickets",
    lambda _command, _reply, _record: Done(),
    lambda _command, _record: {"once_ms": LATE_MS},
    lambda command, _record: {"ticket": command.ticket},
)
force_release = Call(
    "force_release",
    _read_released,
    lambda command, _record: {"subid": subid(command.holder) if command.holder else ""},
    rows=_release_rows,
)
