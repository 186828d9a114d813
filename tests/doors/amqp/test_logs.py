"""Producers and consumers of a log, on the wire, with a client that others wrote: each MUST of the draft by its row."""

import time

import pytest
from proton import Message, symbol, timestamp
from proton.utils import BlockingConnection, LinkDetached, SendException

from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.served import AmqpFrontend, With, annotations, bodies, connected, marks, one, send, text, told


def test_from_now_on(alice: BlockingConnection, new_log: NewLog) -> None:
    """E3, E11, E13, E16: without an offset a receiver has what comes after its attach, with all annotations."""
    log = new_log()
    sender = alice.create_sender(log)
    send(sender, "before")
    receiver = alice.create_receiver(log, credit=10)
    assert told(receiver.link) == {"event-streams-partition": "0"} and told(sender.link) == {}
    began = time.time()
    send(sender, "after")
    message = one(receiver)
    said = marks(message)
    assert text(message) == "after" and said.keys() == {"partition", "offset", "timestamp"}
    assert (said["partition"], type(said["offset"])) == ("0", symbol)
    assert isinstance(said["timestamp"], timestamp) and abs(said["timestamp"] / 1000 - began) < 5


def test_filters(alice: BlockingConnection, new_log: NewLog) -> None:
    """E2, E22, E23, EX5: the filter's offset or time is where it begins, by name and by number; what applies is echoed."""
    log = new_log()
    send(alice.create_sender(log), "a", "b")
    time.sleep(0.01)
    between = int(time.time() * 1000)
    time.sleep(0.01)
    send(alice.create_sender(log), "c")
    begin = symbol("@earliest")
    first = alice.create_receiver(log, credit=10, options=annotations(offset=begin), name="all")
    found = [one(first) for _ in range(3)]
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
            options = annotations(by_number=by_number, **wanted)
            receiver = alice.create_receiver(log, credit=1, options=options, name=f"{wanted}{by_number}")
            assert text(one(receiver)) == begins, wanted
            filters = receiver.link.remote_source.filter
            filters.rewind()
            assert filters.next() and filters.get_dict()
            receiver.close()
    latest = alice.create_receiver(log, credit=1, options=annotations(offset=symbol("@latest")), name="end")
    send(alice.create_sender(log), "d")
    assert bodies(latest, 1) == ["d"]
