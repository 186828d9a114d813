"""Commands to a node's first partition, which keeps the node's schedules; their records are bytes here."""

from broker.model.frozen import frozen


@frozen
class ReadSchedules:
    """Read schedules: the one named, with its item, or a page by id."""

    node: str
    incarnation: str
    id: str = ""
    after: str = ""
    limit: int = 1


@frozen
class FoundSchedule:
    """A stored schedule; the item is empty where it was not asked for."""

    id: str
    record: bytes
    item: bytes


@frozen
class FoundSchedules:
    """Schedules, and Redis's time."""

    now_ms: int
    schedules: tuple[FoundSchedule, ...]


@frozen
class StoreSchedule:
    """Store the record of a schedule in place of the `expected` one, empty for none; an empty record deletes it.

    An empty item leaves the stored one. `at_ms` is when the schedule is next due, None for never.
    """

    node: str
    incarnation: str
    id: str
    expected: bytes
    record: bytes
    at_ms: int | None
    item: bytes = b""

    @property
    def envelope(self) -> bytes:
        """What counts as the payload of a call."""
        return self.item


@frozen
class ScheduleStored:
    """When the record was stored, by Redis's time in ms; None if it was another than expected."""

    at_ms: int | None = None
