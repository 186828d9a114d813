"""Interfaces through which rooms of the core use the rooms above them."""

import asyncio
from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, Protocol

from broker.model.commands import Command
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid, Partition
from broker.model.results import Refused, Result
from broker.redis_core.commands.collections import Asks
from broker.redis_core.commands.internal import AnyCommand, Outcome, PartitionCommand
from broker.tasks import Reply

AskPartition = Callable[[int, AnyCommand], asyncio.Future[Any]]
"""Sends a command to one partition of a node, by its number."""


class QuotaPort(Protocol):
    """What pipelines know of quotas."""

    published: Counter[Jid | None]

    @property
    def used_up(self) -> Mapping[str, object]:
        """Whose quota is used up."""

    def judge(self, owner: Jid | None) -> Refused | None:
        """Return why a publish to a node of `owner` is over a quota."""


class ServedPort(Protocol):
    """What pipelines know of the notes of served partitions."""

    async def note(self, partition: Partition) -> None:
        """Note a partition that may hand something out here. Raises CoreUnavailable."""

    def drop(self, partitions: Iterable[Partition]) -> None:
        """Let notes go, since all that these partitions have handed out is sent."""


class CorePort(Protocol):
    """The interface of the core that pipelines use."""

    frontend: str
    sends: bool
    lost_replies: int
    once_ms: int
    retry: str

    @property
    def served(self) -> ServedPort:
        """The notes of the partitions that may hand something to this frontend."""

    @property
    def sent_until(self) -> float:
        """The time, of the steady clock, before which all that was handed to this frontend is sent."""

    @property
    def quota_use(self) -> QuotaPort:
        """What owners use of their quotas."""

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Hand a batch of deliveries to the door."""

    def notify(self, notice: Notice) -> None:
        """Hand a notice to the door."""

    def congested(self) -> bool:
        """Return whether the door has too much to write."""

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Note when the partition is next due."""

    def lease_expired(self, node: str, jid: Jid, subid: str) -> None:
        """End a subscription whose lease has expired."""

    def subscription_ended(self, node: str, jid: Jid) -> None:
        """Handle a subscription that ended by itself, since its subscriber cannot be reached."""

    def free_references(self, collection: str, words: Sequence[tuple[str, str]]) -> None:
        """Tell a collection how locks under its references have ended."""

    def wake(self, process: str, partition: Partition, subid: str) -> None:
        """Wake the pull subscription that waits in a process for items of a partition."""

    def follow_outbox(self, partition: Partition) -> None:
        """Deliver what is due in the outbox of a partition."""

    def partition_changed(self, partition: Partition) -> None:
        """Note that the counts of a partition may have changed."""

    def count(self, what: str, amount: int = 1, node: str = "") -> None:
        """Add to a counter; ends are counted by their node."""


class NodePort(Protocol):
    """The interface of a node's router that pipelines use."""

    def submit(self, command: AnyCommand, reply: Reply) -> None:
        """Take a command that belongs to another partition."""

    def on_asks(self, partition: Partition, asks: Asks) -> None:
        """Ask the collections above for subscribers."""

    def on_turn_due(self) -> None:
        """Take a turn of the collection."""


class HandlerPort(Protocol):
    """The interface of the core that handlers use."""

    name: str

    @property
    def quota_use(self) -> QuotaPort:
        """What owners use of their quotas."""

    def begin(self, command: PartitionCommand) -> asyncio.Future[Any]:
        """Submit a command now, which fixes its order, and return its outcome as a future."""

    async def ask_partition(self, command: PartitionCommand) -> Outcome:
        """Submit a command and wait for its outcome."""

    async def ask(self, command: Command) -> Result:
        """Submit a door's command and wait for its outcome."""

    def node_changed(self, node: str) -> None:
        """Handle a changed node record."""

    async def withdraw_references(self, node: str) -> None:
        """End what subscribers of a collection hold in queues not below it or closed to them, and what is to end anyway."""

    def tell(self, notice: Notice) -> None:
        """Hand a notice to the door."""

    def background(self, work: Callable[[], Coroutine[Any, Any, Any]]) -> None:
        """Run something in the background and log its errors."""

    def count(self, what: str, amount: int = 1, node: str = "", waits_ms: Sequence[int] = ()) -> None:
        """Add to a counter; ends, and waits for a first delivery, are counted by their node."""


class DoorPort(HandlerPort, Protocol):
    """The interface of the core for what must know when the door has written."""

    breaks: int
    """How often the door's stream has broken, or come back."""

    def congested(self) -> bool:
        """Return whether the door has too much to write."""

    def flushed(self) -> bool:
        """Return whether the door has written all that it was handed."""
