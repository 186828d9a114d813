"""Traces: the spans of an item, and that they change nothing else."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import pytest
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter

from broker import codec
from broker.model.commands import Browse, Command, PrepareMessage, Publish, Redeem, Retract, Unlock, Unsubscribe
from broker.model.core import Reply
from broker.model.items.items import Delivery, Envelope, Listed, LockEnded, Notice
from broker.model.items.qos import Stage
from broker.model.names import Jid, Partition
from broker.model.positions import Position
from broker.model.problems import Problem
from broker.model.results import Browsed, Done, Published, Refused, Result, Retracted
from frontends import tracing
from frontends.tracing import Traces

ALICE, WORKER = Jid("alice@x/home"), Jid("worker@x/a")
PARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
TRACE: Final = int(PARENT.split("-")[1], 16)


def record(headers: Mapping[str, str] | None = None) -> bytes:
    """Give an envelope with a payload that nobody is to see."""
    return codec.pack(Envelope(b"<secret/>", headers=headers or {}))


def headers(envelope: bytes) -> Mapping[str, str]:
    """Read what an envelope says."""
    return codec.unpack(envelope).headers


class Scene:
    """Traces between a core and a door that record everything, and the ended spans."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.exporter = InMemorySpanExporter()
        provider = TracerProvider(shutdown_on_exit=False)
        provider.add_span_processor(SimpleSpanProcessor(self.exporter))
        self.asked: list[tuple[Command, Reply]] = []
        self.delivered: list[Delivery | Notice] = []
        self.results: list[Result] = []
        traces = Traces(provider.get_tracer("test"))
        self.core, self.outlet = traces.core(self), traces.outlet(self)

    def submit(self, command: Command, reply: Reply) -> None:
        """Take a command as the core does."""
        self.asked.append((command, reply))

    async def ask(self, command: Command) -> Result:
        """Nobody asks the core in this way."""
        raise AssertionError(command)

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Take deliveries as a door does."""
        self.delivered += batch

    def notify(self, notice: Notice) -> None:
        """Take a notice as a door does."""
        self.delivered.append(notice)

    def congested(self) -> bool:
        """Say that it is not."""
        return False

    def flushed(self) -> bool:
        """Say so."""
        return True

    def send(self, *commands: Command) -> None:
        """Ask as a door does."""
        for command in commands:
            self.core.submit(command, self.results.append)

    def answer(self, result: Result) -> Any:  # noqa: ANN401  (the command that it was)
        """Answer the first command that waits in the core."""
        command, reply = self.asked.pop(0)
        reply(result)
        return command

    @property
    def spans(self) -> list[ReadableSpan]:
        """Return the ended spans, and check that none has a payload."""
        found = list(self.exporter.get_finished_spans())
        assert not any("secret" in str(value) for span in found for value in (span.attributes or {}).values())
        return found


@pytest.fixture
def scene() -> Scene:
    """Give one."""
    return Scene()


def delivery(item: str, token: int, envelope: bytes, stage: Stage = Stage.UNACKNOWLEDGED) -> Delivery:
    """Hand an item to the worker."""
    partition = Partition("jobs", "8e71964d", 0)
    return Delivery(partition, "1-0", item, WORKER, token, 1, 20, 0, ALICE, envelope, 1, stage)


def listed(item: str, envelope: bytes) -> Listed:
    """Show an item that is locked."""
    return Listed(Position(1, 0, 0), item, "locked", ALICE, 0, envelope)


def told(span: ReadableSpan) -> dict[str, Any]:
    """Give what a span says."""
    return dict(span.attributes or {})


@pytest.mark.parametrize(
    "command",
    [
        Publish("jobs", ALICE, None, record({"traceparent": PARENT}), 9),
        Redeem("jobs", ALICE, "i1", record({"traceparent": PARENT}), 9),
        PrepareMessage(ALICE, "m1", Publish("jobs", ALICE, None, record({"traceparent": PARENT}), 9), "m1"),
    ],
)
def test_sent(scene: Scene, command: Command) -> None:
    """A publish of any kind is a span below the publisher's own, and the item names that span from then on."""
    scene.send(command)
    asked = scene.answer(Done() if isinstance(command, PrepareMessage) else Published("i1"))
    (span,) = scene.spans
    assert span.name == "send jobs" and span.kind.name == "PRODUCER" and span.context and span.parent
    assert (span.context.trace_id, f"{span.parent.span_id:016x}") == (TRACE, PARENT.split("-")[2])
    held = asked.publish if isinstance(asked, PrepareMessage) else asked
    assert headers(held.envelope) == {"traceparent": f"00-{TRACE:032x}-{span.context.span_id:016x}-01"}
    assert codec.headless(held.envelope) == record()
    assert (
        told(span).items()
        >= {
            "messaging.system": "stanzaq",
            "messaging.operation.type": "send",
            "messaging.destination.name": "jobs",
            "messaging.message.body.size": 9,
            "stanzaq.publisher": "alice@x",
        }.items()
    )
    assert told(span).get("messaging.message.id") == (None if isinstance(command, PrepareMessage) else "i1")


def test_refused(scene: Scene) -> None:
    """A refusal reaches its client unchanged, and its span, of a trace of its own, has the reason."""
    scene.send(Publish("jobs", ALICE, "i1", record(), 9))
    scene.answer(refused := Refused(Problem.NODE_FULL))
    (span,) = scene.spans
    assert scene.results == [refused]
    assert span.parent is None and not span.status.is_ok
    assert told(span)["error.type"] == "node-full"


def test_handed_out_and_settled_here(scene: Scene) -> None:
    """A delivery is a span below the publish, and the end of its lock one below the delivery; nothing is looked up for it."""
    envelope = record({"traceparent": PARENT})
    for number, item in enumerate(("a", "b", "c"), 1):
        scene.outlet.deliver([delivery(item, number, envelope)])
    # The stage deliver of an assured item is no second delivery.
    scene.outlet.deliver([delivery("a", 1, b"", Stage.DELIVER)])
    assert len(scene.delivered) == 4
    scene.send(Retract("jobs", WORKER, "a", 1), Unlock("jobs", WORKER, "b", 2, dead_letter=True))
    scene.answer(Retracted(WORKER))
    scene.answer(Refused(Problem.LOCK_LOST))
    scene.outlet.notify(LockEnded("jobs", WORKER, "c", 3))
    *receives, retract, unlock, ended = scene.spans
    assert [span.name for span in receives] == ["receive jobs"] * 3
    assert {span.context.trace_id for span in scene.spans if span.context} == {TRACE}
    assert [told(span)["stanzaq.attempt"] for span in receives] == [1, 1, 1]
    parents = [span.parent.span_id for span in (retract, unlock, ended) if span.parent]
    assert parents == [span.context.span_id for span in receives if span.context]
    outcomes = [(span.name, told(span)["stanzaq.outcome"]) for span in (retract, unlock, ended)]
    assert outcomes == [("settle jobs", "acknowledged"), ("settle jobs", "dead-lettered"), ("settle jobs", "ended")]
    assert told(unlock)["error.type"] == "lock-lost" and told(retract)["stanzaq.subscriber"] == "worker@x"


def test_settled_elsewhere(scene: Scene) -> None:
    """Items of other frontends are looked up, many at once, before they are gone; a sender's commands keep their order."""
    retracts = [Retract("jobs", WORKER, f"i{number}", 7) for number in range(tracing.LOOKED_UP)]
    scene.send(retracts[0], *retracts[1:], Unsubscribe("jobs", WORKER, WORKER, ""), Retract("other", WORKER, "x"))
    scene.send(Publish("jobs", ALICE, "next", record(), 9))
    assert [type(command) for command, _reply in scene.asked] == [Browse, Publish]
    scene.asked.pop()
    first = scene.answer(Browsed((listed("i0", record({"traceparent": PARENT})),), more=False))
    assert first.item_ids == ("i0",)
    second = scene.asked.pop()
    assert (
        scene.asked == [(retracts[0], scene.asked[0][1])]
        and isinstance(second[0], Browse)
        and set(second[0].item_ids) == {each.item_id for each in retracts[1:]}
    )
    second[1](Refused(Problem.FORBIDDEN))
    third = scene.asked.pop()
    assert isinstance(third[0], Browse) and third[0].node == "other"
    assert [command for command, _reply in scene.asked] == [*retracts, Unsubscribe("jobs", WORKER, WORKER, "")]
    third[1](Browsed((), more=False))
    assert scene.asked[-1][0] == Retract("other", WORKER, "x")
    while scene.asked:
        scene.answer(Retracted(WORKER))
    assert len(scene.results) == len(retracts) + 2
    linked = [span.parent.span_id for span in scene.spans if span.parent]
    assert linked == [int(PARENT.split("-")[2], 16)]
    scene.send(Unsubscribe("jobs", WORKER, WORKER, ""))
    assert len(scene.asked) == 1


def test_ended_elsewhere(scene: Scene) -> None:
    """A lock whose expiry another frontend notices belongs to the item's trace all the same."""
    scene.outlet.notify(LockEnded("jobs", WORKER, "i1", 7))
    assert scene.answer(Browsed((listed("i1", record({"traceparent": PARENT})),), more=False)).item_ids == ("i1",)
    scene.outlet.notify(LockEnded("jobs", WORKER, "i2", 8))
    scene.answer(Refused(Problem.NODE_NOT_FOUND))
    below, alone = scene.spans
    assert below.parent and below.parent.trace_id == TRACE and alone.parent is None
    assert [told(each)["stanzaq.outcome"] for each in scene.spans] == ["ended", "ended"] and len(scene.delivered) == 2


def test_bounded(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bounded number of deliveries is remembered, and an unreadable envelope is delivered all the same."""
    monkeypatch.setattr(tracing, "REMEMBERED", 2)
    for number, envelope in enumerate((record(), record(), b"torn"), 1):
        scene.outlet.deliver([delivery(f"i{number}", number, envelope)])
    scene.send(Retract("jobs", WORKER, "i3", 3), Retract("jobs", WORKER, "i1", 1))
    assert [type(command) for command, _reply in scene.asked] == [Retract, Browse]
    assert len(scene.delivered) == 3


async def test_ask(scene: Scene) -> None:
    """Who waits for an outcome gets it."""
    waiting = asyncio.create_task(scene.core.ask(Publish("jobs", ALICE, None, record(), 9)))
    await asyncio.sleep(0)
    scene.answer(Published("i1"))
    assert await waiting == Published("i1")
    assert [span.name for span in scene.spans] == ["send jobs"]
