"""Metrics of several Redis masters."""

from broker.redis_core.metrics import Metrics


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
