"""Traces each item as spans of OpenTelemetry, linked through its headers: send, receive, settle.

Works between a door and the core, on the interfaces of both. Needs the extra `otel`. Must not know a door, Redis, or payloads:
no attribute of a span contains any payload.
"""

import asyncio
import time
from collections import OrderedDict, deque
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from threading import Thread
from typing import Final

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import Span, SpanKind, Status, StatusCode, Tracer, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator
from opentelemetry.util.types import AttributeValue

from broker import codec
from broker.model.commands import Browse, Command, PrepareMessage, Publish, Redeem, Retract, Unlock
from broker.model.core import Core, Outlet, Reply
from broker.model.items.items import Delivery, LockEnded, Notice
from broker.model.items.qos import Stage
from broker.model.names import Jid, bare_jid
from broker.model.problems import CorruptRecord
from broker.model.results import Browsed, Published, Refused, Reserved, Result
from broker.tasks import fulfil

REMEMBERED: Final = 10_000
"""The most deliveries whose spans are kept here, about 400 bytes each; for others the item is browsed."""

LOOKED_UP: Final = 50
"""The most items to browse at once."""

Known = tuple[str, str, int]
"""A delivery: node, item and token."""

Settling = Retract | Unlock

_Told = Mapping[str, AttributeValue]

_NOWHERE: Final = Context()
_W3C: Final = TraceContextTextMapPropagator()


@dataclass(frozen=True, slots=True)
class _Asked:
    """A pending command and its start (ns since 1970)."""

    command: Command
    reply: Reply
    since: int


class Traces:
    """Creates the spans of one frontend, and keeps those of its deliveries."""

    def __init__(self, tracer: Tracer) -> None:
        """Create spans by `tracer`."""
        self._tracer = tracer
        self._handed: OrderedDict[Known, Context] = OrderedDict()
        self._core: Core | None = None

    def outlet(self, door: Outlet) -> Outlet:
        """Wrap a door."""
        return _TracedOutlet(door, self)

    def core(self, core: Core) -> Core:
        """Wrap the core."""
        self._core = core
        return _TracedCore(core, self)

    def start_span(  # noqa: PLR0913, PLR0917  (what a span is)
        self,
        operation: str,
        kind: SpanKind,
        node: str,
        parent: Context,
        attributes: _Told,
        since: int | None = None,
    ) -> Span:
        """Start a span (OpenTelemetry's conventions for messaging)."""
        told = {
            "messaging.system": "stanzaq",
            "messaging.operation.name": operation,
            "messaging.operation.type": operation,
            "messaging.destination.name": node,
        }
        return self._tracer.start_span(
            f"{operation} {node}", parent, kind, attributes={**told, **attributes}, start_time=since
        )

    def start_publish(self, publish: Publish | Redeem) -> tuple[bytes, Span]:
        """Start the span of a publish; returns also its envelope, with the span in its headers."""
        attributes: _Told = {
            "messaging.message.body.size": publish.body_bytes,
            "stanzaq.publisher": bare_jid(publish.sender),
        }
        span = self.start_span("send", SpanKind.PRODUCER, publish.node, read_span(publish.envelope), attributes)
        return _add_span(publish.envelope, span), span

    def start_delivery(self, delivery: Delivery) -> Span:
        """Start the span of a delivery, and keep it."""
        partition = delivery.partition
        attributes: _Told = {
            "messaging.message.id": delivery.item_id,
            "messaging.destination.partition.id": str(partition.number),
            "stanzaq.subscriber": bare_jid(delivery.subscriber),
            "stanzaq.attempt": delivery.attempt,
        }
        span = self.start_span("receive", SpanKind.CONSUMER, partition.node, read_span(delivery.envelope), attributes)
        known = partition.node, delivery.item_id, delivery.token
        self._handed[known] = set_span_in_context(span, _NOWHERE)
        self._handed.move_to_end(known)
        if len(self._handed) > REMEMBERED:
            self._handed.popitem(last=False)
        return span

    def delivery_span(self, node: str, item_id: str, token: int | None) -> Context | None:
        """Return the span of a delivery made here; None without a token, which identifies it."""
        return None if token is None else self._handed.get((node, item_id, token))

    def start_expiry(self, notice: LockEnded) -> None:
        """Create the span of a lock that its holder did not end; browse the item if another frontend delivered it."""
        node, item, who, since = notice.node, notice.item_id, notice.subscriber, time.time_ns()
        known = self.delivery_span(node, item, notice.token)

        def looked(outcome: Result) -> None:
            self.start_settle(node, item, who, "ended", read_spans(outcome).get(item), since).end()

        if known or self._core is None:
            self.start_settle(node, item, who, "ended", known, since).end()
        else:
            self._core.submit(Browse(node, who, (item,), 1), looked)

    def start_settle(  # noqa: PLR0913, PLR0917  (what a span is)
        self, node: str, item_id: str, who: Jid, outcome: str, parent: Context | None, since: int | None = None
    ) -> Span:
        """Start the span of the end of a lock."""
        told = {"messaging.message.id": item_id, "stanzaq.subscriber": bare_jid(who), "stanzaq.outcome": outcome}
        return self.start_span("settle", SpanKind.CLIENT, node, parent or _NOWHERE, told, since)


class _TracedOutlet:
    """A door, as the core sees it."""

    def __init__(self, door: Outlet, traces: Traces) -> None:
        """Pass everything on to `door`."""
        self._door = door
        self._traces = traces
        self.congested = door.congested
        self.flushed = door.flushed

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Send items; the notice that an assured item may be started is no second delivery."""
        spans = [self._traces.start_delivery(delivery) for delivery in batch if delivery.stage is not Stage.DELIVER]
        self._door.deliver(batch)
        for span in spans:
            span.end()

    def notify(self, notice: Notice) -> None:
        """Send a notice, which may say that a lock has ended."""
        self._door.notify(notice)
        if isinstance(notice, LockEnded):
            self._traces.start_expiry(notice)


class _TracedCore:
    """The core, as a door sees it.

    Another frontend may have delivered an item that a worker ends here: browse it first, while later commands of the same
    sender wait, so that their order is kept.
    """

    def __init__(self, core: Core, traces: Traces) -> None:
        """Pass everything on to `core`."""
        self._core = core
        self._traces = traces
        self._behind: dict[Jid, deque[_Asked]] = {}

    async def ask(self, command: Command) -> Result:
        """Submit a command and wait for its result."""
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        task = self.submit(command, partial(fulfil, future))
        try:
            return await future
        finally:
            if task:
                task.cancel()

    def submit(self, command: Command, reply: Reply) -> asyncio.Task[None] | None:
        """Take a command; see `broker.model.core.Core`."""
        asked = _Asked(command, reply, time.time_ns())
        waiting = self._behind.get(command.sender)
        if waiting is not None:
            waiting.append(asked)
        elif self._unknown(command):
            self._behind[command.sender] = deque([asked])
            self._look(command.sender)
        else:
            return self._pass(asked, {})
        return None

    def _unknown(self, command: Command) -> bool:
        return isinstance(command, Settling) and not self._traces.delivery_span(
            command.node, command.item_id, command.token
        )

    def _look(self, sender: Jid) -> None:
        """Browse the items of waiting commands, of one node and up to a limit; without any, the commands go on."""
        waiting = self._behind[sender]
        node, ready = "", 0
        names: set[str] = set()
        for asked in waiting:
            command = asked.command
            if isinstance(command, Settling) and self._unknown(command):
                if len(names) == LOOKED_UP or node not in {"", command.node}:
                    break
                node = command.node
                names.add(command.item_id)
            ready += 1
        going_on = partial(self._submit_ready, sender, ready)
        if names:
            self._core.submit(Browse(node, sender, tuple(names), LOOKED_UP), going_on)
        else:
            going_on(Browsed((), more=False))

    def _submit_ready(self, sender: Jid, ready: int, outcome: Result) -> None:
        """Submit the first `ready` commands; an item that was not found, or may not be seen, gets a span without a parent."""
        parents = read_spans(outcome)
        waiting = self._behind[sender]
        for _ in range(ready):
            self._pass(waiting.popleft(), parents)
        if waiting:
            self._look(sender)
        else:
            del self._behind[sender]

    def _pass(self, asked: _Asked, parents: Mapping[str, Context]) -> asyncio.Task[None] | None:
        """Pass a command to the core, with a span if it is part of an item's trace."""
        command, reply = asked.command, asked.reply
        match command:
            case PrepareMessage():
                envelope, span = self._traces.start_publish(command.publish)
                command = replace(command, publish=replace(command.publish, envelope=envelope))
            case Publish() | Redeem():
                envelope, span = self._traces.start_publish(command)
                command = replace(command, envelope=envelope)
            case Retract() | Unlock():
                span = self._start_settle(command, parents, asked.since)
            case _:
                return self._core.submit(command, reply)

        def ended(result: Result) -> None:
            _end(span, result)
            reply(result)

        return self._core.submit(command, ended)

    def _start_settle(self, command: Settling, parents: Mapping[str, Context], since: int) -> Span:
        outcome = "acknowledged"
        if isinstance(command, Unlock):
            outcome = "dead-lettered" if command.dead_letter else "released"
        node, item = command.node, command.item_id
        parent = self._traces.delivery_span(node, item, command.token) or parents.get(item)
        return self._traces.start_settle(node, item, command.sender, outcome, parent, since)


def read_span(envelope: bytes) -> Context:
    """Return the span in an item's headers; none if there is none or the envelope is corrupt."""
    try:
        return _W3C.extract(codec.unpack(envelope).headers, _NOWHERE)
    except CorruptRecord:
        return _NOWHERE


def read_spans(outcome: Result) -> Mapping[str, Context]:
    """Return the spans in the headers of browsed items, by id."""
    return {each.item_id: read_span(each.envelope) for each in outcome.items} if isinstance(outcome, Browsed) else {}


def _add_span(envelope: bytes, span: Span) -> bytes:
    """Add a span to the headers of an item."""
    opened = codec.unpack(envelope)
    headers = dict(opened.headers)
    _W3C.inject(headers, set_span_in_context(span, _NOWHERE))
    return codec.pack(replace(opened, headers=headers))


def _end(span: Span, result: Result) -> None:
    match result:
        case Refused(problem):
            span.set_attribute("error.type", problem.value)
            span.set_status(Status(StatusCode.ERROR))
        case Published(item_id) | Reserved(item_id):
            span.set_attribute("messaging.message.id", item_id)
    span.end()


@contextmanager
def set_up_export(seconds: float) -> Iterator[Traces]:
    """Set up the export of spans to a collector by OTLP over HTTP, which needs no gRPC; `OTEL_…` variables configure it.

    At the end it waits at most `seconds` for the last export.
    """
    resource = Resource.create()
    if str(resource.attributes[SERVICE_NAME]).startswith("unknown_service"):
        resource = resource.merge(Resource({SERVICE_NAME: "stanzaq"}))
    provider = TracerProvider(resource=resource, shutdown_on_exit=False)
    provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
    try:
        yield Traces(provider.get_tracer("stanzaq"))
    finally:
        # By itself it would wait half a minute for a collector that is gone.
        ending = Thread(target=provider.shutdown, daemon=True)
        ending.start()
        ending.join(seconds)
