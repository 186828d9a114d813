"""Traces through whole frontends: the spans at a collector for items that cross both doors and three processes."""

import asyncio
import contextlib
import threading
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any, Final

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from frontends.tools.servers.ejabberd import Ejabberd
from frontends.tools.servers.redis import RedisServer, redis_binary
from tests.doors.frontend import HASH
from tests.doors.rest.served import RestFrontend, client
from tests.journeys.client import Client, Delivery
from tests.journeys.service import Frontend, eventually
from tests.operations import as_user, make_user

DOMAIN: Final = "traces.localhost"
SHIM: Final = "{http://jabber.org/protocol/shim}"
ITEMS: Final = 16
STEPS: Final = ["send", "receive", "settle"]


@dataclass(frozen=True, slots=True)
class Step:
    """A span, by its operation, and the process that made it."""

    operation: str
    span: str
    parent: str
    instance: str
    item: str


class Collector:
    """An OTLP receiver: keeps the spans of each trace."""

    def __init__(self) -> None:
        """Begin with nothing, on a port of its own."""
        traces: dict[str, list[Step]] = defaultdict(list)

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                request = ExportTraceServiceRequest.FromString(self.rfile.read(int(self.headers["Content-Length"])))
                for resource in request.resource_spans:
                    instance = _told(resource.resource.attributes)["service.instance.id"]
                    for span in (span for scope in resource.scope_spans for span in scope.spans):
                        said = _told(span.attributes)
                        operation, item = said["messaging.operation.type"], said.get("messaging.message.id", "")
                        step = Step(operation, span.span_id.hex(), span.parent_span_id.hex(), instance, item)
                        traces[span.trace_id.hex()].append(step)
                self.send_response(200)
                self.end_headers()

            def log_message(self, *_: object) -> None:
                pass

        self.traces = traces
        self.server = HTTPServer(("127.0.0.1", 0), Handler)

    @property
    def url(self) -> str:
        """Its address."""
        return f"http://127.0.0.1:{self.server.server_port}"


def _told(attributes: Any) -> dict[str, str]:  # noqa: ANN401  (protobuf)
    return {each.key: each.value.string_value for each in attributes}


@pytest.fixture
def collector() -> Iterator[Collector]:
    """Provide one that listens."""
    made = Collector()
    with made.server:
        listening = threading.Thread(target=made.server.serve_forever, daemon=True)
        listening.start()
        yield made
        made.server.shutdown()


def _trace(number: int) -> str:
    return f"{number:032x}"


def _parent(number: int) -> str:
    return f"00-{_trace(number)}-00000000000000aa-01"


def _send(rest: RestFrontend, jid: str, node: str, number: int) -> None:
    with client(rest, jid) as http:
        sent = http.post(f"/queues/{node}?guid=i{number}", content=b"x", headers={"traceparent": _parent(number)})
        assert sent.status_code == 200


async def test_one_trace_an_item(ejabberd: Ejabberd, collector: Collector, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: publish, delivery and acknowledgement of an item are one trace by its headers, whichever frontends run them."""
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", collector.url)
    monkeypatch.setenv("OTEL_BSP_SCHEDULE_DELAY", "100")
    with contextlib.ExitStack() as stack:
        redis = stack.enter_context(RedisServer(binary=redis_binary()))
        make_user(redis.url, "stanzaq")
        url = as_user(redis.url, "stanzaq")
        for name in ("a", "b"):
            monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", f"service.instance.id={name}")
            settings = {"XMPP_DOMAIN": DOMAIN, "TRACES": "true"}
            stack.enter_context(Frontend(url, ejabberd.component_port, ejabberd.secret, **settings))
        clients = [Client(ejabberd.c2s_port, DOMAIN, ejabberd.anonymous) for _ in range(2)]
        for each in clients:
            await each.open()
        owner, worker = clients
        try:
            node = await owner.queue()
            monkeypatch.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.instance.id=rest")
            passwords = f"{owner.bare}:{HASH}"
            rest = stack.enter_context(RestFrontend(url, TRACES="true", HTTP_PASSWORDS=passwords))
            assert (await worker.subscribe(node, ITEMS)).error == ""
            for number in range(1, ITEMS):
                inside = f"<item id='i{number}' traceparent='{_parent(number)}'><job xmlns='urn:x'/></item>"
                assert (await owner.pubsub(f"<publish node='{node}'>{inside}</publish>")).error == ""
            await asyncio.to_thread(_send, rest, owner.bare, node, ITEMS)
            for _ in range(ITEMS):
                given = await worker.next(Delivery)
                header = given.message.find(f"{SHIM}headers/{SHIM}header[@name='traceparent']")
                assert header is not None and _trace(int(given.item[1:])) in (header.text or "")
                # Half of them as a worker who knows nothing but XEP-0254.
                token = given.token if int(given.item[1:]) % 2 else None
                assert (await worker.retract(node, given.item, token)).error == ""
            await eventually(lambda: sum(map(len, collector.traces.values())) >= 3 * ITEMS, "spans are missing")
        finally:
            await asyncio.gather(*(each.close() for each in clients))
    assert set(collector.traces) == {_trace(number) for number in range(1, ITEMS + 1)}
    crossed = 0
    for trace, steps in collector.traces.items():
        steps.sort(key=lambda step: STEPS.index(step.operation))
        assert [step.operation for step in steps] == STEPS
        sent, received, settled = steps
        assert {step.item for step in steps} == {f"i{int(trace, 16)}"}
        assert (sent.parent, received.parent) == ("00000000000000aa", sent.span)
        # Below the delivery if the same frontend made it and the token names it, else below the publish.
        assert settled.parent in {received.span, sent.span}
        crossed += received.instance != settled.instance
        assert (sent.instance == "rest") is (int(trace, 16) == ITEMS)
    assert crossed > 0
