"""Outcomes of commands on schedules. Values only."""

from broker.model.frozen import frozen
from broker.model.nodes.schedules import ScheduleStatus


@frozen
class Scheduled:
    """The schedule as it is now."""

    status: ScheduleStatus


@frozen
class ScheduleList:
    """A page of schedules by id, without those that cannot be read; if others follow, the next page begins `after` this id."""

    schedules: tuple[ScheduleStatus, ...]
    after: str = ""


ScheduleResult = Scheduled | ScheduleList
"""Outcomes of commands on schedules, besides `Done`."""
