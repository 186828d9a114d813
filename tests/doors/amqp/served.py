"""An AMQP frontend as a child process, and proton's own blocking client. Knows how they start; must not know what a test asks."""

# ruff: noqa: ANN401  (what proton takes is of any type)

import itertools
import os
import socket
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import bcrypt
import proton
import psutil
from proton import Described, Message, Terminus, symbol, ulong
from proton.reactor import Filter, LinkOption
from proton.utils import BlockingConnection, BlockingReceiver, BlockingSender

from frontends.servers.process import Process, Server, free_port

ALICE, BOB = "alice@example.org", "bob@example.org"
PASSWORD = "secret"
HASH = bcrypt.hashpw(PASSWORD.encode(), bcrypt.gensalt(4)).decode()
PATIENCE_SECONDS = 20.0
_NAMES = itertools.count()


class AmqpFrontend(Server):
    """One `stanzaq serve amqp`; `settings` are `STANZAQ_*` without their prefix."""

    _ready_seconds = 30.0

    def __init__(self, redis_url: str, **settings: str) -> None:
        """Choose the Redis, and ports."""
        super().__init__(None, "frontend")
        self.port, self._health = free_port(), free_port()
        self.redis_url = redis_url
        self._settings = {
            "REDIS_URL": redis_url,
            "AMQP_BIND": f"127.0.0.1:{self.port}",
            "AMQP_PASSWORDS": f"{ALICE}:{HASH}\n{BOB}:{HASH}\n",
            "METRICS_BIND": f"127.0.0.1:{self._health}",
            "LOG_FORMAT": "json",
            **settings,
        }

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return (self.directory / "frontend.log").read_text()

    def probe(self, path: str) -> tuple[int, str]:
        """Ask a probe; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._health}{path}", timeout=5) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            with error:
                return error.code, error.read().decode()
        except OSError:
            return 0, "nobody listens"

    def _launch(self) -> Process:
        return Process(
            [sys.executable, "-m", "frontends.cli", "serve", "amqp"],
            directory=Path.cwd(),
            log=self.directory / "frontend.log",
            environment=_environment(self._settings),
        )

    def _ready(self) -> bool:
        return self.probe("/readyz")[0] == 200

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
        """What it has of the machine's memory."""
        return int(psutil.Process(self.process.pid).memory_info().rss)

    def raw(self) -> socket.socket:
        """Connect without a word."""
        return socket.create_connection(("127.0.0.1", self.port), timeout=PATIENCE_SECONDS)


def _environment(settings: Mapping[str, str]) -> dict[str, str]:
    own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
    return own | {f"STANZAQ_{name}": value for name, value in settings.items()}


class With(LinkOption):
    """Properties, and what else a link is to ask for."""

    def __init__(self, *, copies: bool = False, **properties: Any) -> None:
        """Take properties by their names, with `_` for `-` and without `event-streams-`."""
        self._copies = copies
        self._properties = {
            symbol(f"event-streams-{name.replace('_', '-')}"): value for name, value in properties.items()
        }

    def apply(self, link: proton.Link) -> None:
        """Ask for it."""
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
    """Give the properties that the other side has said."""
    return {str(name): value for name, value in (link.remote_properties or {}).items()}


def arrived(receiver: BlockingReceiver) -> int:
    """Count what has come and was not taken."""
    return len(receiver.fetcher.incoming) if receiver.fetcher else 0


def offered(connection: BlockingConnection) -> list[Any]:
    """Give the capabilities that the other side has."""
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
    """Attach a sender under a name of its own."""
    return connection.create_sender(address, name=f"out{next(_NAMES)}", options=options)


def consumer(
    connection: BlockingConnection, address: str, options: Any = None, credit: int = 10, name: str = ""
) -> BlockingReceiver:
    """Attach a receiver, under a name of its own unless one is given."""
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
