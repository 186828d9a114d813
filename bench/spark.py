"""`stanzaq bench spark`: reading journals with Spark next to a plain XRANGE loop, its effect on the queue, and a report.

One session on two cores with half a gigabyte. Must not know what a report says.
"""

import asyncio
import os
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC
from pathlib import Path
from typing import Any, Final

import redis
from pyspark.sql import SparkSession
from rich.console import Console

from bench.queue.core import BATCH, WORKERS, Bench
from bench.report import Row, row_at_least, row_at_most, row_without_target, show
from broker import keys
from broker.analytics.facts import measure
from broker.analytics.inputs import of_redis
from broker.analytics.render import files
from broker.analytics.report import Prices, report
from broker.analytics.session import session
from broker.model.names import Partition
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS
from broker.redis_core.redis_client.client import Server
from broker.scaling.costs import read_costs
from broker.scripts.location import lua_directory
from frontends.tools.servers.redis import RedisServer

_SETTINGS: Final = {"spark_driver_memory": "512m"}
_ROWS: Final = 1_000_000
_ITEMS_PER_SECOND: Final = 5_000
_ROWS_PER_SECOND: Final = 50_000
"""The limit of a read beside a busy queue: without it, Spark on two cores takes the time that the queue needs."""
_ROUNDS: Final = 3
_LOOK_SECONDS: Final = 0.02

# Ten thousand records a call: single commands would take longer than everything that is measured.
_FILL: Final = """
for i = tonumber(ARGV[1]) + 1, tonumber(ARGV[1]) + tonumber(ARGV[2]) do
  local at = 1700000000000 + i
  redis.call('XADD', KEYS[1], string.format('%.0f-0', at), 'type', 'acknowledged', 'closed', string.format('%.0f', at), 'lock',
    string.format('f1234567 %d %d 1 4503599627370495 %.0f-0 %.0f 205 21 worker7@localhost/abc 0-%.0f-0', i, i, at - 900,
      at - 500, at - 900), 'reason', '')
end
"""
_FILLED: Final = 10_000


def _fill(client: "redis.Redis", node: str, rows: int) -> list[str]:
    """Write journals of two partitions in the format of the operations."""
    names = [keys.of_partition("journal", Partition(node, "bench", number)) for number in range(2)]
    for name in names:
        for first in range(0, rows // 2, _FILLED):
            client.eval(_FILL, 1, name, first, min(_FILLED, rows // 2 - first))
    return names


def _read(spark: SparkSession, url: str, node: str, **options: str) -> float:
    """Read a node's journals and discard the rows; returns the seconds."""
    frame = spark.read.format("stanzaq").options(url=url, subscribe=node, minPartitions="2", **options).load()
    began = time.perf_counter()
    frame.write.format("noop").mode("overwrite").save()
    return time.perf_counter() - began


def _read_bare(client: "redis.Redis", names: list[str]) -> float:
    """Read the same with XRANGE and hiredis in one loop; returns the seconds."""
    connection: Any = client.connection_pool.get_connection()
    began = time.perf_counter()
    for name in names:
        after, entries = b"-", [b""]
        while entries:
            connection.send_command("XRANGE", name, after, "+", "COUNT", 1000)
            entries = connection.read_response(disable_decoding=True)
            after = b"(" + entries[-1][0] if entries else after
    took = time.perf_counter() - began
    client.connection_pool.release(connection)
    return took


class _Peak:
    """The peak memory of Spark's Python workers."""

    def __init__(self) -> None:
        """Start at zero."""
        self.megabytes = 0.0
        self._stop = threading.Event()

    @contextmanager
    def watch(self) -> Iterator[None]:
        """Sample while the block runs."""
        self.megabytes = 0.0
        self._stop.clear()
        thread = threading.Thread(target=self._watch)
        thread.start()
        try:
            yield
        finally:
            self._stop.set()
            thread.join()

    def _watch(self) -> None:
        while not self._stop.wait(_LOOK_SECONDS):
            self.megabytes = max(self.megabytes, sum(map(_megabytes, _workers())))


def _workers() -> list[Path]:
    """Return the descendants of this process that run pyspark's daemon."""
    parents = {}
    for path in Path("/proc").glob("[0-9]*"):
        # It may have ended meanwhile.
        with suppress(OSError):
            parents[int(path.name)] = int((path / "stat").read_text().rpartition(")")[2].split()[1])
    ours = {os.getpid()}
    while more := {pid for pid, parent in parents.items() if parent in ours} - ours:
        ours |= more
    return [Path("/proc") / str(pid) for pid in ours if _runs(pid)]


def _runs(pid: int) -> bool:
    with suppress(OSError):
        return b"pyspark.daemon" in (Path("/proc") / str(pid) / "cmdline").read_bytes()
    return False


def _megabytes(path: Path) -> float:
    # Proportional: workers are forks of one daemon and share memory with it.
    with suppress(OSError):
        for line in (path / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) / 1024
    return 0.0


def _speed(spark: SparkSession, client: "redis.Redis", url: str, rows: int, rounds: int) -> list[Row]:
    """Read with Spark and without, alternating, and take the better of each; then a tenth of the rows, for the memory."""
    names = _fill(client, "many", rows)
    _fill(client, "few", rows // 10)
    peak = _Peak()
    _read(spark, url, "few")
    with peak.watch():
        _read(spark, url, "few")
    few = peak.megabytes
    ours, bare = [], []
    with peak.watch():
        for _ in range(rounds):
            ours.append(rows / _read(spark, url, "many"))
            bare.append(rows / _read_bare(client, names))
    return [
        row_at_least("spark_rows", "rows/s", max(ours), 100_000, 1.0),
        row_at_least("spark_against_xrange", "rows/s", max(ours), max(bare), 0.3),
        row_at_most("spark_memory", "MB", peak.megabytes, 1.2, few),
    ]


def _report(spark: SparkSession, url: str) -> Row:
    """Make a report of everything, from the first read to the files; returns the seconds."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as directory:
        prices = Prices(read_costs(), HEARTBEAT_SECONDS)
        made = report(measure(of_redis(url, spark=spark), lambda _: None, 2.0), "Redis", 2.0, prices, UTC)
        files.write(made, Path(directory) / "report", ["html", "json"])
    return row_at_most("report", "s", time.perf_counter() - began, 90.0)


class Load:
    """A queue under a steady load, in a thread of its own; notes the time of each call."""

    def __init__(self, url: str) -> None:
        """Prepare."""
        self.seconds: list[float] = []
        self.done = 0
        self._url = url
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))

    @contextmanager
    def run(self) -> Iterator[None]:
        """Work while the block runs."""
        self._thread.start()
        try:
            yield
        finally:
            self._stopping.set()
            self._thread.join()

    async def _run(self) -> None:
        server = Server.connect(self._url, lua_directory(), 60)
        bench = Bench(server, "flow")
        await bench.open(journal_max=10_000_000)
        await bench.fill(2 * BATCH)
        held = await bench.subscribe(WORKERS, BATCH // len(WORKERS))
        began = time.perf_counter()
        while not self._stopping.is_set():
            await asyncio.sleep(began + self.done / _ITEMS_PER_SECOND - time.perf_counter())
            at = time.perf_counter()
            count = len(held)
            held = await bench.acknowledge(held)
            self.seconds.append(time.perf_counter() - at)
            await bench.publish([""] * count)
            self.done += count
        await server.close()


def _flow(spark: SparkSession, url: str, seconds: float) -> list[Row]:
    """Compare the latency of calls while Spark takes snapshots to that without."""
    load = Load(url)
    with load.run():
        time.sleep(seconds)
        # The first read warms up the JVM.
        _read(spark, url, "flow")
        load.seconds.clear()
        began, done = time.perf_counter(), load.done
        time.sleep(seconds)
        without = list(load.seconds)
        load.seconds.clear()
        until = time.perf_counter() + seconds
        while time.perf_counter() < until:
            _read(spark, url, "flow", maxRowsPerSecond=str(_ROWS_PER_SECOND))
        during = list(load.seconds)
        rate = (load.done - done) / (time.perf_counter() - began)
    slow = [statistics.quantiles(seconds, n=20)[18] * 1000 for seconds in (during, without)]
    return [
        row_at_least("flow", "items/s", rate, _ITEMS_PER_SECOND, 0.9),
        row_at_most("flow_latency_p50", "ms", statistics.median(during) * 1000, 1.5, statistics.median(without) * 1000),
        row_without_target("flow_latency_p95", "ms", slow[0], slow[1]),
    ]


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when Redis cannot start."""
    rows = _ROWS // 50 if quick else _ROWS
    console = Console(stderr=True)
    with (
        RedisServer(port=0) as server,
        redis.Redis.from_url(server.url) as client,
        console.status("starting Spark") as status,
        session("local[2]", **_SETTINGS) as spark,
    ):
        status.update("measuring the read")
        found = _speed(spark, client, server.url, rows, 1 if quick else _ROUNDS)
        status.update(f"making a report of {rows * 11 // 10:,} attempts")
        found.append(_report(spark, server.url))
        client.flushall()
        status.update("measuring the read while items flow")
        found += _flow(spark, server.url, 1 if quick else 10)
    return show(found, as_json=as_json)
