"""State shared by all AMQP connections of a frontend: the core, authentication, and total limits."""

from dataclasses import dataclass, field
from typing import Final, Protocol

from broker.model.core import WAITING_BYTES, Core
from frontends.amqp.auth.identity import Identity
from frontends.amqp.links.log_tail import LogTails
from frontends.logins.connection_limits import ConnectionLimits

_HELD_BYTES: Final = WAITING_BYTES // 2
"""The most message bytes that wait for Redis in all; above it, connections stop reading, so that the core need not refuse any."""


class Peer(Protocol):
    """A connection as others see it."""

    @property
    def quiet(self) -> bool:
        """Tell whether no message waits for Redis."""

    def resume(self) -> None:
        """Read again."""

    def review(self) -> None:
        """Close the connection if its peer may not stay."""

    def end(self) -> None:
        """Close the connection."""

    def make_room(self) -> None:
        """Close, since others need the room."""


@dataclass(slots=True)
class ServerState:
    """One for each frontend. `held` are message bytes that wait for Redis; `paused` connections have stopped reading for that."""

    identity: Identity
    connection_limits: ConnectionLimits
    core: Core
    tails: LogTails
    held: int = 0
    connections: set[Peer] = field(default_factory=set)
    paused: set[Peer] = field(default_factory=set)

    @property
    def full(self) -> bool:
        """Tell whether the total limit is exceeded."""
        return self.held > _HELD_BYTES

    def enter(self, connection: Peer, address: str) -> bool:
        """Add a connection; False when there is no room for it."""
        if not self.connection_limits.enter(connection, address):
            return False
        self.connections.add(connection)
        return True

    def leave(self, connection: Peer) -> None:
        """Remove a connection."""
        self.connection_limits.leave(connection)
        self.connections.discard(connection)
        self.paused.discard(connection)
