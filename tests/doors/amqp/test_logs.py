"""Producers and consumers of a log, on the wire, with a third-party client: each MUST of the draft by its row."""

import time
from typing import Any

import pytest
from proton import Message, Timeout, symbol, timestamp
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from frontends.tools.servers.redis import RedisServer
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import (
    AmqpFrontend,
    With,
    annotations,
    arrived,
    bodies,
    connected,
    consumer,
    marks,
    offered,
    one,
    producer,
    send,
    sql,
    text,
    told,
)
from tests.doors.frontend import BOB


def test_from_now_on(alice: BlockingConnection, new_log: NewLog) -> None:
    """E3, E11, E13, E16: without an offset a receiver gets the events after its attach, with all annotations."""
    log = new_log()
    sender = producer(alice, log)
    send(sender, "before")
    receiver = consumer(alice, log)
    assert told(receiver.link) == {"event-streams-partition": "0"} and told(sender.link) == {}
    began = time.time()
    send(sender, "after")
    message = one(receiver)
    said = marks(message)
    assert text(message) == "after" and said.keys() == {"partition", "offset", "timestamp"}
    assert (said["partition"], type(said["offset"])) == ("0", symbol)
    assert isinstance(said["timestamp"], timestamp) and abs(said["timestamp"] / 1000 - began) < 5


def test_times_to_come(alice: BlockingConnection, new_log: NewLog) -> None:
    """E3, E23, E24, EX9: with a time in the future a link begins from now on, by either filter; a whole condition is checked."""
    log = new_log()
    sender = producer(alice, log)
    send(sender, "before")
    later = int(time.time() * 1000) + 3_600_000
    begun = [
        consumer(alice, log, where)
        for where in (
            annotations(timestamp=timestamp(later)),
            annotations(timestamp=timestamp(later), offset=symbol("@earliest")),
            sql(f"d.event-streams-timestamp > {later}"),
        )
    ]
    strict = consumer(alice, log, sql(f"d.event-streams-timestamp >= {later} AND TRUE"))
    send(sender, "after")
    assert [bodies(each, 1) for each in begun] == [["after"]] * 3
    assert arrived(strict) == 0


def test_filters(alice: BlockingConnection, new_log: NewLog) -> None:
    """E2, E18, E20, E22, E23, EX5, EX6: a link begins at the filter's offset or time, by name and by number; it is echoed."""
    log = new_log()
    sender = producer(alice, log)
    send(sender, "a", "b")
    time.sleep(0.01)
    between = int(time.time() * 1000)
    time.sleep(0.01)
    send(sender, "c")
    found = [one(each) for each in [consumer(alice, log, annotations(offset=symbol("@earliest")))] for _ in range(3)]
    assert [text(each) for each in found] == ["a", "b", "c"]
    offsets = [marks(each)["offset"] for each in found]
    assert offsets == sorted(offsets) and len({len(each) for each in offsets}) == 1
    for wanted, begins in (
        ({"offset": offsets[1]}, "b"),
        ({"timestamp": timestamp(between)}, "c"),
        ({"timestamp": timestamp(between), "offset": offsets[1]}, "c"),
        ({"timestamp": timestamp(0), "offset": offsets[1]}, "b"),
        ({"offset": symbol("@earliest"), "timestamp": timestamp(0)}, "a"),
    ):
        for by_number in (False, True):
            receiver = consumer(alice, log, annotations(by_number=by_number, **wanted), credit=1)
            assert text(one(receiver)) == begins, wanted
            echoed = receiver.link.remote_source.filter
            echoed.rewind()
            assert echoed.next() and echoed.get_dict()
            receiver.close()  # type: ignore[no-untyped-call]
    latest = consumer(alice, log, annotations(offset=symbol("@latest")))
    send(sender, "d")
    assert bodies(latest, 1) == ["d"]


def test_sql_filters(alice: BlockingConnection, new_log: NewLog) -> None:
    """E22, E24, EX2, EX4, EX9: after an offset or from it on, and conditions on each event, by name and by number."""
    log = new_log()
    send(producer(alice, log), "a", "b", "c")
    found = [one(each) for each in [consumer(alice, log, annotations(offset=symbol("@earliest")))] for _ in range(3)]
    offsets = [marks(each)["offset"] for each in found]
    for text_, rest in (
        (f"m.event-streams-offset > '{offsets[0]}'", "bc"),
        (f"d.event-streams-offset >= '{offsets[0]}'", "abc"),
        (f"message_annotations.event-streams-offset = '{offsets[1]}' OR d.event-streams-timestamp < 9", "bc"),
        ("TRUE", "abc"),
        ("m.event-streams-timestamp > 9", "abc"),
    ):
        for by_number in (False, True):
            receiver = consumer(alice, log, sql(text_, by_number=by_number))
            assert bodies(receiver, len(rest)) == list(rest), text_
            receiver.close()  # type: ignore[no-untyped-call]


def test_partitions(alice: BlockingConnection, new_log: NewLog) -> None:
    """E5 to E12, E14, EX1, EX10: a partition is requested by the link or by the message, chosen by a key, and never another."""
    log = new_log(4)
    receivers = [consumer(alice, log, With(partition=symbol(str(number)))) for number in range(4)]
    assert [told(each.link)["event-streams-partition"] for each in receivers] == ["0", "1", "2", "3"]
    bound = producer(alice, log, With(partition=symbol("2")))
    assert told(bound.link) == {"event-streams-partition": "2"}
    send(bound, "by the link")
    send(bound, "by both", partition="2")
    with pytest.raises(SendException):
        send(bound, "by neither", partition="1")
    assert bodies(receivers[2], 2) == ["by the link", "by both"]
    free = producer(alice, log)
    send(free, "by the message", partition="3")
    assert bodies(receivers[3], 1) == ["by the message"]
    for wrong in ("4", "x", "01", "-1"):
        with pytest.raises(SendException):
            send(free, "nowhere", partition=wrong)
    send(free, "k1", "k2", "k3", key="some key")
    found = [each for each in receivers if _waits(each)]
    assert len(found) == 1 and bodies(found[0], 3) == ["k1", "k2", "k3"]
    chosen = consumer(alice, log, name="mine")
    number = told(chosen.link)["event-streams-partition"]
    assert told(consumer(alice, log, With(partition=symbol(number))).link)["event-streams-partition"] == number
    for making in (producer, consumer):
        for wrong in (symbol("4"), symbol("one")):
            with pytest.raises(LinkDetached, match="amqp:not-found"):
                making(alice, log, With(partition=wrong))


def _waits(receiver: BlockingReceiver) -> bool:
    try:
        receiver.connection.wait(lambda: arrived(receiver) > 0, timeout=0.5)
    except Timeout:
        return False
    return True


def test_the_same_message(alice: BlockingConnection, new_log: NewLog) -> None:
    """A message arrives as it was sent, whatever is in it; annotations of the hop before are removed (E13)."""
    log = new_log()
    sender, receiver = producer(alice, log), consumer(alice, log)
    for sent in (
        Message(body=b"\x00\xff", inferred=True, content_type="image/png"),
        Message(body="text", id="m1", correlation_id=7, subject="s", reply_to="r", properties={"a": "b"}),
        Message(body={"a": [1, 2.5, None, True], "b": b"x"}, properties={"n": 3, "s": "t"}, durable=True, priority=7),
        Message(body=[1, "two"], inferred=True, annotations={symbol("x-opt-a"): 1, symbol("event-streams-key"): "k"}),
        Message(body=None, content_type="application/xml", ttl=60),
        Message(body=b"<a xmlns='x'/>", inferred=True, content_type="application/xml"),
    ):
        sent.instructions = {symbol("event-streams-partition"): symbol("0"), symbol("x-hop"): 1}
        sender.send(sent)
        came = one(receiver)
        for name in (
            "id",
            "correlation_id",
            "subject",
            "reply_to",
            "properties",
            "content_type",
            "durable",
            "priority",
        ):
            assert getattr(came, name) == getattr(sent, name), name
        body: Any = came.body
        assert (bytes(body) if isinstance(body, memoryview) else body) == sent.body and came.inferred == sent.inferred
        assert "x-hop" not in marks(came)
        kept = {str(name): value for name, value in (sent.annotations or {}).items()}
        if "event-streams-key" in kept:
            kept["event-streams-group-key"] = kept.pop("event-streams-key")
        assert {str(name): value for name, value in (came.annotations or {}).items()} == kept


def test_credit_and_drain(alice: BlockingConnection, new_log: NewLog) -> None:
    """No more comes than there is credit; drained credit is used or given back at once."""
    log = new_log()
    send(producer(alice, log), *"abcde")
    receiver = consumer(alice, log, annotations(offset=symbol("@earliest")), credit=0)
    receiver.flow(2)
    alice.wait(lambda: arrived(receiver) == 2, timeout=20)
    with pytest.raises(Timeout):
        alice.wait(lambda: arrived(receiver) > 2, timeout=0.3)
    receiver.link.drain(10)
    alice.wait(lambda: arrived(receiver) == 5, timeout=20)
    alice.wait(lambda: not receiver.link.draining(), timeout=20)
    receiver.link.drain_mode = False
    assert bodies(receiver, 5) == list("abcde")
    send(producer(alice, log), "f")
    assert bodies(receiver, 1) == ["f"]


def test_many_frontends(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, new_log: NewLog) -> None:
    """Consumers at one frontend soon get what another has accepted."""
    log = new_log(2)
    with AmqpFrontend(redis.url) as other, connected(other) as there:
        receiver = consumer(there, log, With(partition=symbol("1")))
        time.sleep(0.5)
        began = time.monotonic()
        send(producer(alice, log), "x", partition="1")
        assert bodies(receiver, 1) == ["x"] and time.monotonic() - began < 10


def test_many_events(alice: BlockingConnection, frontend: AmqpFrontend, new_log: NewLog) -> None:
    """Order holds and nothing is lost or repeated over many reads of the log, however long a message."""
    log = new_log()
    sender, count = producer(alice, log), 1_500
    said = [f"{number} {'x' * (number * 7 % 900)}" for number in range(count)]
    for each in said:
        sender.link.send(Message(body=each))
    sender.send(Message(body="x" * 200_000))
    with connected(frontend, BOB) as bob:
        receiver = consumer(bob, log, annotations(offset=symbol("@earliest")), credit=100)
        assert bodies(receiver, count) == said and len(text(one(receiver))) == 200_000


def test_information(alice: BlockingConnection, new_log: NewLog) -> None:
    """E19, EX17: a request to NODE/$info returns the partitions and their extents; null where there is nothing."""
    log = new_log(2)
    send(producer(alice, log), "a", "b", partition="1")
    answers = alice.create_receiver(None, dynamic=True, name="answers")
    asking = producer(alice, f"{log}/$info")
    asking.send(Message(id="q1", reply_to=answers.link.remote_source.address))
    answer = one(answers)
    body: Any = answer.body
    assert answer.correlation_id == "q1" and set(body) == {"partitions"}
    zero, first = body["partitions"]
    assert zero == {symbol("partition"): symbol("0"), symbol("earliest-offset"): None, symbol("latest-offset"): None}
    begin = consumer(alice, log, _both(first["earliest-offset"], "1"))
    assert bodies(begin, 2) == ["a", "b"]
    end = consumer(alice, log, _both(first["latest-offset"], "1"))
    assert bodies(end, 1) == ["b"]
    with pytest.raises(SendException):
        asking.send(Message(id="q2", reply_to="nowhere"))
    with pytest.raises(SendException):
        asking.send(Message(id="q2"))


def _both(offset: str, partition: str) -> list[object]:
    return [annotations(offset=offset), With(partition=symbol(partition))]


def test_capability(alice: BlockingConnection) -> None:
    """EX18: the connection offers its capability."""
    assert "AMQP_EVENT_STREAMS_V1_0" in [str(each) for each in offered(alice)]


def test_gap(alice: BlockingConnection, new_log: NewLog) -> None:
    """EX7: a start in the trimmed part begins with the earliest, and the receiver is told."""
    log = new_log(stanzaq__retention_items="2")
    sender, early = producer(alice, log), consumer(alice, log)
    send(sender, "a")
    offset = marks(one(early))["offset"]
    early.close()  # type: ignore[no-untyped-call]
    send(sender, *"bcde")
    late = consumer(alice, log, annotations(offset=offset))
    assert told(late.link)["event-streams-gap"] is True
    assert bodies(late, 2) == ["d", "e"]
