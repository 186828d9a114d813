"""An AMQP frontend as a child process, and proton's own blocking client. Knows how they start; must not know what a test asks."""

# ruff: noqa: ANN401  (what proton takes is of any type)

import itertools
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import proton
import psutil
from proton import Described, Message, ProtonException, Terminus, symbol, ulong
from proton.reactor import Filter, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender, LinkDetached, SendException

from frontends.logins.tokens import Tokens
from tests.doors.frontend import ALICE, PASSWORD, DoorFrontend
from tests.waiting import PATIENCE_SECONDS

NO_TOKENS = Tokens("", "", "", "")
"""Of an `Identity` that verifies no tokens of an issuer."""

_NAMES = itertools.count()


class AmqpFrontend(DoorFrontend):
    """One `stanzaq serve amqp`."""

    door, prefix = "amqp", "AMQP"

    def lets(self, jid: str, use: Callable[[BlockingConnection], object]) -> bool:
        """Return whether a user may use a connection in this way."""
        connection = self.connect(jid)
        try:
            use(connection)
        except (LinkDetached, SendException, ProtonException):
            return False
        else:
            return True
        finally:
            connection.close()

    def connect(self, jid: str = ALICE, password: str = PASSWORD, **options: Any) -> BlockingConnection:
        """Connect as one user."""
        return BlockingConnection(
            f"amqp://127.0.0.1:{self.port}",
            timeout=PATIENCE_SECONDS,
            user=jid,
            password=password,
            allowed_mechs="PLAIN",
            allow_insecure_mechs=True,
            **options,
        )

    @property
    def memory_bytes(self) -> int:
        """Return its resident memory."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def raw(self) -> socket.socket:
        """Connect a plain socket."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)


class With(LinkOption):
    """Properties, filters and capabilities to request for a link."""

    def __init__(self, *, copies: bool = False, **properties: Any) -> None:
        """Take properties by their names, with `_` for `-` and without `event-streams-`."""
        self._copies = copies
        self._properties = {
            symbol(f"event-streams-{name.replace('_', '-')}"): value for name, value in properties.items()
        }

    def apply(self, link: proton.Link) -> None:
        """Request them."""
        if self._properties:
            link.properties = self._properties
        if self._copies:
            link.source.distribution_mode = Terminus.DIST_MODE_COPY


def annotations(*, by_number: bool = False, **values: Any) -> Filter:
    """Make a delivery annotations filter."""
    name = symbol("amqp:event-streams-delivery-annotations-filter")
    said: dict[Any, Any] = {symbol(f"event-streams-{key}"): value for key, value in values.items()}
    return Filter({name: Described(ulong(0x200) if by_number else name, said)})


def sql(text: str, *, by_number: bool = False) -> Filter:
    """Make an SQL filter."""
    name = symbol("amqp:event-streams-sql-filter")
    return Filter({name: Described(ulong(0x201) if by_number else name, text)})


def told(link: proton.Link) -> dict[str, Any]:
    """Return the properties that the other side has sent."""
    return {str(name): value for name, value in (link.remote_properties or {}).items()}


def arrived(receiver: BlockingReceiver) -> int:
    """Count the messages that have come and were not received."""
    return len(receiver.fetcher.incoming) if receiver.fetcher else 0


def offered(connection: BlockingConnection) -> list[Any]:
    """Return the other side's capabilities."""
    return list(connection.conn.remote_offered_capabilities or []) if connection.conn else []


def bodies(receiver: BlockingReceiver, count: int) -> list[str]:
    """Receive so many bodies."""
    return [text(one(receiver)) for _ in range(count)]


def one(receiver: BlockingReceiver) -> Message:
    """Receive and accept a message."""
    message = receiver.receive(timeout=PATIENCE_SECONDS)
    receiver.accept()
    return message


def text(message: Message) -> str:
    """Give a body as text."""
    body: Any = message.body
    return bytes(body).decode() if not isinstance(body, str) else body


def marks(message: Message) -> dict[str, Any]:
    """Give delivery annotations without their prefix."""
    return {str(name).removeprefix("event-streams-"): value for name, value in (message.instructions or {}).items()}


def producer(connection: BlockingConnection, address: str, options: Any = None) -> BlockingSender:
    """Attach a sender under a new name."""
    return connection.create_sender(address, name=f"out{next(_NAMES)}", options=options)


def consumer(
    connection: BlockingConnection, address: str, options: Any = None, credit: int = 10, name: str = ""
) -> BlockingReceiver:
    """Attach a receiver, under a new name unless one is given."""
    return connection.create_receiver(address, credit=credit, name=name or f"in{next(_NAMES)}", options=options)


def send(sender: BlockingSender, *texts: str, key: str = "", partition: str | None = None) -> None:
    """Send texts as data, each settled before the next."""
    for each in texts:
        message = Message(body=each.encode(), inferred=True)
        if key:
            message.annotations = {symbol("event-streams-group-key"): key}
        if partition is not None:
            message.instructions = {symbol("event-streams-partition"): symbol(partition)}
        sender.send(message)


@contextmanager
def connected(frontend: AmqpFrontend, jid: str = ALICE) -> Iterator[BlockingConnection]:
    """Connect for a while."""
    connection = frontend.connect(jid)
    try:
        yield connection
    finally:
        connection.close()
