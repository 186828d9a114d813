"""A service with a load on it that faults can strike. Knows processes and the evidence; must not know which fault comes.

Here is no event loop: whatever a test does to the service, publishers and workers go on in processes of their own, and
servers are started by the main thread, with which they end.
"""

import asyncio
import os
import random
import shutil
import signal
import socket
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Self

from frontends.servers.ejabberd import Ejabberd
from frontends.servers.process import Process, Server
from frontends.servers.redis import RedisServer, redis_binary
from tests.contract.proxy import LossyNetwork
from tests.faults import verdict
from tests.faults.facts import Evidence, Fact, What, now_ms
from tests.faults.network import network
from tests.faults.player import CREDIT, RATE
from tests.journeys import service
from tests.journeys.client import Client

REDIS_TIMEOUT: Final = 1.0
WATCHDOG_SECONDS: Final = 2.0
DRAIN_SECONDS: Final = 3.0
RECOVERY_SECONDS: Final = 8.0
"""By when the service works on after a fault: five seconds for what a dead frontend owed (guarantee 4), and some for a
machine that also has to start it."""

PUBLISHERS: Final = 2
WORKERS: Final = 3
ROOT: Final = Path.cwd()

_POLL_SECONDS: Final = 0.02
_BROWSE_MOST: Final = 500


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
        return (self.directory / f"{self.name}.log").read_text()


@dataclass
class House:
    """The servers; two of the three frontends reach Redis through a network that can be disturbed."""

    ejabberd: Ejabberd
    redis: RedisServer
    network: LossyNetwork
    frontends: tuple[Frontend, ...]

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

    def whole(self) -> bool:
        """Tell whether every frontend is ready."""
        return all(frontend.get("/readyz") == 200 for frontend in self.frontends)

    def say(self, *words: str) -> str:
        """Give Redis a command in a line, and give its answer as it comes."""
        with socket.socket(socket.AF_UNIX) as peer:
            peer.settimeout(service.PATIENCE_SECONDS)
            peer.connect(self.redis.url.removeprefix("unix://"))
            peer.sendall(" ".join(words).encode() + b"\r\n")
            return peer.recv(65_536).decode()


@dataclass
class Stage:
    """One test's queue with its publishers and workers, on a house that all tests share."""

    house: House
    random: random.Random
    lock_seconds: int
    node: str = ""
    evidence: Evidence = field(init=False)
    publishers: list[Player] = field(default_factory=list)
    workers: list[Player] = field(default_factory=list)
    _healed_ms: int = 0

    @contextmanager
    def played(self) -> Iterator[Self]:
        """Make the queue, bring up the load, and let it flow before anything happens."""
        directory = Path(tempfile.mkdtemp(prefix="stanzaq-faults-"))
        self.evidence = Evidence(directory)
        try:
            self.until(self.house.whole, service.PATIENCE_SECONDS, "the service is not whole")
            self.node = asyncio.run(self._made())
            options = {
                "accounts": self.house.ejabberd.anonymous,
                "port": str(self.house.ejabberd.c2s_port),
                "service": service.DOMAIN,
                "node": self.node,
                "lock_seconds": str(self.lock_seconds),
                "seed": str(self.random.random()),
            }
            with ExitStack() as stack:
                self.workers = [Player(directory, "worker", f"w{number}", options) for number in range(WORKERS)]
                self.publishers = [
                    Player(directory, "publisher", f"p{number}", options) for number in range(PUBLISHERS)
                ]
                for player in (*self.workers, *self.publishers):
                    stack.enter_context(player)
                self.heal()
                self.recover()
                yield self
        finally:
            shutil.rmtree(directory)

    # What a fault may use.

    def rest(self, seconds: float) -> None:
        """Let time pass, under the eyes of the supervisor."""
        ends = time.monotonic() + seconds
        while time.monotonic() < ends:
            self.house.supervise()
            time.sleep(_POLL_SECONDS)

    def pause(self, least: float, most: float) -> None:
        """Let a random time pass."""
        self.rest(self.random.uniform(least, most))

    def sever(self) -> None:
        """Note that all connections of workers are about to go."""
        self.evidence.note(Fact(What.SEVERED, now_ms()))

    def sever_worker(self, worker: Player) -> None:
        """Kill a worker; by its last words it is known who it was."""
        at = now_ms()
        worker.kill()
        for who in self.evidence.accounts(worker.name):
            self.evidence.note(Fact(What.SEVERED, at, who))

    def heal(self) -> None:
        """Note that the cause is gone: from now on the service has a few seconds to work on."""
        self._healed_ms = now_ms()

    # The end of every test.

    def recover(self) -> float:
        """Wait until items flow again, half as fast as they are published at the least; gives the seconds that it took."""
        enough = PUBLISHERS * RATE / 2

        def flows() -> bool:
            self.evidence.refresh()
            return self.evidence.acknowledged_since(max(self._healed_ms, now_ms() - 1000)) >= enough

        self.until(flows, RECOVERY_SECONDS, "the queue does not flow again")
        self.until(self.house.whole, RECOVERY_SECONDS, "the service did not become whole again")
        return (now_ms() - self._healed_ms) / 1000

    def settle(self) -> None:
        """Stop the publishers when all is answered, and let the workers finish."""
        for publisher in self.publishers:
            publisher.process._child.send_signal(signal.SIGTERM)
        for publisher in self.publishers:
            code = publisher.process._child.wait(service.PATIENCE_SECONDS)
            assert code == 0, publisher.log
        # With short locks some run out, which takes their time.
        short = self.lock_seconds if self.lock_seconds <= RECOVERY_SECONDS else 0
        self.until(self._empty, 2 * short + RECOVERY_SECONDS, "the queue is not worked off")
        for worker in self.workers:
            assert worker.process._child.poll() is None, worker.log
            worker.kill()

    def judgement(self) -> list[str]:
        """Give everything that the evidence shows against the service."""
        self.evidence.refresh()
        facts = self.evidence.facts
        found = verdict.violations(facts, self.lock_seconds * 1000, CREDIT)
        left, dead = asyncio.run(self._left())
        found += [f"{item} is a dead letter {dead.count(item)} times" for item in set(dead) if dead.count(item) > 1]
        found += [f"{item} is lost" for item in sorted(verdict.missing(facts, [*left, *dead]))]
        return found

    def until(self, holds: Callable[[], bool], seconds: float, what: str) -> None:
        """Wait for something, under the eyes of the supervisor."""
        ends = time.monotonic() + seconds
        while not holds():
            assert time.monotonic() < ends, f"{what}\n{self._story()}"
            self.rest(_POLL_SECONDS)

    def _story(self) -> str:
        """Tell what was seen in each second, and what the processes say."""
        seen = Counter((fact.at_ms // 1000, fact.what.value) for fact in self.evidence.facts)
        lines = [f"{at} {what}: {number}" for (at, what), number in sorted(seen.items())]
        logs = [process.log[-2000:] for process in (*self.house.frontends, *self.workers, *self.publishers)]
        left = f"left: {asyncio.run(self._left())}"
        return "\n".join([f"healed at {self._healed_ms}", *lines, left, *logs])

    def _empty(self) -> bool:
        self.evidence.refresh()
        items = self.evidence.items
        # Whoever was killed after it had asked may have been heard: the queue itself has the last word.
        seen = items(What.ACKNOWLEDGING) | items(What.RELEASING)
        return items(What.PUBLISHED) <= seen and not asyncio.run(self._left())[0]

    async def _made(self) -> str:
        options = {
            "pubsub#access_model": "open",
            "stanzaq#lock_seconds": str(self.lock_seconds),
            # A publish whose answer was lost is repeated, perhaps when its item is done already (X1).
            "stanzaq#dedupe": "ignore",
            # Only poison is to be a dead letter.
            "stanzaq#max_deliveries": "1000",
        }
        async with self._visitor() as client:
            return await client.queue(options)

    async def _left(self) -> tuple[list[str], list[str]]:
        """Name the items that are still in the queue, and those among the dead letters."""
        async with self._visitor() as client:
            return await _browsed(client, self.node), await _browsed(client, f"{self.node}/dead")

    def _visitor(self) -> "_Visitor":
        return _Visitor(self.house.ejabberd)


class _Visitor:
    """A client for a moment."""

    def __init__(self, ejabberd: Ejabberd) -> None:
        self._client = Client(ejabberd.c2s_port, service.DOMAIN, ejabberd.anonymous)

    async def __aenter__(self) -> Client:
        await self._client.open()
        return self._client

    async def __aexit__(self, *_: object) -> None:
        await self._client.close()


async def _browsed(client: Client, node: str) -> list[str]:
    answer = await client.pubsub(f"<items node='{node}' max_items='{_BROWSE_MOST}'/>", "get")
    # Nobody has made the node for dead letters before there is one.
    assert answer.error in {"", "cancel item-not-found"}, answer.error
    jobs = [job.get("name", "") for job in answer.element.iter("{urn:x}job")]
    assert len(jobs) < _BROWSE_MOST
    return jobs
