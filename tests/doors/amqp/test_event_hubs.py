"""The Event Hubs profile, with a third-party SDK: send, receive from a position, resume, steal, refuse."""

import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack
from datetime import timedelta
from functools import partial
from itertools import pairwise
from typing import Any

import pytest
from azure.eventhub import EventData
from azure.eventhub.exceptions import (
    AuthenticationError,
    ConnectError,
    ConnectionLostError,
    EventDataSendError,
    EventHubError,
)
from proton import Message, symbol
from proton.utils import BlockingConnection, BlockingReceiver, ConnectionClosed, LinkDetached, SendException

from frontends.tools.servers.redis import RedisServer
from tests.doors.amqp.conftest import NewLog
from tests.doors.amqp.event_hubs import BOBS_KEY, KEYS, Reader, address, body, reading, send, sending, signed
from tests.doors.amqp.served import AmqpFrontend, annotations, connected, consumer, marks, one, producer, text


@pytest.fixture(scope="module")
def hubs(redis: RedisServer) -> Iterator[AmqpFrontend]:
    """Provide a frontend with shared keys."""
    with AmqpFrontend(redis.url, AMQP_EVENT_HUBS_KEYS=KEYS) as frontend:
        yield frontend


def _failed(reader: Reader, said: str) -> bool:
    return any(said in error for error in reader.errors)


def status(answers: BlockingReceiver) -> int:
    """Receive an answer of `$cbs`."""
    answer: Any = answers.receive(timeout=20)
    return int(answer.properties["status-code"])


def test_events(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """EX6, E13, E16: batches, keys and single events arrive as sent, with their positions; over the draft's links too."""
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
    mine = [each for _, each in reader.events if body(each) in "abc"]
    assert [body(each) for each in mine] == list("abc")
    for before, after in pairwise(mine):
        assert before.offset < after.offset and before.sequence_number < after.sequence_number
    assert full["last_enqueued_offset"] >= mine[2].offset and not full["is_empty"]
    assert full["beginning_sequence_number"] == mine[0].sequence_number
    assert abs(mine[0].enqueued_time.timestamp() - time.time()) < 60
    keyed = next(each for _, each in reader.events if body(each) == "keyed")
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
        assert (text(message), marks(message)["offset"]) == (body(first), first.offset)


def test_places(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """E22, EX4, EX9: from an offset, a sequence number or a time on, inclusive or exclusive, or from the end."""
    log = new_log(8)
    with sending(address(hubs, log)) as client, reading(address(hubs, log)) as reader:
        for partition in map(str, range(8)):
            send(client, "a", partition_id=partition)
            send(client, "b", "c", partition_id=partition)
        reader.until(lambda it: len(it.events) == 24)
        second = {number: event for number, event in reader.events if body(event) == "b"}
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


def test_buffered_keys(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """E14: a key has one partition, whether the SDK hashes it because it buffers, or leaves it to the service.

    With two partitions: of more, the SDK for Python takes others than all other SDKs for some keys.
    """
    log, keys = new_log(2), [f"customer-{number}" for number in range(12)]
    errors: list[Exception] = []

    def failed(_events: object, _partition: str | None, error: Exception) -> None:
        errors.append(error)

    with sending(address(hubs, log), buffered_mode=True, on_success=lambda *_: None, on_error=failed) as client:
        for key in keys:
            client.send_event(EventData(key), partition_key=key)
    with sending(address(hubs, log)) as client:
        for key in keys:
            send(client, key, partition_key=key)
    with reading(address(hubs, log)) as reader:
        reader.until(lambda it: bool(errors) or len(it.events) == 2 * len(keys))
    assert not errors
    assert len({(number, body(event)) for number, event in reader.events}) == len(keys)
    assert reader.of("0") and reader.of("1")


def test_resumes(redis: RedisServer, new_log: NewLog) -> None:
    """E19, Guarantee 1: when its frontend stops, an SDK continues after its last event."""
    log = new_log()
    first = AmqpFrontend(redis.url, AMQP_EVENT_HUBS_KEYS=KEYS)
    with first:
        with sending(address(first, log)) as client:
            send(client, *"ab")
        reader = Reader(address(first, log), tries=10_000)
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
    """EX13, EX14, E28: an equal or higher level takes over, a lower one is refused, and one without is replaced."""
    log = new_log()
    with sending(address(hubs, log)) as client, reading(address(hubs, log)) as plain:
        send(client, "a")
        plain.until(lambda it: it.bodies == ["a"])
        with reading(address(hubs, log), owner_level=3) as third:
            third.until(lambda it: it.bodies == ["a"])
            plain.until(partial(_failed, said="amqp:link:stolen"))
            with reading(address(hubs, log), owner_level=2) as less, reading(address(hubs, log)) as none:
                for refused in (less, none):
                    refused.until(partial(_failed, said="amqp:link:stolen"))
                    assert not refused.events
            with reading(address(hubs, log), owner_level=2, group="another") as apart:
                apart.until(lambda it: it.bodies == ["a"])
            with reading(address(hubs, log), owner_level=3) as equal:
                equal.until(lambda it: it.bodies == ["a"])
                third.until(partial(_failed, said="amqp:link:stolen"))
                send(client, "b")
                equal.until(lambda it: it.bodies == ["a", "b"])
        assert (plain.bodies, third.bodies) == (["a"], ["a"])


def test_batches(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """E14, Guarantee 7: a batch has one partition, is refused as a whole, and differs from an event that only looks like one."""
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
    odd = next(event for _, event in reader.events if not body(event).isdecimal())
    assert list(odd.body) == [encoded, encoded]


def by_token(frontend: AmqpFrontend, hub: str, token: str) -> str:
    """Write a connection string with a token."""
    return f"Endpoint=sb://127.0.0.1:{frontend.port};{token};EntityPath={hub};UseDevelopmentEmulator=true"


def test_tokens(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """P1, Guarantee 7: a token grants its scope to its JID until it expires; an unsigned one grants nothing."""
    log = new_log()
    with sending(by_token(hubs, log, signed(log, 60))) as client:
        send(client, "a")
        assert client.get_partition_properties("0")["is_empty"] is False
    for wrong in (
        address(hubs, log, key="k" * 40),
        address(hubs, log, name="bob-1"),
    ):
        with sending(wrong) as client, pytest.raises(AuthenticationError, match="not signed"):
            send(client, "b")
    with sending(by_token(hubs, log, signed(f"{log}x", 60))) as client:
        with pytest.raises(ConnectionLostError, match="amqp:unauthorized-access"):
            send(client, "b")
        with pytest.raises(AuthenticationError, match="401"):
            client.get_eventhub_properties()
    with sending(by_token(hubs, log, signed(f"{log}/$management", 60))) as client:
        assert client.get_partition_ids() == ["0"]
        with pytest.raises(ConnectionLostError, match="amqp:unauthorized-access"):
            send(client, "b")
    with (
        sending(by_token(hubs, log, signed(log, -1))) as client,
        pytest.raises(AuthenticationError, match="has expired"),
    ):
        send(client, "b")


def test_ends_with_its_token(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """P1: a link ends when its tokens have expired, and the connection with the last token; another JID's is refused."""
    log, other = new_log(), new_log()
    connection = BlockingConnection(f"amqp://127.0.0.1:{hubs.port}", timeout=20, allowed_mechs="ANONYMOUS")
    asking, answers = producer(connection, "$cbs"), consumer(connection, "$cbs")
    for token, code in (
        (signed(log, 3), 202),
        (signed(other, 6), 202),
        (signed("", 60, BOBS_KEY, "bob-1"), 401),
    ):
        proven = {"operation": "put-token", "type": "servicebus.windows.net:sastoken"}
        asking.send(Message(body=token.removeprefix("SharedAccessSignature="), properties=proven))
        assert status(answers) == code
    first = consumer(connection, f"{log}/ConsumerGroups/$Default/Partitions/0")
    producer(connection, other)
    with pytest.raises(LinkDetached, match="the token has expired"):
        connection.wait(lambda: first.link.state & first.link.REMOTE_CLOSED, timeout=10)
    with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
        producer(connection, log)
    with pytest.raises(ConnectionClosed, match="the token has expired"):
        connection.wait(lambda: False, timeout=15)


def test_refusals(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """P9, Guarantee 7: forbidden and unknown addresses are refused by name."""
    log = new_log(stanzaq__groups="one $default", pubsub__publish_model="publishers", pubsub__access_model="whitelist")
    queue = new_log(queueing=True)
    bobs = {"name": "bob-1", "key": BOBS_KEY}
    with sending(address(hubs, "nowhere")) as client, pytest.raises(ConnectError, match="404"):
        client.get_eventhub_properties()
    with sending(address(hubs, log, **bobs)) as client, pytest.raises(EventHubError, match="its owner can add yours"):
        send(client, "a")
    with sending(address(hubs, log)) as client:
        with pytest.raises(ConnectError, match="404"):
            client.get_partition_properties("1")
        with pytest.raises(EventDataSendError, match="bytes"):
            send(client, "a", partition_key="k" * 1_500)
        send(client, "kept")
    for connection, wanted, said in (
        (address(hubs, log), {"partition_id": "0", "group": "two"}, "amqp:not-found"),
        (address(hubs, log), {"partition_id": "0", "starting_position": "5"}, "amqp:invalid-field"),
        (address(hubs, log), {"partition_id": "0", "owner_level": -1}, "amqp:invalid-field"),
        (address(hubs, log, **bobs), {"partition_id": "0"}, "UnauthorizedAccess"),
        (address(hubs, queue), {"partition_id": "0"}, "400"),
    ):
        with reading(connection, **wanted) as reader:
            reader.until(partial(_failed, said=said))
            assert not reader.events
    with reading(address(hubs, log), group="one") as reader:
        reader.until(lambda it: it.bodies == ["kept"])


def test_places_that_are_lost(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """E17: a reader with the SDK's own retries learns that its offset is foreign, future or made up, or that events are gone."""
    log, other = new_log(stanzaq__retention_items="100"), new_log()
    with sending(address(hubs, log)) as client, sending(address(hubs, other)) as others:
        send(others, "a")
        foreign = others.get_partition_properties("0")["last_enqueued_offset"]
        send(client, "a")
        trimmed = client.get_partition_properties("0")["last_enqueued_offset"]
        send(client, *map(str, range(1_000)))
    with reading(address(hubs, log)) as reader:
        reader.until(lambda it: "999" in it.bodies)
    left = reader.events[0][1].offset
    future = f"{int(left[:20]) + 10**9:020d}{left[20:]}"
    asked = [(trimmed, "has removed"), (foreign, "does not belong"), (future, "does not belong"), ("9", "an offset")]
    with ExitStack() as stack:
        wanted = {"tries": 3, "partition_id": "0"}
        lost = [stack.enter_context(reading(address(hubs, log), starting_position=at, **wanted)) for at, _ in asked]
        found = stack.enter_context(reading(address(hubs, log), starting_position=left, **wanted))
        for reader, (_, said) in zip(lost, asked, strict=True):
            reader.until(partial(_failed, said="amqp:invalid-field: "))
            assert _failed(reader, said) and not reader.events
        found.until(lambda it: "999" in it.bodies)
        assert not found.errors


def test_without_a_token(hubs: AmqpFrontend, new_log: NewLog) -> None:
    """Guarantee 7: without a token nothing is attached; a malformed request is refused; passwords keep working."""
    log = new_log()
    nobody = BlockingConnection(f"amqp://127.0.0.1:{hubs.port}", timeout=20, allowed_mechs="ANONYMOUS")
    for name in (log, "$management", f"{log}/ConsumerGroups/g/Partitions/0"):
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            producer(nobody, name)
        with pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
            consumer(nobody, name)
    asking = producer(nobody, "$cbs")
    for message in (Message(body="no one receives the answer"), Message(body={"a": 1}, reply_to="elsewhere")):
        with pytest.raises(SendException):
            asking.send(message)
    answers = consumer(nobody, "$cbs")
    for said in ({}, {"operation": "put-token"}, {"operation": "put-token", "type": "jwt"}):
        asking.send(Message(body="x" * 10_000, properties=said, id="i"))
        assert status(answers) == 400
    proven = {"operation": "put-token", "type": "servicebus.windows.net:sastoken"}
    for token in (
        "",
        "SharedAccessSignature ",
        "SharedAccessSignature sr=a&sr=b&se=5&sig=x",
        "SharedAccessSignature " + "&" * 5_000,
    ):
        asking.send(Message(body=token, properties=proven))
        assert status(answers) == 401
    with connected(hubs) as plain, reading(address(hubs, log)) as reader:
        producer(plain, log).send(Message(body=b"x" * 5, inferred=True))
        reader.until(lambda it: it.bodies == ["xxxxx"])
        with pytest.raises(LinkDetached, match="amqp:not-found"):
            producer(plain, "$cbs")
    nobody.close()
    assert "Traceback" not in hubs.log
