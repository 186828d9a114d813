"""Interfaces through which rooms of the core use what stands above them."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from broker.model.commands import Command
from broker.model.items import Delivery, Notice
from broker.model.names import Jid, Partition
from broker.model.nodes import NodeRecord
from broker.model.results import Result
from broker.redis_core.commands.admin_parts import Handover
from broker.redis_core.commands.credit import CreditReport
from broker.redis_core.commands.internal import AnyCommand, Outcome, PartitionCommand
from broker.tasks import Reply

AskPartition = Callable[[int, AnyCommand], asyncio.Future[Any]]
"""Gives a command to one partition of a node, by its number."""


class CorePort(Protocol):
    """What a pipeline needs of the core around it."""

    frontend: str
    sends: bool
    lost_replies: int
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

    def gone(self, node: str, jid: Jid) -> None:
        """Hear that a subscription has ended by itself: nothing reached its subscriber."""

    def filled(self, jid: Jid) -> None:
        """Hear that one who comes for its items has got some."""

    def hand_over(self, record: NodeRecord, partition: int, told: Sequence[Handover]) -> None:
        """Bring items of a partition to their other nodes."""

    def changed(self, partition: Partition) -> None:
        """Hear that what a partition holds may be something else now."""

    def count(self, what: str, amount: int = 1) -> None:
        """Count for the metrics."""


class NodePort(Protocol):
    """What a pipeline needs of its node's router."""

    def submit(self, command: AnyCommand, reply: Reply) -> None:
        """Take a command that belongs to another partition."""

    def heard(self, partition: Partition, partitions: int, report: CreditReport) -> None:
        """Hear what a script says of credit that partitions share."""


class HandlerPort(Protocol):
    """What handlers need of the core."""

    def begin(self, command: PartitionCommand) -> asyncio.Future[Any]:
        """Give a command its place among its sender's now, and let its outcome be awaited."""

    async def ask_partition(self, command: PartitionCommand) -> Outcome:
        """Give a command its place, and wait for its outcome."""

    async def ask(self, command: Command) -> Result:
        """Take what a door might ask, and wait for its outcome."""

    def node_changed(self, node: str) -> None:
        """Hear of a node whose record is another now."""

    def forget(self, node: str) -> None:
        """Hear of a node whose record is to be read anew."""

    async def register_all(self, node: str) -> None:
        """Make subscriptions known in the partitions that a node has now."""

    def tell(self, notice: Notice) -> None:
        """Tell whom a change concerns."""
