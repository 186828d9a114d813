"""Calls for a node's owners: inspect, move, import, release and erase items."""

from typing import Final

from broker.model.commands import Erase, ImportItem, ListEnds, Release
from broker.model.items import attempts
from broker.model.items.dependencies import Dependent, read_record
from broker.model.items.hints import NO_HINTS
from broker.model.items.items import ItemDetails, LockDetails
from broker.model.items.outcomes import ItemOutcome
from broker.model.items.progress import Progress
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.options import Dedupe, WhenFull
from broker.model.results import EndList, Erased, KeptEnd, Published, Refused, Released
from broker.redis_core.commands.admin_parts import (
    InspectedPartition,
    InspectPartition,
    MovedFromPartition,
    MoveFromPartition,
)
from broker.redis_core.operations.items import BROWSE_BYTES, DETAILS, intake
from broker.redis_core.operations.operation import Call, Fields, OperationReply, Values, refuse, subid
from broker.scripts.answers import Answer

IMPORTED_MS: Final = 24 * 3_600_000
"""How long an imported item's ticket is remembered: an import may go on for so long after it was interrupted."""


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


def _read_ends(_command: ListEnds, reply: OperationReply, _record: NodeRecord) -> EndList:
    return EndList(tuple(KeptEnd(ItemOutcome.read(each.outcome), each.expires_ms) for each in reply.rows.ends))


def _transfer_rows(command: MoveFromPartition, _record: NodeRecord) -> list[Values]:
    return [{"position": position, "item": item, "to": to} for position, item, to in command.departures]


def _read_moved(_command: MoveFromPartition, reply: OperationReply, _record: NodeRecord) -> MovedFromPartition:
    return MovedFromPartition(sum(answer.code == b"ok" for answer in reply.rows), len(reply.rows))


def _import_arguments(command: ImportItem, record: NodeRecord) -> Values:
    config = record.config
    # Items of a queue differ by their ids; entries of a log may share one.
    dedupe = Dedupe.IGNORE if config.queueing else Dedupe.OVERWRITE
    own = {"dedupe": dedupe.value, "publish_rate": "", "once_ms": IMPORTED_MS, "node_full": WhenFull.REJECT.value}
    return {**intake(command, record), **own} | ({} if config.dedupe is dedupe else {"dedupe_ms": 0})


def _import_row(command: ImportItem, _record: NodeRecord) -> Values:
    return {
        "item": command.item_id or "",
        "key": command.key,
        "by": command.publisher,
        "body": command.envelope,
        # No publisher's ticket begins so.
        "once": f"\0import {command.ticket}",
        "hints": "" if command.hints == NO_HINTS else command.hints.times,
        "refused": "",
    }


def _read_imported(_command: ImportItem, answer: Answer, _record: NodeRecord) -> Published | Refused:
    if answer.code in {b"ok", b"duplicate"}:
        return Published(answer.item.decode(), duplicate=answer.code == b"duplicate")
    return refuse(answer.code, DETAILS.get(answer.code, ""))


def _release_rows(command: Release, _record: NodeRecord) -> list[Values]:
    return [{"item": item_id} for item_id in command.item_ids]


def _read_released(_command: Release, reply: OperationReply, _record: NodeRecord) -> Released:
    return Released(reply.rows.count, reply.rows.left)


def _erase_arguments(command: Erase, _record: NodeRecord) -> Values:
    return Fields(command, past=command.past or "log 0-0")


def _read_erased(_command: Erase, reply: OperationReply, _record: NodeRecord) -> Erased:
    found = reply.rows
    return Erased(found.come.decode(), found.items, found.held, found.leaving, found.ends, found.records)


erase = Call("erase", _read_erased, _erase_arguments)
inspect_items = Call(
    "inspect_items",
    _read_inspected,
    _inspect_arguments,
    rows=lambda command, _record: [{"item": item_id} for item_id in command.item_ids],
)
list_ends = Call("list_ends", _read_ends, lambda command, _record: {"limit": command.limit, "max_bytes": BROWSE_BYTES})
move_items = Call("move_items", _read_moved, rows=_transfer_rows)
import_item = Call("publish", _read_imported, _import_arguments, _import_row)
force_release = Call(
    "force_release",
    _read_released,
    lambda command, _record: {"subid": subid(command.holder) if command.holder else ""},
    rows=_release_rows,
)
