"""What is asked of a log by its readers. Values only."""

from dataclasses import dataclass

from broker.model.names import Jid


@dataclass(frozen=True, slots=True)
class Commit:
    """Say up to which offset a stream of the sender's has come, which gives back the credit for all up to there."""

    node: str
    sender: Jid
    partition: int
    offset: str


@dataclass(frozen=True, slots=True)
class Read:
    """Read a partition's log from a start on, up to `limit` entries, whatever became of the items.

    For a `group` it is read under the fence of who owns that; without a fence, as long as nobody does.
    """

    node: str
    sender: Jid
    partition: int
    start: str
    limit: int
    group: str = ""
    fence: int = 0


@dataclass(frozen=True, slots=True)
class Bind:
    """Own the reading of a partition for a group (E26 to E28); with the `fence` of an earlier one, go on owning it (EX16).

    `equal`: it takes over from one with the same epoch as well.
    """

    node: str
    sender: Jid
    partition: int
    group: str
    epoch: int | None = None
    fence: int = 0
    equal: bool = False


@dataclass(frozen=True, slots=True)
class Unbind:
    """Own it no more (E29); the epoch is `kept` for a while when a connection was lost (EX11)."""

    node: str
    sender: Jid
    partition: int
    group: str
    fence: int
    kept: bool


@dataclass(frozen=True, slots=True)
class Partitions:
    """Tell a node's partitions and how far the log of each reaches (EX17)."""

    node: str
    sender: Jid


Reading = Commit | Read | Bind | Unbind
"""What is asked of one partition."""

LogCommand = Reading | Partitions
"""What is asked about logs."""
