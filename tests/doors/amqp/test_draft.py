"""Rows of the draft that no other test here covers, each by its number, on the wire."""

import time

import pytest
from proton import Delivery, Link, Message, symbol, timestamp, ulong
from proton.reactor import Filter, LinkOption
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import (
    AmqpFrontend,
    With,
    annotations,
    bodies,
    connected,
    consumer,
    marks,
    one,
    producer,
    send,
    sql,
    text,
    told,
)
from tests.doors.frontend import BOB

EARLIEST = symbol("@earliest")


class Capabilities(LinkOption):
    """Unknown capabilities and properties."""

    def apply(self, link: Link) -> None:
        """Request them."""
        link.source.capabilities.put_object([symbol("x-no-such-capability")])
        link.properties = {symbol("x-no-such-property"): "x"}


def test_e1_state_is_the_links(alice: BlockingConnection, frontend: AmqpFrontend, new_log: NewLog) -> None:
    """E1: the outcome of a delivery at one receiver changes nothing for another, nor in the log."""
    log = new_log()
    send(producer(alice, log), *"abc")
    first = consumer(alice, log, annotations(offset=EARLIEST))
    for outcome in (Delivery.REJECTED, Delivery.RELEASED, Delivery.MODIFIED):
        first.receive(timeout=20)
        first.settle(outcome)
    first.close()  # type: ignore[no-untyped-call]
    with connected(frontend, BOB) as bob:
        again = consumer(alice, log, annotations(offset=EARLIEST))
        other = consumer(bob, log, annotations(offset=EARLIEST))
        assert bodies(again, 3) == bodies(other, 3) == list("abc")


def test_e4_defaults_for_what_is_not_known(alice: BlockingConnection, new_log: NewLog) -> None:
    """E4: unknown capabilities and properties change nothing, and are not answered as if they were granted."""
    log = new_log()
    receiver = consumer(alice, log, [Capabilities(), annotations(offset=EARLIEST)])
    assert told(receiver.link) == {"event-streams-partition": "0"}
    send(producer(alice, log), "a")
    assert bodies(receiver, 1) == ["a"]


def test_e7_e8_no_other_partition(alice: BlockingConnection, new_log: NewLog) -> None:
    """E5, E7, E8: of several partitions under one address a link gets the one that it requests, or none."""
    log = new_log(2)
    for making in (producer, consumer):
        for number in ("0", "1"):
            assert told(making(alice, log, With(partition=symbol(number))).link)["event-streams-partition"] == number
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            making(alice, log, With(partition=symbol("2")))


def test_e11_e26_e27_what_an_attach_is_answered(alice: BlockingConnection, new_log: NewLog) -> None:
    """E11, E26, E27, EX12: partition, group and epoch are returned in the draft's types; 0 is accepted."""
    log = new_log()
    said = told(consumer(alice, log, With(consumer_group="g", epoch=0)).link)
    assert said == {"event-streams-partition": "0", "event-streams-consumer-group": "g", "event-streams-epoch": 0}
    assert [type(said[f"event-streams-{name}"]) for name in ("partition", "consumer-group", "epoch")] == [
        symbol,
        str,
        int,
    ]
    assert told(consumer(alice, log, With(consumer_group="h", epoch=ulong(5))).link)["event-streams-epoch"] == 5


def test_e12_a_message_for_another_partition(alice: BlockingConnection, new_log: NewLog) -> None:
    """E12: a message for another partition is rejected on a link of a partition; elsewhere it goes there, or is rejected."""
    log = new_log(2)
    receivers = [consumer(alice, log, [With(partition=symbol(str(number)))]) for number in (0, 1)]
    bound, free = producer(alice, log, With(partition=symbol("0"))), producer(alice, log)
    for sender, wrong in ((bound, "1"), (free, "2")):
        with pytest.raises(SendException):
            send(sender, "nowhere", partition=wrong)
    send(free, "one", partition="1")
    send(bound, "zero", partition="0")
    assert [bodies(receiver, 1) for receiver in receivers] == [["zero"], ["one"]]


def test_e13_e16_annotations_of_all_deliveries(alice: BlockingConnection, new_log: NewLog) -> None:
    """E13, E16, E18, E21, EX8: each delivery has all three; offsets grow as texts, times are ms and may repeat."""
    log = new_log(2)
    sender, began = producer(alice, log), time.time() * 1000
    for number in range(60):
        sender.link.send(Message(body=str(number), instructions={symbol("event-streams-partition"): symbol("1")}))
    send(sender, "last", partition="1")
    receiver = consumer(alice, log, [With(partition=symbol("1")), annotations(offset=EARLIEST)], credit=100)
    found = [marks(one(receiver)) for _ in range(61)]
    assert all(each.keys() == {"partition", "offset", "timestamp"} and each["partition"] == "1" for each in found)
    offsets = [each["offset"] for each in found]
    assert offsets == sorted(offsets) and len(set(offsets)) == 61
    times = [each["timestamp"] for each in found]
    assert len(set(times)) < 61 and all(abs(each - began) < 20_000 for each in times)
    seconds = consumer(alice, log, [With(partition=symbol("1")), annotations(timestamp=timestamp(int(began / 1000)))])
    assert text(one(seconds)) == "0", "a time in seconds is one long ago"


def test_e14_e15_the_key_is_an_annotation(alice: BlockingConnection, new_log: NewLog) -> None:
    """E14, E15, EX1: the annotation chooses the partition, under either name, and `group-id` does not; both arrive."""
    log = new_log(8)
    sender = producer(alice, log)
    receivers = [
        consumer(alice, log, [With(partition=symbol(str(number))), annotations(offset=EARLIEST)]) for number in range(8)
    ]
    for number in range(16):
        name = symbol("event-streams-group-key" if number % 2 else "event-streams-key")
        sender.send(Message(body=str(number), group_id="g", annotations={name: f"k{number // 2}"}))
    alice.wait(lambda: sum(len(each.fetcher.incoming) for each in receivers if each.fetcher) == 16, timeout=20)
    homes = [[one(each) for _ in range(len(each.fetcher.incoming))] for each in receivers if each.fetcher]
    keys = [{str(value) for each in home for value in (each.annotations or {}).values()} for home in homes]
    assert sum(map(len, keys)) == 8 == len(set().union(*keys)), "a key has one home"
    assert sum(1 for home in homes if home) > 1, "one group-id has several"
    assert {each.group_id for home in homes for each in home} == {"g"}


def test_e20_reserved_offsets(alice: BlockingConnection, new_log: NewLog) -> None:
    """E20, EX5: `@earliest` is before every entry and `@latest` after it, in both filters and in every condition."""
    log = new_log()
    sender = producer(alice, log)
    send(sender, *"ab")
    early: list[Filter] = [annotations(offset=EARLIEST), sql("d.event-streams-offset > '@earliest'")]
    late: list[Filter] = [annotations(offset=symbol("@latest")), sql("d.event-streams-offset >= '@latest'")]
    for condition in ("AND m.x-opt-colour IS NULL", "OR m.x-opt-colour = 'red'"):
        early.append(sql(f"d.event-streams-offset > '@earliest' {condition}"))
        late.append(sql(f"d.event-streams-offset > '@latest' {condition}"))
    begun = [consumer(alice, log, each) for each in (*early, *late)]
    send(sender, "c")
    assert [bodies(each, 3) for each in begun[: len(early)]] == [list("abc")] * len(early)
    assert [bodies(each, 1) for each in begun[len(early) :]] == [["c"]] * len(late)


def test_e22_e24_filters_say_where_to_begin(alice: BlockingConnection, new_log: NewLog) -> None:
    """E22, E24, EX2, EX9: retained events are read from the earliest on; all follow the first that satisfies the filter."""
    log = new_log()
    sender = producer(alice, log)
    for number, size in enumerate((1, 12, 3)):
        said = {symbol("x-opt-size"): size, symbol("event-streams-group-key"): f"k{number}"}
        sender.send(Message(body=str(number), annotations=said))
    for condition, rest in (
        ("m.x-opt-size > 10", "12"),
        ("m.event-streams-group-key = 'k2'", "2"),
        ("m.x-opt-size = 3 OR m.x-opt-size = 12", "12"),
        ("m.x-opt-colour IS NULL AND TRUE", "012"),
    ):
        assert bodies(consumer(alice, log, sql(condition)), len(rest)) == list(rest), condition


def test_ex3_an_offset_is_a_text_in_quotes(alice: BlockingConnection, new_log: NewLog) -> None:
    """E17, EX3: a wrong offset is refused in both filters, so is one without quotes, and nobody reads another's log."""
    log = new_log()
    for wrong in (
        sql("d.event-streams-offset > 'a4c5'"),
        sql("d.event-streams-offset > a4c5"),
        annotations(offset=symbol("a4c5")),
    ):
        with pytest.raises(LinkDetached, match=r"amqp:(invalid-field|not-implemented)"):
            consumer(alice, log, wrong)
