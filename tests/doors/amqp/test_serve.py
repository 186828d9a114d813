"""An AMQP frontend as a process: settings, TLS and certificates, the loss of Redis, and an orderly stop."""

import json
import os
import signal
import ssl
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest
from proton import ConnectionException, Message, SSLDomain, symbol
from proton.utils import BlockingConnection, ConnectionClosed, LinkDetached, SendException

from bench.doors.amqp_wire import Client
from frontends.amqp.constants import DELAY
from frontends.amqp.messages.message import DATA
from frontends.amqp.protocol import types
from frontends.tools.servers.process import ServerError
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.certificates import Authority
from tests.doors.amqp.conftest import NewLog, made
from tests.doors.amqp.served import (
    AmqpFrontend,
    annotations,
    bodies,
    connected,
    consumer,
    producer,
    send,
)
from tests.doors.frontend import ALICE, BOB, HASH, PASSWORD
from tests.forks import Forks
from tests.waiting import PATIENCE_SECONDS


def test_goes_in_order(redis: RedisServer, forks: Forks, new_log: NewLog) -> None:
    """SIGTERM tells all clients by a condition to go elsewhere, and ends the process; accepted messages are there."""
    log = new_log()
    with forks.suspended(), AmqpFrontend(redis.url) as frontend:
        connection = frontend.connect()
        send(producer(connection, log), "a")
        os.kill(frontend.process.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
            connection.wait(lambda: False, timeout=PATIENCE_SECONDS)
        assert frontend.process._child.wait(PATIENCE_SECONDS) == 0
    with AmqpFrontend(redis.url) as frontend, connected(frontend) as again:
        assert bodies(consumer(again, log, annotations(offset=symbol("@earliest"))), 1) == ["a"]


def test_refusals_are_logged(redis: RedisServer, new_log: NewLog) -> None:
    """X2: one line for each, as at the other doors: a link that is refused, and a message."""
    log = new_log()
    with AmqpFrontend(redis.url) as frontend, connected(frontend) as connection:
        with pytest.raises(LinkDetached):
            producer(connection, "nowhere")
        with pytest.raises(SendException):
            producer(connection, log).send(Message(body=b"secret", inferred=True, annotations={symbol(DELAY): 1_000}))
        lines = [json.loads(line) for line in frontend.log.splitlines() if '"refused"' in line]
        assert "secret" not in frontend.log
    words = ("event", "level", "problem", "subscriber", "node")
    assert [tuple(line.get(word, "") for word in words) for line in lines] == [
        ("refused", "info", "node-not-found", ALICE, "nowhere"),
        ("refused", "info", "unsupported", ALICE, log),
    ]
    assert all(line["detail"] for line in lines)


def test_address_in_use(redis: RedisServer) -> None:
    """An address in use is named; so is an unusable one."""
    with (
        AmqpFrontend(redis.url) as first,
        pytest.raises(ServerError, match="AMQP cannot be served"),
        AmqpFrontend(redis.url, AMQP_BIND=f"127.0.0.1:{first.port}"),
    ):
        pass
    with pytest.raises(ServerError, match="Nobody may connect"), AmqpFrontend(redis.url, AMQP_PASSWORDS=""):
        pass


def test_tls(redis: RedisServer, new_log: NewLog, tmp_path: Path) -> None:
    """EXTERNAL accepts a certificate of its authority, PLAIN works over TLS; without TLS nobody is served."""
    authority = Authority(tmp_path / "authority")
    certificate, key = authority.sign("server")
    mine, my_key = authority.sign(BOB)
    files = {"AMQP_CERTIFICATE": str(certificate), "AMQP_KEY": str(key), "AMQP_CLIENT_CA": str(authority.certificate)}
    log = new_log(pubsub__publish_model="publishers")
    with AmqpFrontend(redis.url, **files) as frontend:
        url = f"amqps://127.0.0.1:{frontend.port}"
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_trusted_ca_db(str(authority.certificate))
        domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
        plain = BlockingConnection(
            url, timeout=20, ssl_domain=domain, user=ALICE, password=PASSWORD, allowed_mechs="PLAIN"
        )
        send(producer(plain, log), "from its owner")
        domain = SSLDomain(SSLDomain.MODE_CLIENT)
        domain.set_credentials(str(mine), str(my_key), None)
        domain.set_peer_authentication(SSLDomain.ANONYMOUS_PEER)
        external = BlockingConnection(url, timeout=20, ssl_domain=domain, allowed_mechs="EXTERNAL")
        assert bodies(consumer(external, log, annotations(offset=symbol("@earliest"))), 1) == ["from its owner"]
        with pytest.raises(SendException):
            send(producer(external, log), "from bob, who may not")
        line = frontend.raw()
        line.sendall(b"AMQP\x00\x01\x00\x00" * 100)
        with suppress(ConnectionResetError):
            assert not line.recv(100).startswith(b"AMQP")
        line.close()


def _shown(frontend: AmqpFrontend) -> str:
    """Return the certificate that a new connection gets."""
    return ssl.get_server_certificate(("127.0.0.1", frontend.port), timeout=PATIENCE_SECONDS).strip()


def test_files_that_change(redis: RedisServer, new_log: NewLog, tmp_path: Path) -> None:
    """New connections get a renewed certificate, and are judged by renewed authorities; open ones stay, but for removed users."""
    old, new = Authority(tmp_path / "old"), Authority(tmp_path / "new")
    pairs = [each.sign("server") for each in (old, new)]
    clients = [each.sign(BOB) for each in (old, new)]
    certificate, key, ca, passwords = (tmp_path / name for name in ("tls.crt", "tls.key", "ca.crt", "passwords"))

    def put(number: int, lines: str) -> None:
        for target, source in zip(
            (certificate, key, ca), (*pairs[number], (old, new)[number].certificate), strict=True
        ):
            target.write_text(source.read_text())
        passwords.write_text(lines)

    put(0, f"{ALICE}:{HASH}\n{BOB}:{HASH}\n")
    files = {"AMQP_CERTIFICATE": str(certificate), "AMQP_KEY": str(key), "AMQP_CLIENT_CA": str(ca)}
    with AmqpFrontend(redis.url, **files).with_passwords(passwords) as frontend:
        url, mine = f"amqps://127.0.0.1:{frontend.port}", new_log()

        def connect(
            authority: Authority, jid: str = ALICE, pair: tuple[Path, Path] | None = None
        ) -> BlockingConnection:
            domain = SSLDomain(SSLDomain.MODE_CLIENT)
            if pair:
                domain.set_credentials(str(pair[0]), str(pair[1]), None)
            domain.set_trusted_ca_db(str(authority.certificate))
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER)
            if pair:
                return BlockingConnection(url, timeout=20, ssl_domain=domain, allowed_mechs="EXTERNAL")
            return BlockingConnection(
                url, timeout=20, ssl_domain=domain, user=jid, password=PASSWORD, allowed_mechs="PLAIN"
            )

        alice, bob = (connect(old, each) for each in (ALICE, BOB))
        connect(old, pair=clients[0]).close()
        sends = producer(alice, mine)
        put(1, f"{ALICE}:{HASH}\n")
        frontend.look()
        with pytest.raises(ConnectionClosed, match="amqp:unauthorized-access"):
            bob.wait(lambda: False, timeout=PATIENCE_SECONDS)
        send(sends, "from an open connection")
        assert _shown(frontend) == pairs[1][0].read_text().strip()
        connect(new).close()
        connect(new, pair=clients[1]).close()
        with pytest.raises(ConnectionException):
            connect(new, pair=clients[0])
        key.write_text(pairs[0][1].read_text())
        frontend.look()
        (refused,) = [each for each in map(json.loads, frontend.log.splitlines()) if each["level"] == "error"]
        assert "STANZAQ_AMQP_CERTIFICATE" in refused["reason"] and str(certificate) in refused["reason"]
        assert _shown(frontend) == pairs[1][0].read_text().strip()
        send(sends, "still")


def test_waits_for_redis() -> None:
    """A producer of small messages far ahead of a hanging Redis waits; the core refuses none of them for lack of room."""
    count, size = 45_000, 100
    with (
        RedisServer(binary=valkey_binary()) as redis,
        AmqpFrontend(redis.url, REDIS_TIMEOUT="20", AMQP_ANONYMOUS=ALICE) as frontend,
    ):
        client = Client(frontend.port, made(redis.url), sends=True)
        message, sent = types.section(DATA, types.binary(b"x" * size)), 0
        redis.process.pause()
        resume = threading.Timer(1.0, redis.process.resume)
        while client.settled < count:
            some = min(client.credit, 1_000, count - sent)
            if some > 0:
                client.send(message, some)
                sent += some
            else:
                if resume.ident is None:
                    assert client.credit == 0 and sent < count, "the door does not let it wait"
                    resume.start()
                client.hear()
        client.close()
        resume.join()


def test_redis_comes_later() -> None:
    """A frontend that starts before Redis refuses links at once, as when it loses one, and ends in order; later it serves."""
    redis = RedisServer(binary=valkey_binary())
    with AmqpFrontend(redis.url).waiting() as frontend, connected(frontend) as alice:
        alice.timeout = 5
        with pytest.raises(LinkDetached, match="amqp:internal-error"):
            producer(alice, "log")
        with redis:
            deadline = time.monotonic() + PATIENCE_SECONDS
            while frontend.probe("/readyz")[0] != 200:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            send(producer(alice, made(redis.url)), "after")
    with AmqpFrontend(redis.url).waiting() as frontend, connected(frontend) as alice:
        os.kill(frontend.process.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
            alice.wait(lambda: False, timeout=PATIENCE_SECONDS)
        assert frontend.process._child.wait(PATIENCE_SECONDS) == 0


def test_loses_redis() -> None:
    """Without Redis it lives, is not ready, and rejects messages; when Redis is back, links continue by themselves."""
    with (
        RedisServer(binary=valkey_binary()) as redis,
        AmqpFrontend(redis.url, REDIS_TIMEOUT="0.5") as frontend,
        connected(frontend) as alice,
    ):
        log = made(redis.url)
        sender, receiver = producer(alice, log), consumer(alice, log)
        send(sender, "before")
        assert bodies(receiver, 1) == ["before"]
        redis.process.pause()
        with pytest.raises(SendException):
            send(sender, "meanwhile")
        assert frontend.probe("/livez")[0] == 200
        redis.process.resume()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while frontend.probe("/readyz")[0] != 200:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        send(sender, "after")
        assert bodies(receiver, 1)[0] in {"meanwhile", "after"}
