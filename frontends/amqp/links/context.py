"""What the links of one connection work with. Must not know what any link does."""

from dataclasses import dataclass
from typing import Protocol

from broker.model.core import Core
from broker.model.names import Jid
from frontends.amqp.links.log_tail import LogTails


class LinkConnection(Protocol):
    """A connection as its links see it."""

    @property
    def begun(self) -> int:
        """Bytes of messages that are not all there."""

    @property
    def message_format(self) -> int:
        """The format of the message that arrives."""

    def flush(self) -> None:
        """Write what there is to be written, at the end of this turn of the loop."""

    def hold(self, size: int) -> None:
        """Count bytes of messages that wait for Redis: so many more, or fewer."""

    def authenticated(self) -> None:
        """Hear that it is known who the peer is."""


@dataclass(slots=True)
class LinkContext:
    """The core, the ends of all logs, the connection, and its peer: nobody until it has said who it is."""

    core: Core
    tails: LogTails
    connection: LinkConnection
    sender: Jid
