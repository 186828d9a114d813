"""The lock of an item that a worker was handed, and what its outcome asks of the core. Pure; must not know proton."""

from dataclasses import dataclass
from typing import Final

from broker.model.commands import Renew, Retract, Unlock
from broker.model.names import Jid, Partition
from broker.model.results import HeldItem
from frontends.amqp.protocol.outcomes import Kind, Outcome

_REASON_CHARS: Final = 200


@dataclass(frozen=True, slots=True)
class LockRef:
    """What a worker's link has of an item that it holds."""

    jid: Jid
    partition: Partition
    item_id: str
    token: int

    @classmethod
    def of(cls, jid: Jid, item: HeldItem) -> "LockRef":
        """Take what is needed to end or to renew a lock: no payload."""
        return cls(jid, item.partition, item.item_id, item.token)

    def end(self, outcome: Outcome) -> Retract | Unlock:
        """End the lock as its holder says: done, dead, tried or untried."""
        if outcome.kind is Kind.ACCEPTED:
            return self.acknowledge()
        if outcome.kind is Kind.REJECTED:
            return Unlock(
                self.partition.node,
                self.jid,
                self.item_id,
                self.token,
                reason=_line(outcome.reason),
                dead_letter=True,
                partition=self.partition.number,
            )
        return self.give_back(untried=not outcome.failed)

    def acknowledge(self) -> Retract:
        """End it for good."""
        return Retract(self.partition.node, self.jid, self.item_id, self.token, partition=self.partition.number)

    def give_back(self, *, untried: bool, delay_ms: int = 0) -> Unlock:
        """Let others have the item."""
        return Unlock(
            self.partition.node,
            self.jid,
            self.item_id,
            self.token,
            delay_ms,
            partition=self.partition.number,
            untried=untried,
        )

    def renew(self) -> Renew:
        """Start the lock's time anew."""
        return Renew(self.partition.node, self.jid, self.item_id, self.token, self.partition.number)


def _line(said: str) -> str:
    """Make one line of what a peer gives as a reason."""
    return "".join(mark if mark.isprintable() else " " for mark in said[:_REASON_CHARS])
