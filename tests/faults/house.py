"""The servers that faults hit, and the programs that load them. Knows processes; must not know which fault comes.

Servers are started by the main thread, with which they end.
"""

import os
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any, Final, Self

import redis

from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import Process, Server
from frontends.tools.servers.redis import RedisServer, redis_binary
from frontends.tools.servers.sentinels import RedisSentinels
from tests.contract.proxy import LossyNetwork
from tests.faults.network import network
from tests.journeys import service

REDIS_TIMEOUT: Final = 1.0
WATCHDOG_SECONDS: Final = 4.0
"""Enough for a process that starts on a machine where twenty others want the same two cores."""
DRAIN_SECONDS: Final = 3.0
MEMORY_BYTES: Final = 256 * 1024 * 1024
"""The chart's limit. The kernel refuses a process more private memory, whether it is resident or not, so it is a little less."""

ROOT: Final = Path.cwd()

DOMAIN: Final = f"faults-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.localhost"


class Frontend(service.Frontend):
    """A frontend under a supervisor: `tree` has its program, `environment` is added to its settings."""

    def __init__(self, redis_url: str, xmpp_port: int, secret: str) -> None:
        """Choose what to connect to."""
        super().__init__(
            redis_url,
            xmpp_port,
            secret,
            XMPP_DOMAIN=DOMAIN,
            REDIS_TIMEOUT=str(REDIS_TIMEOUT),
            WATCHDOG_SECONDS=str(WATCHDOG_SECONDS),
            DRAIN_SECONDS=str(DRAIN_SECONDS),
        )
        self.tree = ROOT
        self.environment: dict[str, str] = {}
        self.doomed = False
        """Whether it may end: otherwise its end is a fault, and it is not started again."""

    def revive(self) -> None:
        """Start it again, as a supervisor does that does not wait for readiness."""
        self._process = self._launch()
        self.doomed = False

    def _launch(self) -> Process:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        process = Process(
            [sys.executable, "-m", "frontends.cli", "serve", "xmpp"],
            directory=self.tree,
            log=self._log,
            environment=own | self.environment | {f"STANZAQ_{name}": value for name, value in self._settings.items()},
        )
        resource.prlimit(process.pid, resource.RLIMIT_DATA, (MEMORY_BYTES, MEMORY_BYTES))
        return process


class Player(Server):
    """A publisher or a worker."""

    _ready_seconds = 10.0

    def __init__(self, directory: Path, part: str, name: str, options: dict[str, str]) -> None:
        """Choose its part; `directory` is for its facts."""
        super().__init__(directory, part)
        words = (word for key, value in options.items() for word in (f"--{key}", value))
        own = ("--directory", str(self.directory), "--name", name)
        self._command = [sys.executable, "-m", "tests.faults.player", part, *own, *words]
        self.name = name

    def _launch(self) -> Process:
        return Process(self._command, directory=ROOT, log=self.directory / f"{self.name}.log")

    def _ready(self) -> bool:
        # The load is complete when items flow.
        return True

    @property
    def log(self) -> str:
        """Return its log."""
        path = self.directory / f"{self.name}.log"
        return path.read_text() if path.exists() else ""

    def unfinished(self) -> list[str]:
        """Return its name while it runs; it must end in order."""
        code = self.process._child.poll()
        assert code in {None, 0}, self.log
        return [self.name] if code is None else []


class Kind(Enum):
    """The kind of Redis."""

    ONE = "one server"
    CLUSTER = "a cluster"
    SENTINELS = "a master that sentinels watch"


@dataclass
class House:
    """The servers; with one Redis, two of the three frontends reach it through a network that can be disturbed."""

    kind: Kind
    ejabberd: Ejabberd
    store: RedisServer | RedisCluster | RedisSentinels
    lossy: LossyNetwork | None
    frontends: tuple[Frontend, ...]
    ruined: bool = False
    """A test has failed in the middle of a change to it."""

    @classmethod
    @contextmanager
    def build(cls, kind: Kind, shared: Callable[[], Ejabberd]) -> Iterator[Self]:
        """Start a Redis that loses nothing, or several that lose unreplicated writes, and three frontends.

        Only the faults of one Redis hit the XMPP server, too: the others have the `shared` one.
        """
        with ExitStack() as stack:
            store: RedisServer | RedisCluster | RedisSentinels
            lossy = None
            match kind:
                case Kind.ONE:
                    options = {"appendonly": "yes", "appendfsync": "always"}
                    store = stack.enter_context(RedisServer(binary=redis_binary(), options=options))
                    lossy = stack.enter_context(network(store.url.removeprefix("unix://")))
                case Kind.CLUSTER:
                    store = stack.enter_context(RedisCluster())
                case Kind.SENTINELS:
                    # As docs/operations.md says for installations that must not lose a second: sentinels may replace a
                    # live master.
                    promised = {"min-replicas-to-write": "1", "min-replicas-max-lag": "1"}
                    store = stack.enter_context(RedisSentinels(options=promised))
            ejabberd = stack.enter_context(Ejabberd()) if kind is Kind.ONE else shared()
            disturbed = lossy.url if lossy else store.url
            frontends = [
                stack.enter_context(Frontend(url, ejabberd.component_port, ejabberd.secret))
                for url in (disturbed, disturbed, store.url)
            ]
            yield cls(kind, ejabberd, store, lossy, tuple(frontends))

    @property
    def redis(self) -> RedisServer:
        """The one server."""
        assert isinstance(self.store, RedisServer)
        return self.store

    @property
    def network(self) -> LossyNetwork:
        """The network that leads to the one server."""
        assert self.lossy
        return self.lossy

    @property
    def cluster(self) -> RedisCluster:
        """The cluster."""
        assert isinstance(self.store, RedisCluster)
        return self.store

    @property
    def sentinels(self) -> RedisSentinels:
        """The sentinels and what they watch."""
        assert isinstance(self.store, RedisSentinels)
        return self.store

    def supervise(self) -> None:
        """Start again what a fault has ended; anything that ends by itself is a failure."""
        for frontend in self.frontends:
            if not frontend.alive:
                assert frontend.doomed, f"a frontend ended by itself:\n{frontend.log}"
                frontend.revive()

    def ailing(self) -> list[str]:
        """Return the frontends that are not ready."""
        return [
            f"frontend {number}: {status}"
            for number, frontend in enumerate(self.frontends)
            if (status := frontend.get("/readyz")) != 200
        ]

    def command(self, *words: str) -> Any:  # noqa: ANN401  (what Redis answers)
        """Run a command on the one server directly."""
        return _asked(self.redis, *words)

    def masters(self) -> list[RedisServer]:
        """Return all servers that take writes now."""
        match self.store:
            case RedisServer():
                return [self.store]
            case RedisCluster():
                return list(self.store.masters())
            case RedisSentinels():
                return [self.store.master()]

    def kept(self, node: str) -> dict[str, str]:
        """Return Redis's keys of a node and of derived names, except empty ones."""
        reading = {"hash": ("HGETALL",), "zset": ("ZRANGE", "0", "-1", "WITHSCORES"), "set": ("SMEMBERS",)}
        found = {}
        for master in self.masters():
            for key in sorted(_asked(master, "KEYS", f"*{node}*")):
                kind = _asked(master, "TYPE", key)
                if kind in reading and not key.endswith((":replays", ":dedupe")):
                    word, *rest = reading[kind]
                    found[key] = str(_asked(master, word, key, *rest))
        return found


def _asked(server: RedisServer, *words: str) -> Any:  # noqa: ANN401  (the same)
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return client.execute_command(*words)
