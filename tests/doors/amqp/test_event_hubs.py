"""The Event Hubs profile, by an SDK that nobody here has written: send, receive from a place, resume, steal, refuse."""

import signal
import time
from collections.abc import Iterator
from datetime import timedelta

import pytest
from azure.eventhub import EventData, EventHubConsumerClient, TransportType
from azure.eventhub._pyamqp.utils import generate_sas_token
from azure.eventhub.exceptions import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    EventDataSendError,
    EventHubError,
)
from proton import Message, symbol
from proton.utils import BlockingConnection, LinkDetached

from frontends.servers.redis import RedisServer
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.hubs import BOBS_KEY, KEY, KEYS, Reader, address, reading, send, sending
from tests.doors.amqp.served import AmqpFrontend, annotations, connected, consumer, marks, one, producer, text


@pytest.fixture(scope="module")
def hubs(redis: RedisServer) -> Iterator[AmqpFrontend]:
    """Give a frontend that knows shared keys."""
    with AmqpFrontend(redis.url, AMQP_EVENT_HUBS_KEYS=KEYS) as frontend:
        yield frontend


def test_events(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """EX6, E13, E16: batches, keys and single events come as they were sent, with their places; also over the draft's own links."""
    log = new_log(2)
    with sending(address(hubs, log)) as client:
        found = client.get_eventhub_properties()
        assert (found["eventhub_name"], found["partition_ids"]) == (log, ["0", "1"])
        assert abs(time.time() - found["created_at"].timestamp()) < 60
        empty = client.get_partition_properties("0")
        assert empty["is_empty"] and empty["last_enqueued_offset"] == "-1"
        send(client, *"abc", partition_id="0")
        event = EventData(b"keyed")
        event.properties = {"color": "red", "size": 5}
        event.message_id, event.content_type = "m1", "text/plain"
        event.raw_amqp_message.annotations = {"x-opt-own": "kept", "x-opt-offset": "a lie"}
        batch = client.create_batch(partition_key="the key")
        batch.add(event)
        client.send_batch(batch)
        client.send_event(EventData(b"single"), partition_id="1")
        full = client.get_partition_properties("0")
    with reading(address(hubs, log)) as reader:
        reader.until(lambda it: len(it.events) == 5)
    mine = [each for _, each in reader.events if each.body_as_str() in "abc"]
    assert [each.body_as_str() for each in mine] == list("abc")
    for before, after in zip(mine, mine[1:], strict=False):
        assert before.offset < after.offset and before.sequence_number < after.sequence_number
    assert full["last_enqueued_offset"] >= mine[2].offset and not full["is_empty"]
    assert full["beginning_sequence_number"] == mine[0].sequence_number
    assert abs(mine[0].enqueued_time.timestamp() - time.time()) < 60
    keyed = next(each for _, each in reader.events if each.body_as_str() == "keyed")
    assert keyed.partition_key == b"the key" and (keyed.message_id, keyed.content_type) == ("m1", "text/plain")
    assert keyed.properties == {b"color": b"red", b"size": 5}
    told = keyed.raw_amqp_message.annotations
    assert told[b"x-opt-own"] == b"kept" and keyed.offset != "a lie"
    with connected(hubs) as plain:
        receiver = consumer(plain, log, annotations(offset=symbol("@earliest")))
        assert receiver.link is not None
        place = str(receiver.link.remote_properties[symbol("event-streams-partition")])
        first = next(each for number, each in reader.events if number == place)
        message = one(receiver)
        assert (text(message), marks(message)["offset"]) == (first.body_as_str(), first.offset)


def test_places(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """E22, EX4, EX9: from an offset, a sequence number or a time on, with it or after it, from the end, and on after a reconnect."""
    log = new_log(8)
    with sending(address(hubs, log)) as client, reading(address(hubs, log)) as reader:
        for partition in map(str, range(8)):
            send(client, "a", partition_id=partition)
            send(client, "b", "c", partition_id=partition)
        reader.until(lambda it: len(it.events) == 24)
        second = {number: event for number, event in reader.events if event.body_as_str() == "b"}
        moment = second["4"].enqueued_time
        places = {
            "0": second["0"].offset,
            "1": second["1"].offset,
            "2": second["2"].sequence_number,
            "3": second["3"].sequence_number,
            "4": moment,
            "5": moment - timedelta(days=1),
            "6": "@latest",
            "7": "-1",
        }
        inclusive = {number: number in "13" for number in places}
        with reading(address(hubs, log), starting_position=places, starting_position_inclusive=inclusive) as again:
            expected = {"0": "c", "1": "bc", "2": "c", "3": "bc", "4": "", "5": "abc", "6": "", "7": "abc"}
            again.until(lambda it: len(it.events) >= sum(map(len, expected.values())))
            for partition in expected:
                send(client, "d", partition_id=partition)
            again.until(lambda it: all(it.of(number) == [*more, "d"] for number, more in expected.items()))


def test_resumes(redis: RedisServer, new_log: NewLog) -> None:
    """E19, Guarantee 1: when its frontend goes, an SDK goes on at the next one after what it has had."""
    log = new_log()
    first = AmqpFrontend(redis.url, AMQP_EVENT_HUBS_KEYS=KEYS)
    with first:
        with sending(address(first, log)) as client:
            send(client, *"ab")
        reader = Reader(address(first, log), tries=100)
        reader.until(lambda it: it.bodies == list("ab"))
        first.process._child.send_signal(signal.SIGTERM)
        first.process._child.wait(20)
    with AmqpFrontend(redis.url, AMQP_EVENT_HUBS_KEYS=KEYS, AMQP_BIND=f"127.0.0.1:{first.port}"):
        with sending(address(first, log)) as client:
            send(client, "c")
        reader.until(lambda it: len(it.bodies) > 2)
        reader.close()
    assert reader.bodies == list("abc")


def test_owner_levels(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """EX13, EX14, E28: who comes with as high a level takes over, who comes with less is refused; one without a level gives way."""
    log = new_log()
    with sending(address(hubs, log)) as client, reading(address(hubs, log)) as plain:
        send(client, "a")
        plain.until(lambda it: it.bodies == ["a"])
        with reading(address(hubs, log), owner_level=3) as third:
            third.until(lambda it: it.bodies == ["a"])
            plain.until(lambda it: any("amqp:link:stolen" in error for error in it.errors))
            with reading(address(hubs, log), owner_level=2) as less, reading(address(hubs, log)) as none:
                for refused in (less, none):
                    refused.until(lambda it: any("amqp:link:stolen" in error for error in it.errors))
                    assert not refused.events
            with reading(address(hubs, log), owner_level=2, group="another") as apart:
                apart.until(lambda it: it.bodies == ["a"])
            with reading(address(hubs, log), owner_level=3) as equal:
                equal.until(lambda it: it.bodies == ["a"])
                third.until(lambda it: any("amqp:link:stolen" in error for error in it.errors))
                send(client, "b")
                equal.until(lambda it: it.bodies == ["a", "b"])
        assert (plain.bodies, third.bodies) == (["a"], ["a"])


def test_batches(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """E14, Guarantee 7: a batch is of one partition, refused as a whole, and told from an event that only looks like one."""
    log = new_log(3, pubsub__max_payload_size="1000")
    with sending(address(hubs, log)) as client:
        with pytest.raises(EventDataSendError, match="more than 1000 bytes"):
            send(client, "a", "b" * 1_001, "c")
        encoded = Message(body=b"not an event of a batch", inferred=True).encode()
        client.send_event(EventData([encoded, encoded]))
        send(client, *map(str, range(1_500)))
        send(client, *map(str, range(1_500, 3_000)))
    with reading(address(hubs, log)) as reader:
        reader.until(lambda it: len(it.events) == 3_001)
    parts = [[each for each in reader.of(number) if each.isdecimal()] for number in "012"]
    assert sorted(map(len, parts)) == [0, 1_500, 1_500]
    assert sorted((part for part in parts if part), key=lambda part: int(part[0])) == [
        list(map(str, range(1_500))),
        list(map(str, range(1_500, 3_000))),
    ]
    odd = next(event for _, event in reader.events if not event.body_as_str().isdecimal())
    assert list(odd.body) == [encoded, encoded]
