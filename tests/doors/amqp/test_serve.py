"""An AMQP frontend as a process: settings, TLS and certificates, the loss of Redis, and an end in order."""

import os
import signal

import pytest
from proton import symbol
from proton.utils import ConnectionClosed

from frontends.servers.process import ServerError
from frontends.servers.redis import RedisServer
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import (
    PATIENCE_SECONDS,
    AmqpFrontend,
    annotations,
    bodies,
    connected,
    consumer,
    producer,
    send,
)


def test_goes_in_order(redis: RedisServer, new_log: NewLog) -> None:
    """SIGTERM sends everybody elsewhere by name, and ends the process; what was accepted is there."""
    log = new_log()
    with AmqpFrontend(redis.url) as frontend:
        connection = frontend.connect()
        send(producer(connection, log), "a")
        os.kill(frontend.process.pid, signal.SIGTERM)
        with pytest.raises(ConnectionClosed, match="amqp:connection:forced"):
            connection.wait(lambda: False, timeout=5)
        assert frontend.process._child.wait(PATIENCE_SECONDS) == 0
    with AmqpFrontend(redis.url) as frontend, connected(frontend) as again:
        assert bodies(consumer(again, log, annotations(offset=symbol("@earliest"))), 1) == ["a"]


def test_address_in_use(redis: RedisServer) -> None:
    """An address that another has is named; so is what cannot be used."""
    with (
        AmqpFrontend(redis.url) as first, pytest.raises(ServerError, match="AMQP cannot be served"),
        AmqpFrontend(redis.url, AMQP_BIND=f"127.0.0.1:{first.port}"),
    ):
        pass
    with pytest.raises(ServerError, match="Nobody may connect"), AmqpFrontend(redis.url, AMQP_PASSWORDS=""):
        pass
