"""`make bench-peers`: whole jobs a second of other queues and of stanzaq, on this machine, in the same run.

Each job has 200 bytes, and its handler does nothing. One process publishes, one works (Celery: two). All but RabbitMQ use one
Redis, which writes an append-only file once a second; with `--always` before each answer, as RabbitMQ does. A job counts when
its handler has run.
Whole jobs are measured from the first publish to the last job, and consumption from the first to the last job of a backlog.
Every measurement is repeated, in turns, and the best counts.
"""

import json
import os
import re
import select
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass, field
from functools import partial
from pathlib import Path
from time import perf_counter, sleep
from typing import Final

import redis
from rabbitmq import RabbitMQ
from rich.console import Console
from rich.table import Table

from bench.report import machine
from frontends.tools import dev
from frontends.tools.servers.process import Process, ServerError, free_ports

HERE: Final = Path(__file__).parent
PYTHON: Final = HERE / ".venv" / "bin" / "python"
JOBS: Final = 5_000
"""The fewest jobs of a measurement."""

SECONDS: Final = 1.5
"""How long a measurement takes at least, by the rate of the warm-up."""

WARM_UP: Final = 500
LOOK_SECONDS: Final = 0.002
"""Between two looks at what programs report: otherwise each report wakes this process, which shares the cores with them."""

REPEATS: Final = 3
PATIENCE_SECONDS: Final = 20.0
_HEADS: Final = ("an answered publish is in", "acknowledgement", "a repeated publish is", "against a late worker")


@dataclass(frozen=True, slots=True)
class Promises:
    """What a queue promises for its figures."""

    stored: str
    """What has happened to an item whose publish is answered."""

    acknowledgement: str
    """What an acknowledgement names, and when an unacknowledged item returns."""

    repeats: str
    """What becomes of a second publish with the same id."""

    late_worker: str
    """What is done about a worker whose item was given to another."""


@dataclass(slots=True)
class Peer:
    """A queue: its programs, and what they find in the environment."""

    name: str
    command: list[str]
    server_seconds: Callable[[], float]
    """Returns the processor time of Redis or the broker."""

    promises: Promises
    environment: dict[str, str] = field(default_factory=dict)
    jobs: float = 0.0
    """Whole jobs per second."""

    consumed: float = 0.0
    """Jobs of a backlog per second."""

    server_us: float = 0.0
    """Processor time of Redis or the broker for a whole job."""


def main() -> int:
    """Measure all and print a table; with `--json` one object."""
    console = Console(stderr=True)
    always = "--always" in sys.argv
    with ExitStack() as stack:
        status = stack.enter_context(console.status("starting servers"))
        *ports, redis_port = free_ports(4)
        service = dev.start(stack, None, ports, redis_port)
        # One Redis for all, with a database for each kind.
        core_url, others_url = (f"redis://127.0.0.1:{redis_port}/{number}" for number in (1, 2))
        _sync(core_url, "always" if always else "everysec")
        stored = "Redis, file synced" if always else "Redis, file synced each second"
        peers = [*_ours(service, core_url, stored), *_over_redis(others_url, stored)]
        try:
            peers += _over_rabbitmq(stack.enter_context(RabbitMQ()))
        except ServerError as fault:
            console.print(f"without RabbitMQ: {fault}", highlight=False, soft_wrap=True)
        for _ in range(REPEATS):
            for peer in peers:
                status.update(f"measuring {peer.name}")
                _measure(peer)
    _show(peers, as_json="--json" in sys.argv)
    return 0


def _ours(service: dev.Service, core_url: str, stored: str) -> Iterator[Peer]:
    promises = Promises(
        stored,
        "by item and token; returns when the lock ends, the worker goes offline, or its frontend dies",
        "ignored, also after completion (an option of the queue)",
        "its acknowledgement is refused; the token grows with each delivery, so the worker's own store can refuse it too",
    )
    busy = partial(_redis_seconds, core_url)
    yield Peer("stanzaq core", [sys.executable, "with_core.py"], busy, promises, {"PEERS_REDIS": core_url})
    over_http = {
        "url": service.http.replace("http://", f"http://{service.jid('admin')}@"),
        "password": service.password,
    }
    busy = partial(_redis_seconds, f"unix://{service.redis}")
    for name, account in (("XMPP", service.account("admin")), ("HTTP", over_http)):
        environment = {"PEERS_ACCOUNT": json.dumps(account), "PEERS_QUEUE": service.queue}
        yield Peer(f"stanzaq over {name}", [sys.executable, "with_stanzaq.py"], busy, promises, environment)


def _over_redis(url: str, stored: str) -> Iterator[Peer]:
    busy, environment = partial(_redis_seconds, url), {"PEERS_REDIS": url}
    bullmq: str = json.loads((HERE / "package.json").read_text())["dependencies"]["bullmq"]
    promises = Promises(
        stored,
        "by job and lock; returns when the lock is found to have ended",
        "ignored while the job is kept",
        "its acknowledgement is refused, by a random token",
    )
    yield Peer(f"BullMQ {bullmq}", ["node", "with_bullmq.mjs"], busy, promises, environment)
    for name, acknowledgement in (
        ("Celery", "by message; returns after a visibility timeout (an hour)"),
        ("Dramatiq", "by message; returns a minute after the worker's last heartbeat"),
        ("streaq", "by stream entry; returns when its worker stops renewing"),
    ):
        version = re.search(rf"^{name.lower()}\b.*==(.+)$", (HERE / "requirements.txt").read_text(), re.MULTILINE)
        assert version is not None, "each is pinned"
        promises = Promises(
            stored, acknowledgement, "ignored while the task is kept" if name == "streaq" else "a second job", "nothing"
        )
        program = f"with_{name.lower()}.py"
        yield Peer(f"{name} {version[1]}", [str(PYTHON), program], busy, promises, environment)


def _over_rabbitmq(server: RabbitMQ) -> Iterator[Peer]:
    for kind, stored in (
        ("quorum", "log of a majority (here: of one), synced"),
        ("classic", "file of one node, synced"),
    ):
        promises = Promises(
            stored,
            "by delivery of a channel; returns when the channel ends, or after 30 minutes",
            "a second message",
            "its channel is closed; no token",
        )
        environment = {"PEERS_AMQP": server.url, "PEERS_QUEUE_TYPE": kind}
        name = f"RabbitMQ {server.version}, {kind}"
        yield Peer(name, [str(PYTHON), "with_rabbitmq.py"], server.process.cpu_seconds, promises, environment)


def _measure(peer: Peer) -> None:
    """Time whole jobs and those of a backlog; the best repetition of each stays."""
    with tempfile.TemporaryDirectory() as directory:
        pipe, log = Path(directory) / "jobs", Path(directory) / "log"
        os.mkfifo(pipe)
        # Opened for both, so that it has always a writer.
        told = os.open(pipe, os.O_RDWR)
        run = _Run(peer, told, {**os.environ, **peer.environment, "PEERS_PIPE": str(pipe)}, log)
        try:
            with run.program("work"):
                warm, _ = run.whole(WARM_UP)
                count = max(JOBS, int(warm * SECONDS))
                rate, server_seconds = run.whole(count)
            consumed = run.consumed(count)
        except TimeoutError:
            sys.exit(f"{peer.name} did nothing for {PATIENCE_SECONDS:.0f} s; it said:\n{log.read_text()[-3_000:]}")
        finally:
            os.close(told)
    peer.consumed = max(peer.consumed, consumed)
    if rate > peer.jobs:
        peer.jobs, peer.server_us = rate, server_seconds / count * 1e6


@dataclass(frozen=True, slots=True)
class _Run:
    """The programs of a measurement, and the pipe through which they report: `b`, `e` and `.` as in `jobs.py`."""

    peer: Peer
    told: int
    environment: dict[str, str]
    log: Path

    @contextmanager
    def program(self, *arguments: str) -> Iterator[None]:
        """Run a program and end it; it also ends with this one."""
        command = [*self.peer.command, *arguments]
        program = Process(command, directory=HERE, log=self.log, environment=self.environment)
        try:
            yield
        finally:
            program.stop()

    def whole(self, count: int) -> tuple[float, float]:
        """Publish jobs and wait until all are done; returns jobs a second and the server's seconds. Raises TimeoutError."""
        with self.program("publish", str(count)):
            # A queue that delivers at least once may still do a job of the warm-up again.
            while self._read(1) != b"b":
                pass
            began, busy = perf_counter(), self.peer.server_seconds()
            done, published = 0, False
            while done < count or not published:
                told = self._read()
                done, published = done + told.count(b"."), published or b"e" in told
            return count / (perf_counter() - began), self.peer.server_seconds() - busy

    def consumed(self, count: int) -> float:
        """Publish jobs, then work; returns jobs a second. Raises TimeoutError."""
        with self.program("publish", str(count)):
            while b"e" not in self._read():
                pass
        with self.program("work"):
            done = self._read().count(b".")
            began, first = perf_counter(), done
            while done < count:
                done += self._read().count(b".")
            return (count - first) / (perf_counter() - began)

    def _read(self, most: int = 65_536) -> bytes:
        if not select.select([self.told], [], [], PATIENCE_SECONDS)[0]:
            raise TimeoutError
        # The begin of a measurement, one byte, is read at once: the time counts from it.
        if most > 1:
            sleep(LOOK_SECONDS)
        return os.read(self.told, most)


def _redis_seconds(url: str) -> float:
    with redis.Redis.from_url(url) as client:
        told = client.info("cpu")
    return float(told["used_cpu_user"] + told["used_cpu_sys"])


def _sync(url: str, when: str) -> None:
    with redis.Redis.from_url(url) as client:
        client.config_set("appendfsync", when)


def _show(peers: list[Peer], *, as_json: bool) -> None:
    if as_json:
        named = [
            {
                "name": peer.name,
                "jobs_per_second": round(peer.jobs),
                "consumed_per_second": round(peer.consumed),
                "server_us": round(peer.server_us),
                **asdict(peer.promises),
            }
            for peer in peers
        ]
        print(json.dumps({"machine": machine(), "rows": named}))
        return
    console = Console()
    figures = Table("queue", "jobs/s", "of a backlog/s", "µs of Redis or the broker a job")
    for peer in peers:
        figures.add_row(peer.name, *(f"{round(figure):,}" for figure in (peer.jobs, peer.consumed, peer.server_us)))
    promised = Table("queue", *_HEADS, show_lines=True)
    for promises in dict.fromkeys(peer.promises for peer in peers):
        names = "\n".join(peer.name for peer in peers if peer.promises == promises)
        promised.add_row(names, *asdict(promises).values())
    console.print(figures, promised)
    core, bullmq = peers[0], next(peer for peer in peers if peer.name.startswith("BullMQ"))
    print(
        f"whole jobs/s of the core / BullMQ's consumption of a backlog: {core.jobs / bullmq.consumed:.2f} (wanted: 1.5)"
    )


if __name__ == "__main__":
    sys.exit(main())
