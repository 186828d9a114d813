"""Events of Event Hubs on their way in and out."""

from typing import Any

import pytest
from proton import Message, symbol

from broker.model import offsets
from broker.model.names import Jid, Partition
from broker.model.problems import MalformedRequest
from broker.model.results import Event
from frontends.amqp.event_hubs import events, numbers
from frontends.amqp.messages import message as messages
from frontends.amqp.protocol import types

OFFSET = offsets.write_offset(Partition("n", "i", 3), "1700000000000-5")


def encoded(body: Any = b"x", key: str = "", **more: Any) -> bytes:  # noqa: ANN401  (of any type)
    """Write a message as an SDK does."""
    message = Message(body=body, inferred=True, **more)
    if key:
        message.annotations = {**(message.annotations or {}), symbol("x-opt-partition-key"): key}
    return message.encode()


def decoded(raw: bytes) -> Message:
    """Read a message as any client does."""
    message = Message()
    message.decode(raw)
    return message


def batch(*inside: bytes, before: bytes = b"") -> bytes:
    """Write a batch."""
    return before + b"".join(types.section(messages.DATA, types.binary(each)) for each in inside)


def written(raw: bytes) -> Any:  # noqa: ANN401  (proton's body is of any type)
    """Read a producer's message and write it as an event of the log."""
    taken = messages.parse(raw)
    event = Event(OFFSET, 1_700_000_000_000, "item", taken.key, Jid("a@b"), taken.envelope)
    return decoded(events.Writer(3).message(event, gap=True))


def apart(raw: bytes) -> list[bytes]:
    """Split a batch into a producer's messages."""
    key, found = events.batch(raw)
    return [events.to_amqp(each, key) for each in found]


def body(raw: bytes) -> bytes:
    """Return the body that came back."""
    # proton's is a view of what goes with its message.
    found = written(raw)
    return bytes(found.body)


def test_there_and_back() -> None:
    """E13, E16: an event arrives as it was sent, with the service's annotations, which no producer can set."""
    own = {symbol("x-opt-own"): "kept", symbol("x-opt-offset"): "a lie", symbol("x-opt-sequence-number"): 5}
    raw = encoded(b"body", "a key", durable=True, properties={"a": "b", "n": 5}, id="m1", annotations=own)
    found = written(events.to_amqp(raw))
    assert (found.body, found.durable, found.id, found.properties) == (b"body", True, "m1", {"a": "b", "n": 5})
    assert found.annotations == {
        symbol("x-opt-sequence-number"): numbers.number(OFFSET),
        symbol("x-opt-offset"): OFFSET,
        symbol("x-opt-enqueued-time"): 1_700_000_000_000,
        symbol("x-opt-partition-key"): "a key",
        symbol("x-opt-own"): "kept",
    }
    assert not found.instructions
    assert body(events.to_amqp(encoded(b"bare"))) == b"bare"
    assert written(encoded({"a": 1})).body == {"a": 1}


def test_keys() -> None:
    """E14, EX1: the key of a batch is that of its events, else each has its own; to other producers it is the group key."""
    inside = [encoded(b"1", "own"), encoded(b"2"), encoded(b"3", properties={"a": "b"}, id="m")]
    keyed = apart(
        batch(*inside, before=encoded(b"", "of all")[: -len(types.section(messages.DATA, types.binary(b"")))])
    )
    assert [messages.parse(each).key for each in keyed] == ["of all"] * 3
    plain = apart(batch(*inside))
    assert [messages.parse(each).key for each in plain] == ["own", "", ""]
    assert [body(each) for each in keyed] == [b"1", b"2", b"3"]
    assert decoded(keyed[0]).annotations == {symbol("event-streams-group-key"): "of all"}


@pytest.mark.parametrize(
    "wrong",
    [
        b"",
        b"no message",
        encoded({"a": 1}),
        batch(b""),
        batch(encoded(), b"no message"),
        batch(encoded(), encoded()[:-1]),
        batch(*[encoded()] * (events.EVENTS_MOST + 1)),
    ],
    ids=["empty", "none", "value", "nothing", "one", "cut", "many"],
)
def test_bad_batches(wrong: bytes) -> None:
    """Guarantee 7: one invalid event refuses the batch; so do too many."""
    with pytest.raises(MalformedRequest):
        apart(wrong)


@pytest.mark.parametrize("key", [5, b"bytes", ""])
def test_bad_keys(key: Any) -> None:  # noqa: ANN401  (of any type)
    """Part 3 §3.2.3: an invalid key, of an event or of a batch, is not taken for no key."""
    raw = encoded(annotations={symbol("x-opt-partition-key"): key})
    with pytest.raises(MalformedRequest, match="x-opt-partition-key"):
        events.to_amqp(raw)
    with pytest.raises(MalformedRequest, match="x-opt-partition-key"):
        events.batch(raw)
