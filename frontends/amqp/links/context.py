"""What all links of a connection share. Must not know what any link does."""

from dataclasses import dataclass
from typing import Protocol

from broker.model.core import Core
from broker.model.names import Jid
from frontends.amqp.links.log_tail import LogTails


class LinkConnection(Protocol):
    """The connection's interface to its links."""

    @property
    def begun(self) -> int:
        """The bytes of incomplete messages."""

    @property
    def message_format(self) -> int:
        """The format of the incoming message."""

    def flush(self) -> None:
        """Write pending output at the end of this turn of the event loop."""

    def hold(self, size: int) -> None:
        """Add to the bytes that wait for Redis, or subtract."""

    def claim(self, jid: Jid) -> bool:
        """Note whose connection it is; returns whether that account has a place for it."""

    def refuse_token(self, why: str) -> None:
        """Note a token that was refused."""

    @property
    def client(self) -> str:
        """The peer's program, as its open names it."""

    def authenticated(self) -> None:
        """End the limit on the time to authenticate."""


@dataclass(slots=True)
class LinkContext:
    """The core, the tails of all logs, the connection, and the peer's JID (empty until it has authenticated)."""

    core: Core
    tails: LogTails
    connection: LinkConnection
    sender: Jid
