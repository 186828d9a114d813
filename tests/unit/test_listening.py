"""Addresses to listen at: each has one meaning at both doors and for metrics."""

import socket
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, closing, contextmanager

import pytest
from prometheus_client import CollectorRegistry
from starlette.applications import Starlette

from broker.address import Address
from broker.model.names import Jid
from frontends.amqp.auth.identity import Identity
from frontends.amqp.auth.shared_keys import Keys
from frontends.amqp.server import AmqpServer
from frontends.health import Health, HealthServer, ask
from frontends.logins.connection_limits import ConnectionLimits
from frontends.logins.failed_logins import FailedLogins
from frontends.logins.passwords import Passwords
from frontends.logins.tokens import Tokens
from frontends.rest.http.server import HttpServer

ALL_IPV4 = "0.0.0.0"  # noqa: S104  (what a setting may ask for)


@contextmanager
def _metrics(host: str) -> Iterator[int]:
    server = HealthServer(Health(list, CollectorRegistry(), 5.0), host, 0)
    try:
        yield server.port
    finally:
        server.stop()


@contextmanager
def _http(host: str) -> Iterator[int]:
    limits = {"slow_seconds": 1, "header_bytes": 1_024, "keep_alive_seconds": 1, "drain_seconds": 1}
    server = HttpServer(Starlette(), host, 0, connection_limits=ConnectionLimits(1), **limits)
    with closing(server._socket):
        yield server.port


@contextmanager
def _amqp(host: str) -> Iterator[int]:
    failed = FailedLogins("amqp")
    identity = Identity(Passwords("", failed), Tokens("", "", "", ""), Jid("a@x"), Keys(""), failed)
    server = AmqpServer(identity, host, 0, context=None, connection_limits=ConnectionLimits(1))
    with closing(server._socket):
        yield server.port


def _answers(host: str, port: int) -> bool:
    try:
        socket.create_connection((host, port), timeout=5).close()
    except OSError:
        return False
    return True


@pytest.mark.parametrize(("host", "four", "six"), [("::", True, True), (ALL_IPV4, True, False), ("::1", False, True)])
@pytest.mark.parametrize("serve", [_metrics, _http, _amqp])
def test_families(serve: Callable[[str], AbstractContextManager[int]], host: str, *, four: bool, six: bool) -> None:
    """`[::]` is every address of both families, `0.0.0.0` those of IPv4, and any other itself."""
    with serve(host) as port:
        assert (_answers("127.0.0.1", port), _answers("::1", port)) == (four, six)


@pytest.mark.parametrize("serve", [_metrics, _http, _amqp])
def test_without_ipv6(serve: Callable[[str], AbstractContextManager[int]], monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the system has no IPv6, `[::]` is every address that it has."""
    monkeypatch.setattr(socket, "has_dualstack_ipv6", lambda: False)
    with serve("::") as port:
        assert (_answers("127.0.0.1", port), _answers("::1", port)) == (True, False)


@pytest.mark.parametrize("host", ["::", ALL_IPV4, "::1"])
def test_asked_at_any(host: str) -> None:
    """`stanzaq health` asks at the address of the setting, whichever it is."""
    with _metrics(host) as port:
        assert ask(host, port) == (True, "ok")


def test_shown() -> None:
    """An address is shown as a setting takes it."""
    assert str(Address("::1", 8080)) == "[::1]:8080" and str(Address("127.0.0.1", 8080)) == "127.0.0.1:8080"
