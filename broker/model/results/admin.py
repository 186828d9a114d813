"""How what administrators ask turns out. Values only."""

from collections.abc import Mapping
from dataclasses import dataclass

from broker.model.items import Seen
from broker.model.nodes import Affiliation, NodeRecord
from broker.model.results.nodes import Counted


@dataclass(frozen=True, slots=True)
class Surveyed:
    """Items in the order of their partitions; `scan` is where to go on, empty at the end."""

    items: tuple[Seen, ...]
    scan: str


@dataclass(frozen=True, slots=True)
class Transferred:
    """So many items are on their way, or there already, and arrive whatever happens; `scan` is where to go on, empty at the end.

    `passed` are sentences on why others have stayed, and how many each is true of.
    """

    count: int
    passed: Mapping[str, int]
    scan: str


@dataclass(frozen=True, slots=True)
class Released:
    """So many locks were ended; `left`: so many more were too much for one script."""

    count: int
    left: int = 0


@dataclass(frozen=True, slots=True)
class Summary:
    """A node in an overview, without its affiliations but for how the asker stands to it."""

    record: NodeRecord
    counted: Counted
    standing: Affiliation = Affiliation.OWNER


@dataclass(frozen=True, slots=True)
class Overviewed:
    """A part of the nodes; there are `total`."""

    nodes: tuple[Summary, ...]
    total: int


@dataclass(frozen=True, slots=True)
class Sample:
    """What a node held at a time, and what there had ever been by then, as in `Counted`."""

    at_ms: int
    waiting: int
    in_flight: int
    oldest_ms: int
    published: int
    finished: int
    attempts: int


@dataclass(frozen=True, slots=True)
class History:
    """Samples of a node, at most one a minute, the oldest first and the last one of now.

    Nothing has happened to the node in a minute without a sample. The first may be older than the hour: it tells what there had
    been when the hour began.
    """

    samples: tuple[Sample, ...]


@dataclass(frozen=True, slots=True)
class FrontendStatus:
    """A frontend that was heard of so long ago, or since then is `disconnected_by` somebody and not gone yet.

    Items are sent through the `door` xmpp alone; at the others they are come for, so nobody takes over from those frontends.
    """

    name: str
    ago_ms: int
    disconnected_by: str
    door: str = "xmpp"


@dataclass(frozen=True, slots=True)
class FrontendList:
    """The frontends, those that send items first; of both kinds those that were not heard of for longest, at most 1,000."""

    frontends: tuple[FrontendStatus, ...]


@dataclass(frozen=True, slots=True)
class Disconnected:
    """The frontend ends when it hears of it; not `listed`: it had ended, or lapsed, and the others have done what it owed."""

    listed: bool


AdminResult = Surveyed | Transferred | Released | Overviewed | History | FrontendList | Disconnected
"""How what administrators and owners ask turns out."""
