"""The core's Prometheus metrics. Must not know how they are served."""

import math
import time
from collections.abc import Collection, Iterable, Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.model.results import Counted
from broker.redis_core.info import read_info

_COUNTERS = {
    "published": "Items accepted from publishers",
    "duplicates": "Publishes ignored as repeats",
    "delivered": "Deliveries handed out",
    "acknowledged": "Items acknowledged",
    "released": "Items given back",
    "expired": "Locks that expired",
    "perished": "Items that expired before a delivery",
    "bounced": "Deliveries that came back",
    "resent": "Deliveries taken over from a dead frontend or a lost reply",
    "dead_lettered": "Items sent to the dead letters",
    "cancelled": "Items cancelled by publishers and owners",
    "scheduled": "Items published by schedules",
    "schedule_missed": "Times of schedules at which nothing was published, because nobody could",
    "schedule_skipped": "Times of schedules at which nothing was published, because the last item was still there",
    "refused": "Commands refused",
}
_GAUGES = {
    "waiting": "Items that wait",
    "eligible": "Items that wait and may go out now",
    "delayed": "Items that are delayed",
    "in_flight": "Items locked by subscribers",
    "dying": "Dead letters on their way to their node",
    "oldest_ms": "Age of the oldest waiting item in ms",
    "subscribers": "Subscriptions",
    "credit_free": "Items that subscribers could take now",
    "kept": "Log entries that are kept when their work is done",
    "kept_bytes": "Bytes of payload in these",
}

_MEMORY = {
    "used": "Memory that the fullest Redis master has used",
    "limit": "Its maxmemory; 0 is no limit",
}


BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, math.inf)
"""The upper bounds, in seconds, of the buckets of commands by how long they took."""


class Tally(Collector):
    """What the core counts for each command, as plain numbers: the library's own counters take a lock for each."""

    def __init__(self) -> None:
        """Start all at zero."""
        self.counts = dict.fromkeys(_COUNTERS, 0)
        self.commands = [0] * len(BUCKETS)
        self.seconds = 0.0

    def collect(self) -> Iterator[Metric]:
        """Yield the counters and the histogram of commands."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"stanzaq_{name}", text, self.counts[name])
        buckets = [
            ("+Inf" if math.isinf(most) else str(float(most)), number)
            for most, number in zip(BUCKETS, accumulate(self.commands), strict=True)
        ]
        yield HistogramMetricFamily(
            "stanzaq_command_seconds",
            "From the submission of a command to its outcome",
            buckets=buckets,
            sum_value=self.seconds,
        )


class Metrics:
    """Counters of this process and gauges of every node, in a registry of their own."""

    def __init__(self) -> None:
        """Start all at zero."""
        self.registry = CollectorRegistry()
        self.tally = Tally()
        self.registry.register(self.tally)
        self._gauges = {
            name: Gauge(f"stanzaq_node_{name}", text, ["node"], registry=self.registry)
            for name, text in _GAUGES.items()
        }
        self._measured: dict[str, tuple[Counted, float]] = {}
        self._memory = {
            name: Gauge(f"stanzaq_redis_{name}_bytes", text, registry=self.registry) for name, text in _MEMORY.items()
        }

    def gauge(self, node: str, counted: Counted) -> None:
        """Set the gauges of a node."""
        self._measured[node] = counted, time.monotonic()
        for name, gauge in self._gauges.items():
            gauge.labels(node).set(getattr(counted, name))

    def keep(self, nodes: Collection[str]) -> None:
        """Drop the gauges of all other nodes, which are deleted."""
        for gone in self._measured.keys() - set(nodes):
            for gauge in self._gauges.values():
                gauge.remove(gone)
            del self._measured[gone]

    @property
    def measured(self) -> Collection[str]:
        """The nodes that have gauges."""
        return self._measured.keys()

    def age(self) -> None:
        """Raise the age of waiting items in nodes that have not been measured again."""
        now = time.monotonic()
        for node, (counted, at) in self._measured.items():
            if counted.eligible or counted.oldest_ms:
                self._gauges["oldest_ms"].labels(node).set(counted.oldest_ms + int((now - at) * 1000))

    def memory(self, reports: Iterable[bytes]) -> None:
        """Set the memory gauges from each master's INFO memory."""
        fullest = max(
            map(_memory, reports), key=lambda used_limit: (used_limit[0] / (used_limit[1] or math.inf), used_limit)
        )
        for name, amount in zip(_MEMORY, fullest, strict=True):
            self._memory[name].set(amount)


def _memory(report: bytes) -> tuple[int, int]:
    """Return used memory and limit."""
    said = read_info(report)
    # Some servers that speak Redis's protocol report only one of them.
    return int(said.get("used_memory", 0)), int(said.get("maxmemory", 0))
