"""Health: each probe is answered by a thread, whatever the loop does."""

import urllib.error
import urllib.request
from collections.abc import Iterator

import pytest
from prometheus_client import CollectorRegistry, Counter

from frontends.health import Health, HealthServer, ask
from frontends.tools.servers.process import free_port

_STALE_SECONDS = 5.0


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        """Begin at zero."""
        self.now = 0.0

    def __call__(self) -> float:
        """Tell the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """Give a clock."""
    return Clock()


@pytest.fixture
def reasons() -> list[str]:
    """Return the list of reasons why the frontend is not ready, empty so far."""
    return []


@pytest.fixture
def health(clock: Clock, reasons: list[str]) -> Health:
    """Return a health with one counter."""
    registry = CollectorRegistry()
    Counter("published", "Items published.", registry=registry).inc(3)
    return Health(lambda: reasons, registry, _STALE_SECONDS, clock)


@pytest.fixture
def port(health: Health) -> Iterator[int]:
    """Return the port of its server."""
    server = HealthServer(health, "127.0.0.1", 0)
    yield server.port
    server.stop()


def _get(port: int, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def test_well(port: int) -> None:
    """A frontend whose loop turns, without reasons against it, is alive and ready."""
    assert _get(port, "/livez") == (200, "ok\n")
    assert _get(port, "/readyz?verbose") == (200, "ok\n")


def test_not_ready(port: int, reasons: list[str]) -> None:
    """A frontend without Redis is alive and not ready, and says why."""
    reasons.append("Redis does not answer")
    assert _get(port, "/livez") == (200, "ok\n")
    assert _get(port, "/readyz") == (503, "Redis does not answer\n")


def test_hung_loop(port: int, clock: Clock, health: Health) -> None:
    """A loop that has not turned in time is reported by both probes, until it turns again."""
    clock.now = _STALE_SECONDS
    assert _get(port, "/livez") == (200, "ok\n")
    clock.now += 0.1
    assert _get(port, "/livez") == (503, "the event loop has not turned for 5.1 s\n")
    assert _get(port, "/readyz")[0] == 503
    health.turn()
    assert _get(port, "/livez") == (200, "ok\n")


def test_metrics(port: int) -> None:
    """The registry is shown in the format of Prometheus."""
    status, body = _get(port, "/metrics")
    assert status == 200
    assert "published_total 3.0" in body


def test_unknown_path(port: int) -> None:
    """Any other path is not found."""
    assert _get(port, "/")[0] == 404


def test_asked_past_proxies(port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A probe of this machine goes through no proxy of the environment."""
    monkeypatch.setenv("http_proxy", f"http://127.0.0.1:{free_port()}")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.setattr(urllib.request, "_opener", None)
    assert ask("127.0.0.1", port) == (True, "ok")


def test_asked(port: int, reasons: list[str]) -> None:
    """A probe reports that a frontend is ready, why it is not, or that nobody listens."""
    assert ask("127.0.0.1", port) == (True, "ok")
    reasons.append("Redis does not answer")
    assert ask("127.0.0.1", port) == (False, "Redis does not answer")
    ready, said = ask("127.0.0.1", free_port())
    assert not ready and "no answer" in said
