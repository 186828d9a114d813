"""The lock of a delivered item, and the command for each outcome. Pure; must not know proton."""

from typing import Final

from broker.model.commands import Renew, Retract, Unlock
from broker.model.frozen import frozen
from broker.model.names import Jid, Partition
from broker.model.results import HeldItem
from frontends.amqp.protocol.outcomes import Outcome, OutcomeKind

LOCK_MS: Final = 10_000
"""How long an item is locked at a time: so long after the death of a frontend its consumers' items go to others."""

_REASON_CHARS: Final = 200


@frozen
class LockRef:
    """A link's reference to an item that it holds."""

    jid: Jid
    partition: Partition
    item_id: str
    token: int
    lock_ms: int

    @classmethod
    def of(cls, jid: Jid, item: HeldItem) -> "LockRef":
        """Keep what ending or renewing the lock needs, without the payload."""
        return cls(jid, item.partition, item.item_id, item.token, min(LOCK_MS, item.lock_seconds * 1000))

    def end(self, outcome: Outcome) -> Retract | Unlock:
        """Return the command for the consumer's outcome: acknowledged, dead letter, failed or untried."""
        if outcome.kind is OutcomeKind.ACCEPTED:
            return self.acknowledge()
        if outcome.kind is OutcomeKind.REJECTED:
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
        """Return the command that acknowledges the item."""
        return Retract(self.partition.node, self.jid, self.item_id, self.token, partition=self.partition.number)

    def give_back(self, *, untried: bool, delay_ms: int | None = None) -> Unlock:
        """Return the command that makes the item available to others."""
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
        """Return the command that renews the lock."""
        return Renew(
            self.partition.node, self.jid, self.item_id, self.token, self.partition.number, lock_ms=self.lock_ms
        )


def _line(said: str) -> str:
    """Turn a peer's reason into one printable line."""
    return "".join(mark if mark.isprintable() else " " for mark in said[:_REASON_CHARS])
