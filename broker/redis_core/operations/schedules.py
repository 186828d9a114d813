"""Calls about the schedules of a node."""

from typing import Any, Final

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

_TOO_MANY: Final = Refused(Problem.NOT_ACCEPTABLE, f"a node has at most {MOST_OF_NODE} schedules")


def _read_found(_command: ReadSchedules, reply: OperationReply, _record: NodeRecord) -> FoundSchedules:
    now, *found = reply.rows
    return FoundSchedules(now, tuple(FoundSchedule(name.decode(), record, item) for name, record, item in found))


def _store_row(command: StoreSchedule, _record: NodeRecord) -> Values:
    return Fields(command, at="" if command.at_ms is None else command.at_ms)


def _read_stored(_command: StoreSchedule, reply: list[Any], _record: NodeRecord) -> ScheduleStored | Refused:
    return _TOO_MANY if reply[0] == b"too-many" else ScheduleStored(*reply[1:])


read_schedules = Call(
    "read_schedules",
    _read_found,
    rows=lambda command, _record: [{"id": command.id}] if command.id else [],
)
store_schedule = Call("store_schedule", _read_stored, lambda _command, _record: {"most": MOST_OF_NODE}, _store_row)
