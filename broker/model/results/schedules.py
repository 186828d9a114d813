"""Outcomes of commands on schedules. Values only."""

from dataclasses import dataclass

from broker.model.schedules import ScheduleStatus


@dataclass(frozen=True, slots=True)
class Scheduled:
    """The schedule as it is now."""

    status: ScheduleStatus


@dataclass(frozen=True, slots=True)
class ScheduleList:
    """A page of schedules by id; `more`: others follow."""

    schedules: tuple[ScheduleStatus, ...]
    more: bool


ScheduleResult = Scheduled | ScheduleList
"""Outcomes of commands on schedules, besides `Done`."""
