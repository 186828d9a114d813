"""The servers that faults strike, and the programs that load them. Knows processes; must not know which fault comes.

Servers are started by the main thread, with which they end.
"""

import os
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Self

import redis

from frontends.servers.ejabberd import Ejabberd
from frontends.servers.process import Process, Server
from frontends.servers.redis import RedisServer, redis_binary
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


@dataclass
class House:
    """The servers; two of the three frontends reach Redis through a network that can be disturbed."""

    ejabberd: Ejabberd
    redis: RedisServer
    network: LossyNetwork
    frontends: tuple[Frontend, ...]
    ruined: bool = False
    """A test has failed in the middle of whatever it was doing to it."""

    @classmethod
    @contextmanager
    def build(cls) -> Iterator[Self]:
        """Start a Redis that loses nothing, an XMPP server and three frontends."""
        with ExitStack() as stack:
            options = {"appendonly": "yes", "appendfsync": "always"}
            redis = stack.enter_context(RedisServer(binary=redis_binary(), options=options))
            lossy = stack.enter_context(network(redis.url.removeprefix("unix://")))
            ejabberd = stack.enter_context(Ejabberd())
            frontends = [
                stack.enter_context(Frontend(url, ejabberd.component_port, ejabberd.secret))
                for url in (lossy.url, lossy.url, redis.url)
            ]
            yield cls(ejabberd, redis, lossy, tuple(frontends))

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
        """Give Redis a command behind everybody's back."""
        with redis.Redis.from_url(self.redis.url, decode_responses=True) as client:
            return client.execute_command(*words)

    def kept(self, node: str) -> dict[str, str]:
        """Give what Redis keeps of a node and of what is named after it, but for what was and is no more."""
        reading = {"hash": ("HGETALL",), "zset": ("ZRANGE", "0", "-1", "WITHSCORES"), "set": ("SMEMBERS",)}
        found = {}
        for key in sorted(self.command("KEYS", f"*{node}*")):
            kind = self.command("TYPE", key)
            if kind in reading and not key.endswith((":answers", ":seen")):
                word, *rest = reading[kind]
                found[key] = str(self.command(word, key, *rest))
        return found
