"""Outcomes of administrators' and owners' commands. Values only."""

from collections.abc import Mapping

from broker.model.frozen import frozen
from broker.model.items.items import ItemDetails
from broker.model.items.outcomes import ItemOutcome
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.quotas import QuotaStatus
from broker.model.results.nodes import Counted


@frozen
class InspectedItems:
    """Items in the order of their partitions, of so many `examined`; `scan` is where to continue, empty at the end."""

    items: tuple[ItemDetails, ...]
    scan: str
    examined: int


@frozen
class KeptEnd:
    """The end of an item, which its node keeps until `expires_ms`."""

    outcome: ItemOutcome
    expires_ms: int


@frozen
class EndList:
    """The ends of items that a node keeps, those that it keeps longest first."""

    ends: tuple[KeptEnd, ...]


@frozen
class MovedItems:
    """So many items are moving and will arrive whatever happens; `scan` is where to continue, empty at the end.

    `passed` has the reasons why other items stayed, each with the number of items.
    """

    count: int
    passed: Mapping[str, int]
    scan: str


@frozen
class Released:
    """So many locks were ended; `left` more were too many for one operation."""

    count: int
    left: int = 0


@frozen
class Erased:
    """So much was erased: items, ends of items, journal records; the next part continues from `come`, unless that is empty.

    Of what is left, `held` items have a lock, and `leaving` ones are on their way to another node.
    """

    come: str
    items: int
    held: int
    leaving: int
    ends: int
    records: int


@frozen
class Summary:
    """A node in an overview, with what the sender is there: its affiliation, or its role."""

    record: NodeRecord
    counted: Counted
    standing: str = Affiliation.OWNER.value


@frozen
class Overviewed:
    """One page of the `total` nodes."""

    nodes: tuple[Summary, ...]
    total: int


@frozen
class Sample:
    """What a node held at a time, and its totals by then, as in `Counted`."""

    at_ms: int
    waiting: int
    in_flight: int
    oldest_ms: int
    published: int
    finished: int
    attempts: int


@frozen
class History:
    """Samples of a node, at most one a minute, oldest first; the last one is of now.

    Without a sample, nothing happened in that minute. The first may be older than the hour: it has the counts when the hour
    began.
    """

    samples: tuple[Sample, ...]


@frozen
class FrontendStatus:
    """A frontend, the time since its last heartbeat, and who disconnected it, if it has not ended yet.

    Only the `door` xmpp sends items; clients of the others fetch them, so nobody takes over from those frontends. The rest is
    what it said of itself when it started: nothing if it has an older version.
    """

    name: str
    ago_ms: int
    disconnected_by: str
    door: str = "xmpp"
    host: str = ""
    pid: int = 0
    version: str = ""
    up_ms: int = 0


@frozen
class FrontendList:
    """The frontends, those that send items first, each kind by the oldest heartbeat; at most 1,000."""

    frontends: tuple[FrontendStatus, ...]


@frozen
class Disconnected:
    """The frontend ends at its next heartbeat; not `listed`: it had ended or was dead, and others have taken over."""

    listed: bool


@frozen
class ScheduleMoved:
    """A schedule that goes on at `next_ms` instead of `before_ms`, after it has left out times, `missed` in all."""

    id: str
    before_ms: int
    next_ms: int | None
    missed: int


@frozen
class Restored:
    """A node is up to now: its largest number before, Redis's time, and the schedules that have moved."""

    token: int
    now_ms: int
    schedules: tuple[ScheduleMoved, ...]


@frozen
class QuotaList:
    """Quotas by subject, with what is used of them."""

    quotas: tuple[QuotaStatus, ...]


AdminResult = (
    InspectedItems
    | EndList
    | MovedItems
    | Released
    | Overviewed
    | History
    | FrontendList
    | Disconnected
    | Restored
    | QuotaList
    | Erased
)
"""Outcomes of administrators' and owners' commands."""
