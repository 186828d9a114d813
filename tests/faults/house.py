"""The servers that faults strike, and the programs that load them. Knows processes; must not know which fault comes.

Servers are started by the main thread, with which they end.
"""

import os
import sys
from collections.abc import Iterator
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
ROOT: Final = Path.cwd()


class Frontend(service.Frontend):
    """A frontend under a supervisor: `tree` is where its program is, `environment` what it finds beside its settings."""

    def __init__(self, redis_url: str, xmpp_port: int, secret: str) -> None:
        """Choose what to connect to."""
        super().__init__(
            redis_url,
            xmpp_port,
            secret,
            REDIS_TIMEOUT=str(REDIS_TIMEOUT),
            WATCHDOG_SECONDS=str(WATCHDOG_SECONDS),
            DRAIN_SECONDS=str(DRAIN_SECONDS),
        )
        self.tree = ROOT
        self.environment: dict[str, str] = {}
        self.doomed = False
        """Whether it may end: else its end is a fault of its own, which no supervisor makes good."""

    def revive(self) -> None:
        """Start it anew, as a supervisor does who does not wait for it to be ready."""
        self._process = self._launch()
        self.doomed = False

    def _launch(self) -> Process:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        return Process(
            [sys.executable, "-m", "frontends.cli", "serve", "xmpp"],
            directory=self.tree,
            log=self._log,
            environment=own | self.environment | {f"STANZAQ_{name}": value for name, value in self._settings.items()},
        )


class Player(Server):
    """A publisher or a worker."""

    _ready_seconds = 10.0

    def __init__(self, directory: Path, part: str, name: str, options: dict[str, str]) -> None:
        """Choose its part; `directory` is where it writes what it sees."""
        super().__init__(directory, part)
        words = (word for key, value in options.items() for word in (f"--{key}", value))
        self._command = [sys.executable, "-m", "tests.faults.player", part, "--name", name, *words]
        self.name = name

    def _launch(self) -> Process:
        log = self.directory / f"{self.name}.log"
        return Process(
            self._command, directory=self.directory, log=log, environment={**os.environ, "PYTHONPATH": str(ROOT)}
        )

    def _ready(self) -> bool:
        # The load begins when all of it is there, which the flow of items shows.
        return True

    @property
    def log(self) -> str:
        """What it complained of."""
        path = self.directory / f"{self.name}.log"
        return path.read_text() if path.exists() else ""

    def unfinished(self) -> list[str]:
        """Give its name as long as it runs; it must end in order."""
        code = self.process._child.poll()
        assert code in {None, 0}, self.log
        return [self.name] if code is None else []


class Kind(Enum):
    """What Redis is in a house."""

    ONE = "one server"
    CLUSTER = "a cluster"
    SENTINELS = "a master that sentinels watch"


@dataclass
class House:
    """The servers; of one Redis, two of the three frontends reach it through a network that can be disturbed."""

    kind: Kind
    ejabberd: Ejabberd
    store: RedisServer | RedisCluster | RedisSentinels
    lossy: LossyNetwork | None
    frontends: tuple[Frontend, ...]
    ruined: bool = False
    """A test has failed in the middle of whatever it was doing to it."""

    @classmethod
    @contextmanager
    def build(cls, kind: Kind) -> Iterator[Self]:
        """Start a Redis that loses nothing, or several that lose what is not replicated, an XMPP server and three frontends."""
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
                    # As docs/operations.md has it for who cannot lose a second: sentinels may replace a master that lives.
                    store = stack.enter_context(RedisSentinels(options={"min-replicas-to-write": "1"}))
            ejabberd = stack.enter_context(Ejabberd())
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
        """Start anew what has ended because it was struck; what ends by itself is a failure."""
        for frontend in self.frontends:
            if not frontend.alive:
                assert frontend.doomed, f"a frontend ended by itself:\n{frontend.log}"
                frontend.revive()

    def ailing(self) -> list[str]:
        """Name the frontends that are not ready."""
        return [
            f"frontend {number}: {status}"
            for number, frontend in enumerate(self.frontends)
            if (status := frontend.get("/readyz")) != 200
        ]

    def command(self, *words: str) -> Any:  # noqa: ANN401  (what Redis answers)
        """Give the one server a command behind everybody's back."""
        return _asked(self.redis, *words)

    def masters(self) -> list[RedisServer]:
        """Give all that take writes now."""
        match self.store:
            case RedisServer():
                return [self.store]
            case RedisCluster():
                return list(self.store.masters())
            case RedisSentinels():
                return [self.store.master()]

    def kept(self, node: str) -> dict[str, str]:
        """Give what Redis keeps of a node and of what is named after it, but for what was and is no more."""
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
