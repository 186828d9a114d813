"""Commands on the schedules of a node. Values only."""

from dataclasses import dataclass

from broker.model.hints import NO_HINTS, Hints
from broker.model.names import Jid
from broker.model.schedules import Schedule


@dataclass(frozen=True, slots=True)
class PutSchedule:
    """Make a schedule, or replace the one with its id; the item is as in `Publish`."""

    node: str
    sender: Jid
    schedule: Schedule
    envelope: bytes
    body_bytes: int
    key: str = ""
    hints: Hints = NO_HINTS


@dataclass(frozen=True, slots=True)
class ListSchedules:
    """List a page of schedules by id, from after one on; or, by its `id`, one schedule with its item."""

    node: str
    sender: Jid
    limit: int
    after: str = ""
    id: str = ""


@dataclass(frozen=True, slots=True)
class PauseSchedule:
    """Pause a schedule, or resume it: times that pass meanwhile are not missed."""

    node: str
    sender: Jid
    id: str
    paused: bool


@dataclass(frozen=True, slots=True)
class RemoveSchedule:
    """Delete a schedule; what it has published stays."""

    node: str
    sender: Jid
    id: str


ScheduleCommand = PutSchedule | ListSchedules | PauseSchedule | RemoveSchedule
"""Commands on schedules."""
