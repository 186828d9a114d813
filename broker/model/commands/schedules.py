"""Commands on the schedules of a node. Values only."""

from broker.model.frozen import frozen
from broker.model.items.hints import NO_HINTS, Hints
from broker.model.names import Jid
from broker.model.nodes.schedules import Schedule


@frozen
class PutSchedule:
    """Make a schedule, or replace the one with its id; the item is as in `Publish`.

    With `paused` it is as in `PauseSchedule`; without, as the one that it replaces, and a new one runs.
    """

    node: str
    sender: Jid
    schedule: Schedule
    envelope: bytes
    body_bytes: int
    key: str = ""
    hints: Hints = NO_HINTS
    paused: bool | None = None


@frozen
class ListSchedules:
    """List a page of schedules by id, from after one on; or, by its `id`, one schedule with its item."""

    node: str
    sender: Jid
    limit: int
    after: str = ""
    id: str = ""


@frozen
class PauseSchedule:
    """Pause a schedule, or resume it: times that pass meanwhile are not missed."""

    node: str
    sender: Jid
    id: str
    paused: bool


@frozen
class RemoveSchedule:
    """Delete a schedule; what it has published stays."""

    node: str
    sender: Jid
    id: str


ScheduleCommand = PutSchedule | ListSchedules | PauseSchedule | RemoveSchedule
"""Commands on schedules."""
