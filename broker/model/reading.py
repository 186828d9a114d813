"""What is asked of a log: commands like those of `broker.model.commands`. Values only."""

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
    """Read a partition's log from a start on, up to `limit` entries, whatever became of the items."""

    node: str
    sender: Jid
    partition: int
    start: str
    limit: int


@dataclass(frozen=True, slots=True)
class Partitions:
    """Tell a node's partitions and how far the log of each reaches (EX17)."""

    node: str
    sender: Jid
