"""`stanzaq bench amqp`: 100-byte messages through one frontend into a log and out of it, next to plain XADD and XRANGE.

The ceiling is the same Redis in the same run with the same payloads: XADD in pipelines, XRANGE in pages.
"""

import secrets
import time
from contextlib import ExitStack
from threading import Thread
from typing import Final

import redis
from rich.console import Console

from bench.doors.amqp_wire import Client
from bench.report import Row, show
from broker.model.commands import Declare
from broker.model.names import Jid
from broker.model.results import Declared
from broker.settings import CommandSettings
from frontends import compose
from frontends.amqp.messages.message import DATA
from frontends.amqp.protocol import types
from frontends.tools.demo.frontend import Frontend
from frontends.tools.servers.process import ServerError, free_port
from frontends.tools.servers.redis import RedisServer

_TARGET: Final = 8_000.0
_BODY: Final = b"x" * 100
_WHO: Final = Jid("bench@localhost")
_AHEAD: Final = 1_000
_PAGE: Final = 500
_PIPELINE: Final = 200


def main(*, as_json: bool, quick: bool) -> int:
    """Run the benchmark; 1 when a target is missed. Raises ServerError when its servers cannot start."""
    count = 2_000 if quick else 60_000
    with ExitStack() as stack:
        status = stack.enter_context(Console(stderr=True).status("starting Redis and a frontend"))
        server = stack.enter_context(RedisServer(options={"appendonly": "yes"}))
        port = free_port()
        settings = {"REDIS_URL": server.url, "AMQP_BIND": f"127.0.0.1:{port}", "AMQP_ANONYMOUS": _WHO}
        stack.enter_context(Frontend(settings, "amqp"))
        status.update("measuring XADD and XRANGE")
        xadd, xrange = _ceiling(server.url, count)
        status.update("measuring AMQP")
        log = _log(server.url, count)
        send = _measure_sending(port, log, count)
        receive = _measure_receiving(port, log, count)
        both = _measure_both(port, _log(server.url, count), count)
    rows = [
        _row("amqp_send", send, xadd),
        _row("amqp_receive", receive, xrange),
        _row("amqp_send_and_receive", both, xadd),
    ]
    return show(rows, as_json=as_json)


def _row(name: str, rate: float, ceiling: float) -> Row:
    ratio = round(rate / ceiling, 3)
    return Row(name, "messages/s", round(rate, 1), round(ceiling, 1), ratio, f">= {_TARGET:.0f}/s", rate >= _TARGET)


def _log(url: str, count: int) -> str:
    name = f"log-{secrets.token_hex(4)}"
    fields = {"{urn:xmpp:pubsub:queueing:0}enabled": ("0",), "stanzaq#retention_items": (str(count * 2),)}
    settings = CommandSettings(redis_url=url)
    made = compose.command(settings, _WHO, lambda core: core.ask(Declare(name, _WHO, fields)))
    if not isinstance(made, Declared):
        msg = f"the log cannot be made: {made}"
        raise ServerError(msg)
    return name


def _ceiling(url: str, count: int) -> tuple[float, float]:
    """Measure Redis alone: entries added a second, entries read a second."""
    client = redis.Redis.from_url(url)
    began = time.monotonic()
    for _ in range(0, count, _PIPELINE):
        with client.pipeline(transaction=False) as pipeline:
            for _each in range(_PIPELINE):
                pipeline.xadd("ceiling", {"by": _WHO, "body": _BODY})
            pipeline.execute()
    added = count / (time.monotonic() - began)
    began, after, found = time.monotonic(), "-", 0
    while page := client.xrange("ceiling", min=after, count=_PAGE):
        found += len(page)
        last = page[-1][0]
        after = f"({last.decode() if isinstance(last, bytes) else last}"
    read = found / (time.monotonic() - began)
    client.close()
    return added, read


def _measure_sending(port: int, log: str, count: int) -> float:
    """Send within the frontend's credit until all messages are settled; returns messages a second."""
    client = Client(port, log, sends=True)
    message = types.section(DATA, types.binary(_BODY))
    began, sent = time.monotonic(), 0
    while client.settled < count:
        some = min(client.credit, _AHEAD, count - sent)
        if some > 0:
            client.send(message, some)
            sent += some
        else:
            client.hear()
    client.close()
    return count / (time.monotonic() - began)


def _measure_receiving(port: int, log: str, count: int) -> float:
    """Receive from the beginning of the log; returns messages a second."""
    client = Client(port, log, sends=False)
    began, granted = time.monotonic(), 0
    while client.received < count:
        if granted - client.received < _AHEAD:
            granted = client.received + 2 * _AHEAD
            client.grant(2 * _AHEAD)
        client.hear()
    client.close()
    return count / (time.monotonic() - began)


def _measure_both(port: int, log: str, count: int) -> float:
    """Send and receive at once; returns the messages a second that go all the way."""
    began = time.monotonic()
    sending = Thread(target=_measure_sending, args=(port, log, count))
    sending.start()
    _measure_receiving(port, log, count)
    sending.join()
    return count / (time.monotonic() - began)
