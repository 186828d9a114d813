"""Metrics of nodes, and of several Redis masters."""

import re
from bisect import bisect_left
from dataclasses import replace
from pathlib import Path

import pytest

import stanzaq.metrics
from broker.model.commands import Publish, Retract
from broker.model.results import Counted
from broker.redis_core import metrics as module
from broker.redis_core.metrics import Metrics


def _counted(waiting: int, oldest_ms: int = 0) -> Counted:
    return Counted(waiting, waiting, 0, 0, 0, oldest_ms, 0, 0, published=7, finished=3, attempts=5)


def test_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 26: of many nodes, those that hold most have metrics; the number of all is told."""
    monkeypatch.setattr(module, "MOST_NODES", 2)
    metrics = Metrics()
    for node, waiting in (("a", 1), ("b", 9), ("c", 5)):
        metrics.gauge(node, _counted(waiting))
    sample = metrics.registry.get_sample_value
    assert [sample("stanzaq_node_waiting", {"node": node}) for node in "abc"] == [None, 9, 5]
    assert sample("stanzaq_nodes") == 3 and metrics.measured == set("abc")
    assert sample("stanzaq_node_published_total", {"node": "b"}) == 7
    metrics.keep({"a"})
    assert sample("stanzaq_nodes") == 1 and sample("stanzaq_node_finished_total", {"node": "a"}) == 3


def test_served_nodes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 26: the nodes that a frontend served first have series of their own, and all others share one."""
    monkeypatch.setattr(module, "MOST_NODES", 2)
    metrics = Metrics()
    sample = metrics.registry.get_sample_value
    metrics.tally.nodes["a"].ended["expired"] += 1
    assert sample("stanzaq_ended_total", {"node": "", "reason": "lock_expired"}) is None
    metrics.tally.nodes["b"].ended["expired"] += 1
    for node in "cda":
        metrics.tally.nodes[node].ended["expired"] += 1
        metrics.tally.nodes[node].wait(2)
    found = {node: sample("stanzaq_ended_total", {"node": node, "reason": "lock_expired"}) for node in ["", *"abcd"]}
    assert found == {"": 2, "a": 2, "b": 1, "c": None, "d": None}
    assert sample("stanzaq_wait_seconds_sum", {"node": ""}) == 4
    assert [sample("stanzaq_wait_seconds_bucket", {"node": "a", "le": most}) for most in ("1.0", "5.0")] == [0, 1]
    # A deleted node makes room for another.
    metrics.keep({"b", "c"})
    metrics.tally.nodes["c"].wait(1)
    assert sample("stanzaq_wait_seconds_count", {"node": "c"}) == 1 and len(metrics.tally.nodes) == 3


def test_commands_by_name() -> None:
    """Each command has a histogram of its own, whose buckets add up."""
    metrics = Metrics()
    for seconds, kind in ((0.002, Publish), (0.3, Publish), (9.0, Retract)):
        metrics.tally.seconds[kind] += seconds
        metrics.tally.commands[kind][bisect_left(module.BUCKETS, seconds)] += 1

    def sample(name: str, command: str, **labels: str) -> float | None:
        return metrics.registry.get_sample_value(f"stanzaq_command_seconds_{name}", {"command": command, **labels})

    assert [sample("bucket", "Publish", le=most) for most in ("0.001", "0.0025", "0.25", "0.5", "+Inf")] == [
        0,
        1,
        1,
        2,
        2,
    ]
    assert (sample("count", "Publish"), sample("sum", "Publish"), sample("count", "Retract")) == (2, 0.302, 1)


def test_waiting_items_age(monkeypatch: pytest.MonkeyPatch) -> None:
    """The age of the oldest item grows while a node is not measured again; where nothing waits, there is none."""
    now = 100.0
    monkeypatch.setattr("time.monotonic", lambda: now)
    metrics = Metrics()
    metrics.gauge("waits", _counted(1, 500))
    metrics.gauge("empty", _counted(0))
    now = 102.0
    sample = metrics.registry.get_sample_value
    assert sample("stanzaq_node_oldest_seconds", {"node": "waits"}) == 2.5
    assert sample("stanzaq_node_oldest_seconds", {"node": "empty"}) == 0


def test_partitions_that_need_owners() -> None:
    """Only a queue of several partitions has the number of those without an owner: of other nodes it would say nothing."""
    metrics = Metrics()
    counted = replace(_counted(1), partitions_unowned=2)
    metrics.gauge("several", counted, needs_owners=True)
    metrics.gauge("owned", _counted(1), needs_owners=True)
    metrics.gauge("one", _counted(1))
    sample = metrics.registry.get_sample_value
    found = [sample("stanzaq_node_partitions_unowned", {"node": node}) for node in ("several", "owned", "one")]
    assert found == [2, 0, None]


def test_metrics_of_workers_are_listed() -> None:
    """docs/library.md names the library's metrics, and no others."""
    page = (Path(__file__).resolve().parents[3] / "docs" / "library.md").read_text()
    families = (stanzaq.metrics._JOBS, stanzaq.metrics._SECONDS, stanzaq.metrics._RUNNING)
    names = {
        f"{each.name}_total" if each.type == "counter" else each.name for one in families for each in one.collect()
    }
    assert set(re.findall(r"stanzaq_worker_\w+", page)) == names


def _report(used: int, limit: int) -> bytes:
    return b"# Memory\r\nused_memory:%d\r\nused_memory_human:some\r\nmaxmemory:%d\r\n" % (used, limit)


def _gauges(*reports: bytes) -> tuple[float | None, float | None]:
    metrics = Metrics()
    metrics.memory(reports)
    sample = metrics.registry.get_sample_value
    return sample("stanzaq_redis_used_bytes"), sample("stanzaq_redis_limit_bytes")


def test_fullest_master() -> None:
    """The reported master is the one nearest to its limit: it is the first to refuse a publish."""
    assert _gauges(_report(500, 10_000), _report(90, 100), _report(700, 1000)) == (90, 100)


def test_no_limits() -> None:
    """Where no master has a limit, it is the one that has used most."""
    assert _gauges(_report(500, 0), _report(700, 0)) == (700, 0)


def test_says_nothing() -> None:
    """A server that reports no memory is no reason to fail."""
    assert _gauges(b"# Memory\r\n") == (0, 0)


def test_a_name_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 26: a metric whose name another one has is refused with one line that names it, and there is none."""
    names = [family.name for family in Metrics().registry.collect()]
    assert len(set(names)) == len(names) > 30
    monkeypatch.setitem(module._COUNTERS, "quota_used", "Another one")
    with pytest.raises(ValueError, match=r"Duplicated timeseries.*stanzaq_quota_used'}?$"):
        Metrics()
