"""Calls about the schedules of a node."""

from typing import Final

from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.schedules import MOST_OF_NODE
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.commands.schedule_parts import (
    FoundSchedule,
    FoundSchedules,
    ReadSchedules,
    ScheduleStored,
    StoreSchedule,
)
from broker.redis_core.operations.operation import Call, Fields, OperationReply, Values
from broker.scripts.answers import Answer

_TOO_MANY: Final = Refused(Problem.NOT_ACCEPTABLE, f"a node has at most {MOST_OF_NODE} schedules")


def _read_found(_command: ReadSchedules, reply: OperationReply, _record: NodeRecord) -> FoundSchedules:
    page = reply.rows
    found = (FoundSchedule(each.id.decode(), each.record, each.item) for each in page.schedules)
    return FoundSchedules(page.now_ms, tuple(found))


def _store_row(command: StoreSchedule, _record: NodeRecord) -> Values:
    return Fields(command, at="" if command.at_ms is None else command.at_ms)


def _read_stored(_command: StoreSchedule, answer: Answer, _record: NodeRecord) -> ScheduleStored | Refused:
    if answer.code == b"too-many":
        return _TOO_MANY
    return ScheduleStored(answer.now_ms if answer.code == b"ok" else None)


read_schedules = Call(
    "read_schedules",
    _read_found,
    rows=lambda command, _record: [{"id": command.id}] if command.id else [],
)
store_schedule = Call("store_schedule", _read_stored, lambda _command, _record: {"most": MOST_OF_NODE}, _store_row)
