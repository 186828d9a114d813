"""`make bench-peers`: whole jobs a second of other queues and of stanzaq, on this machine, in the same run.

Each job has 200 bytes, and its handler does nothing. One process publishes, one works (Celery: two), and Redis writes an
append-only file once a second. A job counts when its handler has run. The measurement goes from the first publish to the
last job. Every measurement is repeated, in turns, and the best counts.
"""

import json
import os
import select
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from time import perf_counter
from typing import Final

import redis
from rich.console import Console
from rich.table import Table

from frontends.tools import dev
from frontends.tools.bench.report import machine
from frontends.tools.servers.process import Process, free_ports
from frontends.tools.servers.redis import RedisServer

HERE: Final = Path(__file__).parent
PYTHON: Final = HERE / ".venv" / "bin" / "python"
JOBS: Final = 5_000
WARM_UP: Final = 500
REPEATS: Final = 3
PATIENCE_SECONDS: Final = 20.0


@dataclass(slots=True)
class Peer:
    """A queue: its programs, and what they find in the environment."""

    name: str
    command: list[str]
    redis_url: str
    environment: dict[str, str] = field(default_factory=dict)
    jobs_per_second: float = 0.0
    redis_us: float = 0.0
    """Processor time of Redis for a job."""


def main() -> int:
    """Measure all and print a table; with `--json` one object."""
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting servers"))
        service = dev.start(stack, None, free_ports(3))
        other = stack.enter_context(RedisServer(port=0, options={"appendonly": "yes"}))
        peers = [*_ours(service), *_others(other.url)]
        for _ in range(REPEATS):
            for peer in peers:
                status.update(f"measuring {peer.name}")
                _measure(peer)
    _show(peers, as_json="--json" in sys.argv)
    return 0


def _ours(service: dev.Service) -> Iterator[Peer]:
    url = f"unix://{service.redis}"
    over_http = {
        "url": service.http.replace("http://", f"http://{service.jid('admin')}@"),
        "password": service.password,
    }
    for name, account in (("XMPP", service.account("admin")), ("HTTP", over_http)):
        environment = {"PEERS_ACCOUNT": json.dumps(account), "PEERS_QUEUE": service.queue}
        yield Peer(f"stanzaq over {name}", [sys.executable, "with_stanzaq.py"], url, environment)


def _others(url: str) -> Iterator[Peer]:
    yield Peer("BullMQ", ["node", "with_bullmq.mjs"], url)
    for name in ("Celery", "Dramatiq", "streaq"):
        yield Peer(name, [str(PYTHON), f"with_{name.lower()}.py"], url)


def _measure(peer: Peer) -> None:
    """Time jobs from the first publish to the last handler; the best repetition stays."""
    with tempfile.TemporaryDirectory() as directory:
        pipe, log = Path(directory) / "jobs", Path(directory) / "log"
        os.mkfifo(pipe)
        # Opened for both, so that it has always a writer.
        told = os.open(pipe, os.O_RDWR)
        environment = {**os.environ, **peer.environment, "PEERS_REDIS": peer.redis_url, "PEERS_PIPE": str(pipe)}
        try:
            with _running([*peer.command, "work"], environment, log):
                _published(peer, WARM_UP, told, environment, log)
                seconds, redis_seconds = _published(peer, JOBS, told, environment, log)
        except TimeoutError:
            sys.exit(f"{peer.name} did nothing for {PATIENCE_SECONDS:.0f} s; it said:\n{log.read_text()[-3_000:]}")
        finally:
            os.close(told)
    if JOBS / seconds > peer.jobs_per_second:
        peer.jobs_per_second, peer.redis_us = JOBS / seconds, redis_seconds / JOBS * 1e6


def _published(peer: Peer, count: int, told: int, environment: dict[str, str], log: Path) -> tuple[float, float]:
    """Publish so many jobs; returns the seconds until all were done, and those of Redis's processor time. Raises TimeoutError."""
    with _running([*peer.command, "publish", str(count)], environment, log):
        assert _read(told, 1) == b"b"
        began, busy = perf_counter(), _busy(peer.redis_url)
        done = 0
        while done < count:
            done += len(_read(told, 65_536))
        return perf_counter() - began, _busy(peer.redis_url) - busy


def _read(told: int, most: int) -> bytes:
    if not select.select([told], [], [], PATIENCE_SECONDS)[0]:
        raise TimeoutError
    return os.read(told, most)


def _busy(url: str) -> float:
    with redis.Redis.from_url(url) as client:
        told = client.info("cpu")
    return float(told["used_cpu_user"] + told["used_cpu_sys"])


@contextmanager
def _running(command: list[str], environment: dict[str, str], log: Path) -> Iterator[None]:
    """Run a program and end it; it also ends with this one."""
    program = Process(command, directory=HERE, log=log, environment=environment)
    try:
        yield
    finally:
        program.stop()


def _show(peers: list[Peer], *, as_json: bool) -> None:
    rows = [(peer.name, round(peer.jobs_per_second), round(peer.redis_us)) for peer in peers]
    if as_json:
        named = [dict(zip(("name", "jobs_per_second", "redis_us"), row, strict=True)) for row in rows]
        print(json.dumps({"machine": machine(), "rows": named}))
        return
    table = Table("queue", "jobs/s", "µs of Redis a job")
    for name, *figures in rows:
        table.add_row(name, *(f"{figure:,}" for figure in figures))
    Console().print(table)


if __name__ == "__main__":
    sys.exit(main())
