"""What a lane needs of what is around it: interfaces only."""

from typing import Any, Protocol

from broker.model.items import Delivery, Notice
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord


class Surroundings(Protocol):
    """What a lane needs of the core around it."""

    frontend: str
    once_ms: int
    retry: str

    def deliver(self, delivery: Delivery) -> None:
        """Hand a delivery to the door."""

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""

    def congested(self) -> bool:
        """Tell whether the door has more to write than it should."""

    def flushed(self) -> bool:
        """Tell whether the door has written all that it was handed."""

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when the partition next needs a visit."""

    def lapsed(self, node: str, jid: Jid, subid: str) -> None:
        """End a subscription whose lease is over."""

    def hand_over(self, record: NodeRecord, partition: int, letter: list[Any]) -> None:
        """Bring a dead letter of a partition to its node."""

    def count(self, what: str, amount: int = 1) -> None:
        """Count for the metrics."""


class Neighbours(Protocol):
    """What a lane needs to know of other partitions, and tells of its own."""

    def wants(self, partition: Partition) -> str:
        """Name the partitions in need of credit."""

    def learned(self, partition: Partition, partitions: int, report: list[Any]) -> None:
        """Hear what a script says of credit."""
