"""The core's Prometheus metrics. Must not know how they are served."""

import heapq
import math
import time
from bisect import bisect_left
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, KeysView, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import asdict
from itertools import accumulate
from typing import TYPE_CHECKING, Final, NamedTuple, TypeVar

from prometheus_client import CollectorRegistry, Gauge
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.registry import Collector

from broker.model.results import Counted
from broker.redis_core.info import read_info

if TYPE_CHECKING:
    from broker.model.nodes.quotas import QuotaStatus

_Family = TypeVar("_Family", GaugeMetricFamily, CounterMetricFamily)

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
    "cancelled": "Items cancelled or deleted by publishers and owners",
    "scheduled": "Items published by schedules",
    "schedule_missed": "Times of schedules at which nothing was published, because nobody could",
    "schedule_skipped": "Times of schedules at which nothing was published, because the last item was still there",
    "quota_refused": "Publishes refused because of a quota",
}
_GAUGES = {
    "waiting": "Items that wait",
    "eligible": "Items that wait and may go out now",
    "delayed": "Items that are delayed",
    "dependent": "Items that wait until others have ended",
    "in_flight": "Items locked by subscribers",
    "dying": "Dead letters on their way to their node",
    "oldest_seconds": "Age of the oldest item that may go out, in seconds; earlier versions: stanzaq_node_oldest_ms, in ms",
    "subscribers": "Subscriptions",
    "credit_free": "Items that subscribers could take now",
    "kept": "Log entries that are kept when their work is done",
    "kept_bytes": "Bytes of payload in these",
}

_UNOWNED: Final = "Partitions without an owner, of a queue of several"

_TOTALS = {
    "published": "Items published to a node since it was made, over all frontends",
    "finished": "Items of a node that were acknowledged since it was made, over all frontends",
    "removed": "Items of a node that went in any other way since it was made, over all frontends",
    "attempts": "Deliveries of a node that have ended since it was made, over all frontends",
}

MOST_NODES: Final = 1_000
"""Nodes with metrics of their own: each has a dozen series at each frontend, and three dozen more at those that served it."""

MOST_REFUSED: Final = 5_000
"""Pairs of a reason and a node with a series of their own."""

REASONS: Final = {
    "acknowledged": "acknowledged",
    "cancelled": "cancelled",
    "released": "released",
    "expired": "lock_expired",
    "bounced": "bounced",
    "dead_lettered": "dead_lettered",
    "perished": "item_expired",
}
"""The counters of ends, each with the reason that the ends by node have for it."""

_MEMORY = {
    "used": "Memory that the fullest Redis master has used",
    "limit": "Its maxmemory; 0 is no limit",
}


BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, math.inf)
"""The upper bounds, in seconds, of the buckets of commands by how long they took."""

WAITS: Final = (0.01, 0.1, 0.5, 1, 5, 10, 30, 60, 300, 1_800, 10_800, math.inf)
"""The upper bounds, in seconds, of the buckets of waits and services; the chart's objectives are among them."""


class Served:
    """What this frontend did for the items of one node."""

    __slots__ = ("ended", "served", "services", "waited", "waits")

    def __init__(self) -> None:
        """Start all at zero."""
        self.ended = dict.fromkeys(REASONS, 0)
        self.waits, self.waited = [0] * len(WAITS), 0.0
        self.services, self.served = [0] * len(WAITS), 0.0

    def wait(self, seconds: float) -> None:
        """Count a wait."""
        self.waits[bisect_left(WAITS, seconds)] += 1
        self.waited += seconds


class ServedNodes(dict[str, Served]):
    """The first `MOST_NODES` nodes that this frontend served; all others share the entry `""`."""

    def __init__(self) -> None:
        """Know no node."""
        super().__init__({"": Served()})

    def __missing__(self, node: str) -> Served:
        """Begin with a node, if there is room."""
        if len(self) > MOST_NODES:
            return self[""]
        served = self[node] = Served()
        return served


class Tally(Collector):
    """What the core counts for each command, as plain numbers: the library's own counters take a lock for each."""

    def __init__(self, door: str) -> None:
        """Start all at zero."""
        self.door = door
        self.counts = dict.fromkeys(_COUNTERS, 0)
        self.commands = defaultdict[type, list[int]](lambda: [0] * len(BUCKETS))
        self.seconds = defaultdict[type, float](float)
        self.nodes = ServedNodes()
        self.refused = Counter[tuple[str, str]]()

    def collect(self) -> Iterator[Metric]:
        """Yield the counters and the histogram of commands."""
        for name, text in _COUNTERS.items():
            yield CounterMetricFamily(f"stanzaq_{name}", text, self.counts[name])
        family = HistogramMetricFamily(
            "stanzaq_command_seconds",
            "From the submission of a command to its outcome, by `command`",
            labels=["command"],
        )
        bounds = _names(BUCKETS)
        # The loop may add one meanwhile: it is called from another thread.
        for kind, numbers in self.commands.copy().items():
            family.add_metric([kind.__name__], _buckets(bounds, numbers), self.seconds[kind])
        yield family
        refused = CounterMetricFamily(
            "stanzaq_refused",
            "Commands refused, by `reason` (as in the log), `door` and `node` (empty: of no node, or of one without metrics)",
            labels=["reason", "door", "node"],
        )
        for (reason, node), count in self.refused.copy().items():
            refused.add_metric([reason, self.door, node], count)
        yield refused
        yield from _of_nodes(self.nodes.copy())


def _of_nodes(nodes: dict[str, Served]) -> Iterator[Metric]:
    ended = CounterMetricFamily(
        "stanzaq_ended", "Ends of deliveries and of items, by `node` and `reason`", labels=["node", "reason"]
    )
    wait = HistogramMetricFamily(
        "stanzaq_wait_seconds",
        "From when an item is ready (its publish, or the end of its delay or of its parents) to its first delivery, by `node`",
        labels=["node"],
    )
    service = HistogramMetricFamily(
        "stanzaq_service_seconds",
        "From an item's lock to its acknowledgement, of those that name the lock's token, by `node`",
        labels=["node"],
    )
    if len(nodes) <= MOST_NODES:
        del nodes[""]
    bounds = _names(WAITS)
    for node, served in nodes.items():
        for counter, reason in REASONS.items():
            ended.add_metric([node, reason], served.ended[counter])
        wait.add_metric([node], _buckets(bounds, served.waits), served.waited)
        service.add_metric([node], _buckets(bounds, served.services), served.served)
    return iter((ended, wait, service))


def _names(bounds: Sequence[float]) -> list[str]:
    return ["+Inf" if math.isinf(most) else str(float(most)) for most in bounds]


def _buckets(names: Iterable[str], numbers: Iterable[int]) -> list[tuple[str, int]]:
    """Return the cumulative buckets of a histogram."""
    return list(zip(names, accumulate(numbers), strict=True))


class Measured(NamedTuple):
    """What a node held at a time of this process's steady clock, and whether its partitions need owners."""

    counted: Counted
    at: float
    needs_owners: bool


class NodeGauges(Collector):
    """What each node held when it was measured last, and its totals; at most `MOST_NODES`, those that hold most."""

    def __init__(self) -> None:
        """Know no node."""
        self.measured: dict[str, Measured] = {}

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of nodes; it is called from another thread than the one that measures."""
        measured, now = self.measured.copy(), time.monotonic()
        yield GaugeMetricFamily("stanzaq_nodes", "Nodes; those that hold least have no metrics", len(measured))
        listed = (
            heapq.nlargest(MOST_NODES, measured.items(), key=_sort_key)
            if len(measured) > MOST_NODES
            else measured.items()
        )
        shown = [
            (node, {**asdict(each.counted), "oldest_seconds": _oldest(each.counted, now - each.at)})
            for node, each in listed
        ]
        for name, text in _GAUGES.items():
            yield _family(GaugeMetricFamily, name, text, shown)
        owned = [(node, values) for node, values in shown if measured[node].needs_owners]
        yield _family(GaugeMetricFamily, "partitions_unowned", _UNOWNED, owned)
        for name, text in _TOTALS.items():
            yield _family(CounterMetricFamily, name, text, shown)


class QuotaGauges(Collector):
    """What is used of the quotas of single subjects when it was measured last."""

    def __init__(self) -> None:
        """Know no quota."""
        self.measured: tuple[QuotaStatus, ...] = ()

    def collect(self) -> Iterator[Metric]:
        """Yield limits and what is used of them; it is called from another thread than the one that measures."""
        limits = GaugeMetricFamily("stanzaq_quota_limit", "The limits of a quota", labels=["subject", "resource"])
        used = GaugeMetricFamily("stanzaq_quota_used", "What is used of a quota", labels=["subject", "resource"])
        for each in self.measured:
            for name, amount in each.used.items():
                used.add_metric([each.subject, name], amount)
            for name, most in each.quota.limits_by_name().items():
                if name in each.used:
                    limits.add_metric([each.subject, name], float(most))
        yield limits
        yield used


def _family(kind: type[_Family], name: str, text: str, shown: list[tuple[str, dict[str, float]]]) -> _Family:
    family = kind(f"stanzaq_node_{name}", text, labels=["node"])
    for node, values in shown:
        family.add_metric([node], values[name])
    return family


def _sort_key(measured: tuple[str, Measured]) -> tuple[int, int, str]:
    node, (counted, _, _) = measured
    return (counted.waiting + counted.in_flight, counted.published, node)


def _oldest(counted: Counted, seconds: float) -> float:
    """Return the age of the oldest waiting item, which grows in a node that has not been measured again."""
    return counted.oldest_ms / 1000 + seconds if counted.eligible or counted.oldest_ms else 0


class Metrics:
    """Counters of this process and gauges of every node, in a registry of their own."""

    def __init__(self, door: str = "xmpp") -> None:
        """Start all at zero, for a frontend at a door."""
        # It asks each collector for its names, and refuses one that another has.
        self.registry = CollectorRegistry(auto_describe=True)
        self.tally, self._nodes = Tally(door), NodeGauges()
        self.registry.register(self.tally)
        self.registry.register(self._nodes)
        self.quotas = QuotaGauges()
        self.registry.register(self.quotas)
        self._memory = {
            name: Gauge(f"stanzaq_redis_{name}_bytes", text, registry=self.registry) for name, text in _MEMORY.items()
        }

    def gauge(self, node: str, counted: Counted, *, needs_owners: bool = False) -> None:
        """Set the gauges of a node."""
        self._nodes.measured[node] = Measured(counted, time.monotonic(), needs_owners)

    def refuse(self, reason: str, node: str) -> None:
        """Count a refused command; a node is named if it has been measured: other names are those that clients think of."""
        refused = self.tally.refused
        known = node in self._nodes.measured and (len(refused) < MOST_REFUSED or (reason, node) in refused)
        refused[reason, node if known else ""] += 1

    def keep(self, nodes: AbstractSet[str]) -> None:
        """Drop the metrics of all other nodes, which are deleted."""
        for kept in (self._nodes.measured, self.tally.nodes):
            for gone in kept.keys() - nodes - {""}:
                del kept[gone]
        for key in [key for key in self.tally.refused if key[1] not in nodes and key[1]]:
            del self.tally.refused[key]

    @property
    def measured(self) -> KeysView[str]:
        """The nodes that have been measured."""
        return self._nodes.measured.keys()

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
