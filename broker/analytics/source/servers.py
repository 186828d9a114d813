"""The Redis processes that have the streams, and connections to them. Knows addresses and slots; must not know what is stored.

redis-py's decoding of replies would cost more than the read, so replies stay as hiredis gives them.
"""

# mypy: disable-error-code="no-untyped-call"
# redis-py's connections are in part untyped.

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple, Protocol, Self, TypeVar

from redis.backoff import NoBackoff
from redis.connection import AbstractConnection, Connection, SSLConnection, UnixDomainSocketConnection
from redis.exceptions import AskError, AuthenticationError, MovedError, RedisError, ResponseError
from redis.retry import Retry

from broker.address import read_node
from broker.analytics.faults import Unreachable, Unreadable
from broker.analytics.source.options import Patience
from broker.redis_url import RedisUrl, Topology, read_url

_MOVES: Final = 100
_MOVE_SECONDS: Final = 0.05

T = TypeVar("T")


class Process(NamedTuple):
    """One Redis process: host and port, or the path of its socket; `replica`: a cluster's replica, which needs READONLY."""

    host: str = ""
    port: int = 0
    path: str = ""
    replica: bool = False

    def __str__(self) -> str:
        """Write where it is."""
        return self.path or f"{self.host}:{self.port}"


class Link:
    """One connection; replies arrive in the order of the commands.

    While a slot moves, its process answers ASK for a key that has moved already: the other process answers for that key, but
    only to commands that follow ASKING.
    """

    def __init__(self, connection: AbstractConnection, follow: "Follow", *, asking: bool = False) -> None:
        """Take an open connection, and how to connect to the process that an ASK names; `asking`: it is such a one."""
        self._connection = connection
        self._follow = follow
        self._asking = asking

    def send(self, *words: str | int | bytes) -> None:
        """Send a command."""
        if self._asking:
            self._connection.send_command("ASKING")
        self._connection.send_command(*words)

    def receive(self) -> Any:  # noqa: ANN401  (what Redis answers)
        """Return the next reply; raises an error reply."""
        if self._asking:
            self._connection.read_response()
        return self._connection.read_response(disable_decoding=True)

    def ask(self, *words: str | int | bytes) -> Any:  # noqa: ANN401
        """Send a command and return its reply, of the process that has its key."""
        [reply] = self.ask_all(words)
        return reply

    def ask_all(self, *lines: tuple[str | int | bytes, ...]) -> list[Any]:
        """Send commands in one round trip and return their replies, each of the process that has its key."""
        for words in lines:
            self.send(*words)
        return [self._receive_from_owner(words) for words in lines]

    def _receive_from_owner(self, words: tuple[str | int | bytes, ...]) -> Any:  # noqa: ANN401
        try:
            return self.receive()
        except MovedError:
            raise
        except AskError as error:
            with self._follow(Process(error.host, error.port), asking=True) as other:
                return other.ask(*words)


class Follow(Protocol):
    """Connects to a process; `Servers.link` is one."""

    def __call__(self, process: Process, *, asking: bool) -> AbstractContextManager[Link]:
        """Connect."""


class Route:
    """A connection to the process that has a slot; it follows the slot when that moves to another process."""

    def __init__(self, servers: "Servers", process: Process) -> None:
        """Begin at a process; a context manager."""
        self._servers = servers
        self._stack = ExitStack()
        self._followed, self._moves = "", 0
        self.process = process

    def __enter__(self) -> Self:
        """Connect."""
        self.link = self._stack.enter_context(self._servers.link(self.process))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Disconnect; raises what `Servers.link` makes of a fault."""
        self._stack.__exit__(kind, fault, trace)

    def ask(self, key: str, read: Callable[[Link], T]) -> T:
        """Return what is read about a key, from the process that has it; raises Unreadable if its slot moves without end."""
        while True:
            try:
                return read(self.link)
            except MovedError as error:
                self.follow(key, error)

    def follow(self, key: str, error: AskError) -> None:
        """Connect to the process that a redirection names."""
        if key != self._followed:
            self._followed, self._moves = key, 0
        self._moves += 1
        if self._moves > _MOVES:
            msg = f"{key} moves between nodes of the cluster without end: check the cluster"
            raise Unreadable(msg) from error
        asking = not isinstance(error, MovedError)
        if not asking:
            # Where a slot's move has just ended, some processes may not know yet.
            time.sleep(_MOVE_SECONDS)
        self._stack.close()
        self.process = Process(error.host, error.port)
        self.link = self._stack.enter_context(self._servers.link(self.process, asking=asking))


class Tries:
    """Counts how often a read was tried without getting on."""

    def __init__(self, patience: Patience) -> None:
        """Begin with the first try."""
        self._patience = patience
        self._left = patience.retries

    def note_progress(self) -> None:
        """Begin to count anew: the read has got on."""
        self._left = self._patience.retries

    def wait(self, error: Unreachable) -> None:
        """Wait until the next try; raises the fault if that was the last."""
        if not self._left:
            raise error
        self._left -= 1
        time.sleep(self._patience.interval_s)


class Servers:
    """Finds and reaches the processes behind one URL; can be pickled."""

    def __init__(self, url: str, read_from: str = "master", patience: Patience = Patience()) -> None:  # noqa: B008
        """Parse the URL; nothing is connected."""
        try:
            self._url: RedisUrl = read_url(url)
        except ValueError as error:
            msg = f"the url of Redis: {error}; write e.g. redis://127.0.0.1:6379/0"
            raise Unreadable(msg) from None
        self._replica = read_from == "replica"
        self.patience = patience

    def persist(self, read: Callable[[], T]) -> T:
        """Return what is read, which changes nothing and so is tried again if a process cannot be reached."""
        tries = Tries(self.patience)
        while True:
            try:
                return read()
            except Unreachable as error:
                tries.wait(error)

    def processes(self) -> list[Process]:
        """Return the processes that together have every key once: the masters, or a replica of each."""
        masters = self._masters()
        return [self._replica_of(master) for master in masters] if self._replica else masters

    @contextmanager
    def link(self, process: Process, *, asking: bool = False) -> Iterator[Link]:
        """Connect to a process. Raises faults as Unreadable, except the redirections MOVED and ASK.

        `asking`: for keys of a slot that is moving there.
        """
        connection = self._connection(process, self._url.options)
        try:
            with _translate_faults(process):
                connection.connect()
                if process.replica:
                    connection.send_command("READONLY")
                    connection.read_response()
                yield Link(connection, self.link, asking=asking)
        finally:
            connection.disconnect()

    def slots(self) -> list[str]:
        """Return the slots of each master of a cluster as Redis writes them: `0-99 [7->-ID]`, where slot 7 moves to another."""
        if self._url.kind is not Topology.CLUSTER:
            return []
        told = [self._ask(master, self._url.options, "CLUSTER", "NODES").decode() for master in self._masters()]
        own = [line.split(" ", 8) for each in told for line in each.splitlines() if "myself" in line.split(" ", 3)[2]]
        return [slots for *_, slots in own]

    def _masters(self) -> list[Process]:
        match self._url.kind:
            case Topology.SERVER:
                options = self._url.options
                return [Process(options.get("host", "localhost"), options.get("port", 6379), options.get("path", ""))]
            case Topology.SENTINEL:
                return [self._ask_sentinels()]
            case Topology.CLUSTER:
                return self._ask_cluster()

    def _ask_sentinels(self) -> Process:
        options, question = self._url.sentinel_options, ("SENTINEL", "GET-MASTER-ADDR-BY-NAME", self._url.service)
        named = Counter[Process]()
        trouble = Unreadable(f"no sentinel knows a master of {self._url.service!r}: correct the service in the url")
        for seed in self._url.seeds:
            try:
                found = self._ask(Process(*seed), options, *question, kind="the sentinel")
            except Unreadable as error:
                trouble = error
                continue
            if found:
                named[Process(found[0].decode(), int(found[1]))] += 1
        if not named:
            raise trouble
        return named.most_common(1)[0][0]

    def _ask_cluster(self) -> list[Process]:
        trouble = Unreadable("the url names no node of the cluster")
        for seed in self._url.seeds:
            try:
                slots = self._ask(Process(*seed), self._url.options, "CLUSTER", "SLOTS")
            except Unreadable as error:
                trouble = error
                continue
            found = {Process(*read_node(node, seed.host)) for _first, _last, node, *_ in slots}
            if sum(last - first + 1 for first, last, *_ in slots) < 16_384:
                msg = f"the cluster at {Process(*seed)} has slots that nobody serves: see `redis-cli --cluster check`"
                trouble = Unreadable(msg)
                continue
            return sorted(found)
        raise trouble

    def _replica_of(self, master: Process) -> Process:
        role, *more = self._ask(master, self._url.options, "ROLE")
        clustered = self._url.kind is Topology.CLUSTER
        if role == b"slave":
            # The URL itself names a replica.
            if more[2] == b"connected":
                return master
            msg = f"the replica at {master} has no connection to its master: wait, or read from the master"
            raise Unreadable(msg)
        for host, port, _offset in more[1]:
            replica = Process(host.decode(), int(port), replica=clustered)
            try:
                state = self._ask(replica, self._url.options, "ROLE")
            except Unreadable:
                continue
            if state[0] == b"slave" and state[3] == b"connected":
                return replica
        msg = f"no replica of {master} can be reached: start one, or read from the master (readFrom=master)"
        raise Unreachable(msg)

    def _ask(self, process: Process, options: Mapping[str, Any], *words: str, kind: str = "Redis") -> Any:  # noqa: ANN401
        connection = self._connection(process, options)
        try:
            with _translate_faults(process, kind):
                return Link(connection, self.link).ask(*words)
        finally:
            connection.disconnect()

    def _connection(self, process: Process, options: Mapping[str, Any]) -> AbstractConnection:
        given = {
            "socket_connect_timeout": self.patience.connect_s,
            "socket_timeout": self.patience.answer_s,
            **options,
            "retry": Retry(NoBackoff(), 0),
            "driver_info": None,
            "protocol": 2,
        }
        # redis_url makes arguments for asyncio: the presence of a class tells that it is TLS.
        kind = given.pop("connection_class", None)
        if process.path:
            return UnixDomainSocketConnection(**given)  # type: ignore[abstract]  # redis-py makes them itself
        return (Connection if kind is None else SSLConnection)(**{**given, "host": process.host, "port": process.port})


@contextmanager
def _translate_faults(process: Process, kind: str = "Redis") -> Iterator[None]:
    """Turn a connection fault into a line that names the process and what to do."""
    try:
        yield
    except AskError:
        raise
    except (AuthenticationError, ResponseError) as error:
        msg = f"{kind} at {process} answers {error!s:.200}: correct the url, or what its user may do"
        raise Unreadable(msg) from error
    except (RedisError, OSError) as error:
        msg = f"{kind} at {process} cannot be reached ({error}): start it or correct the url"
        raise Unreachable(msg) from error
