"""A whole service as child processes. Knows how its parts start, stop and report their state; must not know a stanza."""

import asyncio
import os
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TypeVar

from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.process import Process, Server, free_port
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.admitting import ADMITTING_ENVIRONMENT
from tests.redis_latency import FRONTEND
from tests.waiting import PATIENCE_SECONDS

T = TypeVar("T")

DOMAIN: Final = f"journeys-{os.environ.get('PYTEST_XDIST_WORKER', 'alone')}.localhost"
"""The domain of the service that most journeys share in a worker of pytest; a module with a service of its own has another."""

DURABLE: Final = {"appendonly": "yes", "appendfsync": "always"}
"""Options of a Redis that writes each change to disk at once."""


class Frontend(Server):
    """One `stanzaq serve xmpp`."""

    _ready_seconds = 30.0

    def __init__(self, redis_url: str, xmpp_port: int, secret: str, **settings: str) -> None:
        """Choose what to connect to; `settings` are `STANZAQ_*` without their prefix."""
        super().__init__(None, "frontend")
        self._port = free_port()
        self._settings = {
            "REDIS_URL": redis_url,
            "XMPP_SERVER": f"127.0.0.1:{xmpp_port}",
            "XMPP_DOMAIN": DOMAIN,
            "XMPP_SECRET": secret,
            "METRICS_BIND": f"127.0.0.1:{self._port}",
            "LOG_FORMAT": "json",
            **ADMITTING_ENVIRONMENT,
            **settings,
        }

    @property
    def domain(self) -> str:
        """The domain that it serves."""
        return self._settings["XMPP_DOMAIN"]

    @property
    def log(self) -> str:
        """Return its log so far."""
        return self._log.read_text()

    @property
    def alive(self) -> bool:
        """Return whether the started process still runs."""
        return self._process is not None and self._process._child.poll() is None

    def get(self, path: str) -> int:
        """Return the status of a probe; 0 when nobody answers."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=5) as answer:
                return int(answer.status)
        except urllib.error.HTTPError as error:
            with error:
                return error.code
        except OSError:
            return 0

    def metrics(self) -> str:
        """Return its metrics."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/metrics", timeout=5) as answer:
            return str(answer.read().decode())

    async def ended(self, seconds: float) -> int:
        """Wait until the process ends; return its exit code."""
        child = self.process._child
        deadline = time.monotonic() + seconds
        while child.poll() is None:
            assert time.monotonic() < deadline, f"the frontend runs on:\n{self.log}"
            await asyncio.sleep(0.02)
        return int(child.returncode)

    @property
    def _log(self) -> Path:
        return self.directory / "frontend.log"

    def _launch(self) -> Process:
        own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
        return Process(
            [sys.executable, "-m", FRONTEND, "serve", "xmpp"],
            directory=Path.cwd(),
            log=self._log,
            environment=own | {f"STANZAQ_{name}": value for name, value in self._settings.items()},
        )

    def _ready(self) -> bool:
        return self.get("/readyz") == 200


@dataclass(frozen=True, slots=True)
class Service:
    """All servers of a journey; each stanza of a client goes to one of the frontends at random."""

    ejabberd: Ejabberd
    redis: RedisServer
    frontends: tuple[Frontend, ...]

    @property
    def domain(self) -> str:
        """Its domain."""
        return self.frontends[0].domain

    def faults(self) -> list[str]:
        """Return what is wrong with the frontends; nothing while each is the process that was started, alive and ready."""
        return [
            f"{path}: {status}, alive: {frontend.alive}\n{frontend.log}"
            for frontend in self.frontends
            for path in ("/livez", "/readyz")
            if (status := frontend.get(path)) != 200 or not frontend.alive
        ]

    def revive(self) -> None:
        """Start again the frontends that have ended."""
        for frontend in self.frontends:
            if not frontend.alive:
                frontend.start()


@contextmanager
def serving(
    ejabberd: Ejabberd, domain: str, options: Mapping[str, str] | None = None, /, **settings: str
) -> Iterator[Service]:
    """Run a service of one module's own: two frontends of a domain, and a Redis with these options."""
    with ExitStack() as stack:
        redis = stack.enter_context(RedisServer(binary=redis_binary(), options=options))
        given = {"XMPP_DOMAIN": domain, **settings}
        pair = [
            stack.enter_context(Frontend(redis.url, ejabberd.component_port, ejabberd.secret, **given))
            for _ in range(2)
        ]
        yield Service(ejabberd, redis, tuple(pair))


async def comes_to(ask: Callable[[], Awaitable[T]], wanted: T) -> None:
    """Repeat a question until this is the answer: what another frontend has still to do in Redis overtakes nothing."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while (found := await ask()) != wanted:
        assert time.monotonic() < deadline, found
        await asyncio.sleep(0.02)


async def eventually(holds: Callable[[], bool], what: str) -> None:
    """Wait until a condition holds that no stanza reports."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not holds():
        assert time.monotonic() < deadline, what
        await asyncio.sleep(0.02)
