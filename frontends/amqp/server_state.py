"""What all connections of a frontend have in common: the core, who may be believed, and how much there may be in all."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.model.core import WAITING_BYTES, Core
from frontends.amqp.auth.identity import Identity
from frontends.amqp.links.log_tail import LogTails

_HELD_BYTES: Final = WAITING_BYTES // 2
"""Bytes of messages that may wait for Redis in all: with more, who sends is read no more for now, and the core refuses none."""


class Peer(Protocol):
    """A connection as the others see it."""

    @property
    def quiet(self) -> bool:
        """Tell whether nothing waits for Redis."""

    def resume(self) -> None:
        """Read on."""

    def end(self) -> None:
        """End it."""


@dataclass(slots=True)
class ServerState:
    """One for a frontend; `held` are bytes of messages that wait for Redis, and `paused` who is not read because of that."""

    identity: Identity
    connections_most: int
    core: Core
    tails: LogTails
    held: int = 0
    connections: set[Peer] = field(default_factory=set)
    paused: set[Peer] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Tell whether no more messages can be held for now."""
        return self.held > _HELD_BYTES

    def enter(self, connection: Peer) -> bool:
        """Count a connection; False when there are as many as there may be."""
        if len(self.connections) >= self.connections_most:
            return False
        self.connections.add(connection)
        return True

    def leave(self, connection: Peer) -> None:
        """Forget one."""
        self.connections.discard(connection)
        self.paused.discard(connection)
