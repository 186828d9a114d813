"""Queues over AMQP, by proton's blocking client: link credit hands out items, outcomes are applied, nothing is held twice."""

import asyncio
import os
import signal
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import pytest
from proton import Condition, Delivery, Described, Message, Timeout, symbol, timestamp, ulong
from proton.reactor import AtMostOnce, Filter
from proton.utils import BlockingConnection, BlockingReceiver, LinkDetached, SendException

from broker import codec
from broker.model.commands import (
    Affiliate,
    Cancel,
    Command,
    Complete,
    Configure,
    Declare,
    Delete,
    InspectItems,
    ListSubscribers,
    ManageSubscribers,
    Publish,
    Release,
    Stats,
    Subscribe,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation
from broker.model.nodes.subscriptions import Change
from broker.model.results import (
    Counted,
    Done,
    InspectedItems,
    Published,
    Result,
    Retracted,
    Subscribed,
    SubscriptionList,
)
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.amqp.protocol import types
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.admitting import ADMITTING
from tests.doors.amqp.conftest import NewLog, made
from tests.doors.amqp.raw import frame, opened
from tests.doors.amqp.served import (
    AmqpFrontend,
    With,
    arrived,
    connected,
    consumer,
    one,
    producer,
    send,
    text,
)
from tests.doors.frontend import ALICE, BOB
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def queue(new_log: NewLog) -> str:
    """Create a queue that tries items twice."""
    return new_log(queueing=True, stanzaq__max_deliveries="2", stanzaq__retention_items="0")


def ask(redis: RedisServer, command: Command) -> Result:
    """Run a command that no consumer has."""

    async def asked() -> Result:
        core = RedisCore(CommandSettings(**ADMITTING, redis_url=redis.url), None)
        try:
            return await core.ask(command)
        finally:
            await core.stop()

    return asyncio.run(asked())


def counts(redis: RedisServer, queue: str) -> tuple[int, int]:
    """Count waiting and locked items."""
    found = ask(redis, Stats(queue, Jid(ALICE)))
    return (found.waiting, found.in_flight) if isinstance(found, Counted) else (0, 0)


def come_to(found: Callable[[], object], wanted: object, seconds: float = 20.0) -> None:
    """Wait until this is true, for less than a lock lasts."""
    deadline = time.monotonic() + seconds
    while (last := found()) != wanted:
        assert time.monotonic() < deadline, last
        time.sleep(0.05)


def worker(connection: BlockingConnection, queue: str, credit: int = 0, options: object = None) -> BlockingReceiver:
    """Attach a receiver with so much credit and no more: the client would renew a window of its own as items come."""
    receiver = consumer(connection, queue, options, credit=0)
    if credit:
        receiver.flow(credit)
    return receiver


def got(receiver: BlockingReceiver, count: int) -> list[str]:
    """Receive so many and settle none."""
    receiver.connection.wait(lambda: arrived(receiver) >= count, timeout=PATIENCE_SECONDS)
    return [text(receiver.fetcher.pop()) for _ in range(count)] if receiver.fetcher else []


def quiet(receiver: BlockingReceiver, seconds: float = 0.4) -> None:
    """Check that nothing comes for a while."""
    with pytest.raises(Timeout):
        receiver.connection.wait(lambda: arrived(receiver) > 0, timeout=seconds)


def process_events(connection: BlockingConnection, seconds: float = 0.05) -> None:
    """Let pending frames go out."""
    with pytest.raises(Timeout):
        connection.wait(lambda: False, timeout=seconds)


def settle(receiver: BlockingReceiver, state: int | None, count: int = 1) -> None:
    """Settle the oldest ones."""
    for _ in range(count):
        receiver.settle(state)  # type: ignore[arg-type]
    process_events(receiver.connection)


def test_shared(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, new_log: NewLog) -> None:
    """R1, R17: two links share a queue evenly, each item goes to one, and none ever has more than its credit."""
    queue = new_log(queueing=True)
    send(producer(alice, queue), *(str(number) for number in range(40)))
    assert counts(redis, queue) == (40, 0)
    with connected(frontend, BOB) as bob:
        first, second = worker(alice, queue, 5), worker(bob, queue, 5)
        seen = got(first, 5) + got(second, 5)
        quiet(first)
        quiet(second)
        assert counts(redis, queue) == (30, 10)
        settle(first, Delivery.ACCEPTED, 5)
        settle(second, Delivery.ACCEPTED, 2)
        # Acknowledged without more credit: nothing replaces them.
        come_to(lambda: counts(redis, queue), (30, 3))
        quiet(first)
        share: Counter[str] = Counter()
        while len(seen) < 40:
            for each in (first, second):
                each.flow(1)
                if len(seen) < 40:
                    seen += got(each, 1)
                    share[each.link.name] += 1
                    settle(each, Delivery.ACCEPTED)
        assert sorted(seen, key=int) == [str(number) for number in range(40)] and share[first.link.name] == 15
        settle(second, Delivery.ACCEPTED, 3)
    come_to(lambda: counts(redis, queue), (0, 0))


def test_outcomes(redis: RedisServer, alice: BlockingConnection, queue: str) -> None:
    """Q32, part 3 §3.4: accepted is done, released is no try, modified and failed is one, rejected is dead-lettered."""
    send(producer(alice, queue), *"abcd")
    one, other = worker(alice, queue, 4), worker(alice, queue)
    assert got(one, 4) == list("abcd")
    assert one.fetcher and other.fetcher
    unsettled: deque[Any] = deque(one.fetcher.unsettled)
    one.fetcher.unsettled = deque([unsettled.popleft(), unsettled.pop()])
    settle(one, Delivery.ACCEPTED)
    rejected = unsettled.popleft()
    rejected.local.condition = Condition("app:broken", "line one\nline two")
    rejected.update(Delivery.REJECTED)
    rejected.settle()
    failed = unsettled.popleft()
    failed.local.failed = True
    failed.update(Delivery.MODIFIED)
    failed.settle()
    other.flow(1)
    (message,) = received(other, 1)
    assert (text(message), message.delivery_count, message.first_acquirer) == ("c", 1, False)
    come_to(lambda: counts(redis, f"{queue}/dead"), (1, 0))
    letters = worker(alice, f"{queue}/dead", 2)
    assert died(letters) == ("b", "line one line two")
    # Over and over, and never a dead letter.
    for _ in range(4):
        settle(one, Delivery.RELEASED)
        one.flow(1)
        (message,) = received(one, 1)
        assert (text(message), message.delivery_count, message.first_acquirer) == ("d", 0, False)
    settle(other, None)
    other.flow(1)
    (message,) = received(other, 1)
    assert (text(message), message.delivery_count) == ("c", 1)
    other.fetcher.unsettled[0].local.failed = True
    settle(other, Delivery.MODIFIED)
    assert died(letters) == ("c", "max-deliveries")
    assert counts(redis, queue) == (0, 1)


def received(receiver: BlockingReceiver, count: int) -> list[Message]:
    """Receive messages."""
    receiver.connection.wait(lambda: arrived(receiver) >= count, timeout=PATIENCE_SECONDS)
    return [receiver.fetcher.pop() for _ in range(count)] if receiver.fetcher else []


def died(letters: BlockingReceiver) -> tuple[str, str]:
    """Receive a dead letter; return its body and its reason."""
    (letter,) = received(letters, 1)
    said: Any = letter.properties
    return text(letter), said["stanzaq-dead-reason"]


def test_elsewhere(alice: BlockingConnection, queue: str) -> None:
    """Part 3 §3.4.5: an item undeliverable here goes to others, and not to this link again, even if it is the only one."""
    send(producer(alice, queue), "a", "b")
    one = worker(alice, queue, 1)
    assert got(one, 1) == ["a"]
    assert one.fetcher
    one.fetcher.unsettled[0].local.undeliverable = True
    settle(one, Delivery.MODIFIED)
    one.flow(2)
    assert got(one, 1) == ["b"]
    quiet(one)
    other = worker(alice, queue, 1)
    (message,) = received(other, 1)
    assert text(message) == "a" and message.delivery_count == 0


def test_given_back(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, queue: str) -> None:
    """R2, R14, Q33: a link's items are given back at once when it, its session or its connection ends, in order or not."""
    send(producer(alice, queue), "a")
    waiting = worker(alice, queue, 2)
    got(waiting, 1)
    waiting.link.detach()
    process_events(alice)
    come_to(lambda: counts(redis, queue), (1, 0))
    with connected(frontend, BOB) as bob:
        got(worker(bob, queue, 2), 1)
        assert counts(redis, queue) == (0, 1)
    come_to(lambda: counts(redis, queue)[1], 0)
    # The second try was its last.
    send(producer(alice, queue), "b")
    line = opened(frontend)
    line.sendall(receiving("r", 0, queue) + flow(0, 3))
    come_to(lambda: counts(redis, queue), (0, 1))
    line.close()
    come_to(lambda: counts(redis, queue), (1, 0))


def test_renewed(redis: RedisServer, alice: BlockingConnection, new_log: NewLog) -> None:
    """Q35: a lock is renewed while its link lives, however short its time; a lost one is not the worker's to end."""
    queue = new_log(queueing=True, stanzaq__lock_seconds="1", stanzaq__retention_items="0")
    send(producer(alice, queue), "a")
    one, other = worker(alice, queue, 1), worker(alice, queue, 1)
    holder, waits = (one, other) if arriving(one, other) is one else (other, one)
    (message,) = received(holder, 1)
    told = {str(name): value for name, value in (message.instructions or {}).items()}
    assert told["x-opt-stanzaq-locked-until"] > told["x-opt-stanzaq-lock"] // 10**6
    quiet(waits, 2.5)
    assert isinstance(told["x-opt-stanzaq-item"], str)
    ask(redis, Release(queue, Jid(ALICE), (told["x-opt-stanzaq-item"],)))
    (again,) = received(waits, 1)
    assert again.delivery_count == 1
    # It comes too late, is refused where the client waits for an answer, and changes nothing.
    assert holder.fetcher and waits.fetcher
    late: Any = holder.fetcher.unsettled[0]
    process_events(alice, 1.2)
    late.update(Delivery.ACCEPTED)
    alice.wait(lambda: late.remote_state, timeout=PATIENCE_SECONDS)
    assert late.remote_state == Delivery.REJECTED and late.remote.condition.name == "amqp:link:stolen"
    assert counts(redis, queue) == (0, 1)
    done: Any = waits.fetcher.unsettled[0]
    done.update(Delivery.ACCEPTED)
    alice.wait(lambda: done.settled, timeout=PATIENCE_SECONDS)
    assert done.remote_state == Delivery.ACCEPTED and counts(redis, queue) == (0, 0)


def test_cancelled_elsewhere(redis: RedisServer, alice: BlockingConnection, new_log: NewLog) -> None:
    """An outcome for an item that somebody has cancelled meanwhile is too late, before the link has noticed."""
    queue = new_log(queueing=True, stanzaq__retention_items="0")
    send(producer(alice, queue), "a")
    holder = worker(alice, queue, 1)
    (message,) = received(holder, 1)
    told = {str(name): value for name, value in (message.instructions or {}).items()}
    ask(redis, Cancel(queue, Jid(ALICE), str(told["x-opt-stanzaq-item"])))
    assert holder.fetcher
    late: Any = holder.fetcher.unsettled[0]
    late.update(Delivery.ACCEPTED)
    alice.wait(lambda: late.remote_state, timeout=PATIENCE_SECONDS)
    assert late.remote_state == Delivery.REJECTED and late.remote.condition.name == "amqp:link:stolen"


def arriving(*receivers: BlockingReceiver) -> BlockingReceiver:
    """Wait for the receiver that gets something."""
    receivers[0].connection.wait(lambda: any(map(arrived, receivers)), timeout=PATIENCE_SECONDS)
    return next(filter(arrived, receivers))


def test_drain(redis: RedisServer, alice: BlockingConnection, new_log: NewLog) -> None:
    """Part 2 §2.6.7: drained credit is used for all items, wherever they are, and the rest is given back."""
    for partitions in (1, 4):
        queue = new_log(partitions, queueing=True)
        send(producer(alice, queue), *"abcde")
        receiver = worker(alice, queue)
        for count, left in ((3, 2), (10, 0), (10, 0)):
            before = arrived(receiver)
            receiver.link.drain(count)
            alice.wait(receiver.link.draining, timeout=PATIENCE_SECONDS)
            while receiver.link.draining():
                process_events(alice)
            assert arrived(receiver) - before == min(count, 5 - before) and receiver.link.credit == 0
            assert counts(redis, queue) == (left, 5 - left)
        receiver.link.drain_mode = False
        got(receiver, 5)
        settle(receiver, Delivery.ACCEPTED, 5)
        send(producer(alice, queue), "f")
        quiet(receiver)
        assert counts(redis, queue) == (1, 0)
        receiver.flow(1)
        assert got(receiver, 1) == ["f"]


def test_settled(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, queue: str) -> None:
    """Part 2 §2.6.12: a receiver of settled messages gets each at most once: it is done before it is delivered."""
    send(producer(alice, queue), *"abc")
    with connected(frontend, BOB) as bob:
        receiver = worker(bob, queue, 2, AtMostOnce())
        assert got(receiver, 2) == ["a", "b"] and counts(redis, queue) == (1, 0)
        quiet(receiver)
    assert counts(redis, queue) == (1, 0)


def test_many(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, new_log: NewLog) -> None:
    """R1: whatever windows clients have, over partitions, each item is worked once and none stays."""
    count = 120
    queue = new_log(4, queueing=True)
    sender = producer(alice, queue)
    seen: list[str] = []
    with ExitStack() as stack:
        receivers = []
        for credit in (1, 7, 500):
            who = stack.enter_context(connected(frontend, BOB))
            receivers.append(who.create_receiver(queue, credit=credit, name=f"w{credit}"))
        for number in range(count):
            sender.link.send(Message(body=str(number)))
        sender.send(Message(body="last"))
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(seen) <= count:
            assert time.monotonic() < deadline, len(seen)
            for each in receivers:
                try:
                    seen.append(text(each.receive(timeout=0.01)))
                except Timeout:
                    continue
                each.accept()
        for each in receivers:
            process_events(each.connection)
    assert Counter(seen) == Counter([*(str(number) for number in range(count)), "last"])
    assert counts(redis, queue) == (0, 0)


def selecting(text: str, *, by_number: bool = False) -> Filter:
    """Return the filter of a selector."""
    return Filter({symbol("s"): Described(ulong(0x468C_0000_0004) if by_number else NAMED, text)})


NAMED = symbol("apache.org:selector-filter:string")


def test_selector(alice: BlockingConnection, queue: str) -> None:
    """A worker may select by properties of messages; an unreadable selector, and other filters, are refused."""
    red = worker(alice, queue, 5, selecting("colour = 'red'"))
    rest = worker(alice, queue, 5, selecting("colour <> 'red'", by_number=True))
    for colour in ("red", "blue", "red"):
        producer(alice, queue).send(Message(body=colour, properties={"colour": colour}))
    assert got(red, 2) == ["red", "red"] and got(rest, 1) == ["blue"]
    for condition, filters in (
        ("invalid-field", selecting("colour =")),
        ("invalid-field", Filter({symbol("s"): Described(NAMED, 5)})),
        ("not-implemented", Filter({symbol("s"): Described(symbol("apache.org:no-local-filter:list"), [])})),
    ):
        with pytest.raises(LinkDetached, match=f"amqp:{condition}"):
            worker(alice, queue, options=filters)


def test_refused(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, queue: str) -> None:
    """P5: a JID that may not subscribe is refused by name; so is a partition or a group, which are for logs; nothing is left."""
    for wanted in (With(partition=symbol("0")), With(consumer_group="g")):
        with pytest.raises(LinkDetached, match="amqp:not-implemented"):
            worker(alice, queue, options=wanted)
    ask(redis, Affiliate(queue, Jid(ALICE), {Jid(BOB): Affiliation.OUTCAST.value}))
    with connected(frontend, BOB) as bob, pytest.raises(LinkDetached, match="amqp:unauthorized-access"):
        worker(bob, queue)
    found = ask(redis, Stats(queue, Jid(ALICE)))
    assert isinstance(found, Counted) and found.subscribers == 0


def test_removed(redis: RedisServer, alice: BlockingConnection, queue: str) -> None:
    """P26, P24: a link whose subscription or queue the owner ends is detached with the reason."""
    worker(alice, queue, 1)
    process_events(alice, 0.5)
    listed = ask(redis, ListSubscribers(queue, Jid(ALICE)))
    assert isinstance(listed, SubscriptionList)
    (one,) = listed.subscriptions
    assert one.jid.startswith(f"{ALICE}/lease-") and one.credit == 1
    # The open has a container; proton sends neither product nor version.
    assert one.client == alice.container.container_id
    ask(redis, ManageSubscribers(queue, Jid(ALICE), (Change(one.jid, one.subid, "none"),)))
    with pytest.raises(LinkDetached, match="amqp:link:detach-forced"):
        process_events(alice, 5)
    worker(alice, queue, 1)
    ask(redis, Delete(queue, Jid(ALICE)))
    with pytest.raises(LinkDetached, match="amqp:not-found"):
        process_events(alice, 5)


def test_owned(redis: RedisServer, alice: BlockingConnection, new_log: NewLog) -> None:
    """Issue 50: a link is detached when workers come to own all partitions, and a new one too."""
    queue, owner = new_log(2, queueing=True), Jid("owner@example.org/1")
    send(producer(alice, queue), "before")
    link = worker(alice, queue, 2)
    assert got(link, 1) == ["before"]
    assert isinstance(ask(redis, Subscribe(queue, owner, owner, 5, group="billing")), Subscribed)
    with pytest.raises(LinkDetached, match="amqp:resource-locked"):
        process_events(alice, 10)
    # The owner gets what the link held: a lock from before has ended.
    come_to(lambda: counts(redis, queue), (1, 0))
    with pytest.raises(LinkDetached, match="amqp:resource-locked"):
        # It may be detached before `worker` returns.
        process_events(worker(alice, queue, 1).connection, 5)


def test_bounded(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, new_log: NewLog) -> None:
    """Bad input: of 2^31 credit 1,000 are used; settling unknown deliveries, or twice, changes nothing and harms nobody."""
    queue = new_log(queueing=True)
    sender = producer(alice, queue)
    for number in range(1_100):
        sender.link.send(Message(body=str(number)))
    sender.send(Message(body="last"))
    line = opened(frontend)
    line.sendall(receiving("r", 0, queue) + flow(0, 0x7FFF_FFFF))
    come_to(lambda: counts(redis, queue), (101, 1_000))
    accepted = types.section(0x24, types.write_list([]))
    for first, last in ((5_000, 6_000), (0xFFFF_FFF0, 0xFFFF_FFFF), (0, 0), (0, 0), (0, 1)):
        line.sendall(disposition(first, last, accepted))
    come_to(lambda: counts(redis, queue), (99, 1_000))
    # All that there are, and billions that there are not.
    began = time.monotonic()
    line.sendall(disposition(0, 0x7FFF_FFFF, types.section(0x26, types.write_list([]))))
    line.close()
    come_to(lambda: counts(redis, queue), (1_099, 0))
    send(sender, "still here")
    assert time.monotonic() - began < 30


def test_collection(redis: RedisServer, alice: BlockingConnection, queue: str, new_log: NewLog) -> None:
    """H2: a receiver on a collection works all queues below it with one credit."""
    top = f"top-{queue}"
    other = new_log(queueing=True)
    children = {"pubsub#node_type": ("collection",), "pubsub#children": (queue, other)}
    ask(redis, Declare(top, Jid(ALICE), children))
    send(producer(alice, queue), "a")
    send(producer(alice, other), "b", "c")
    receiver = worker(alice, top, 2)
    seen = got(receiver, 2)
    quiet(receiver)
    settle(receiver, Delivery.ACCEPTED, 2)
    receiver.flow(5)
    assert sorted(seen + got(receiver, 1)) == ["a", "b", "c"]
    settle(receiver, Delivery.ACCEPTED)
    come_to(lambda: counts(redis, queue) + counts(redis, other), (0, 0, 0, 0))


def test_locks_that_nobody_renews(redis: RedisServer, alice: BlockingConnection, queue: str, new_log: NewLog) -> None:
    """R2, R11: items of a killed frontend's links go to others when the lease is over, and not before.

    An unreadable item stops no link: its lock expires, and in the end it is a dead letter.
    """
    other = new_log(queueing=True, stanzaq__max_deliveries="1")
    assert ask(redis, Publish(other, Jid(ALICE), "bad", b"\xc1", 1)) == Published("bad")
    send(producer(alice, other), "good")
    reader = worker(alice, other, 2)
    assert got(reader, 1) == ["good"]
    settle(reader, Delivery.ACCEPTED)
    send(producer(alice, queue), "a")
    with AmqpFrontend(redis.url) as doomed:
        there = doomed.connect()
        got(worker(there, queue, 1), 1)
        waits = worker(alice, queue, 1)
        os.kill(doomed.process.pid, signal.SIGKILL)
        began = time.monotonic()
        (message,) = received(waits, 1)
    assert message.delivery_count == 1 and 5 < time.monotonic() - began < 15
    come_to(lambda: counts(redis, f"{other}/dead"), (1, 0))
    assert counts(redis, other) == (0, 0)


def test_goes_in_order(redis: RedisServer, alice: BlockingConnection, queue: str) -> None:
    """R14: a frontend that is told to stop gives its links' items back at once, and accepted ones are done."""
    send(producer(alice, queue), "a", "b")
    with AmqpFrontend(redis.url) as leaving:
        there = leaving.connect()
        receiver = worker(there, queue, 2)
        got(receiver, 2)
        settle(receiver, Delivery.ACCEPTED)
        os.kill(leaving.process.pid, signal.SIGTERM)
        assert leaving.process._child.wait(PATIENCE_SECONDS) == 0
        assert counts(redis, queue) == (1, 0)


def test_loses_redis() -> None:
    """Items accepted while Redis was away are acknowledged when it is back, and the link continues."""
    with (
        RedisServer(binary=valkey_binary()) as redis,
        AmqpFrontend(redis.url, REDIS_TIMEOUT="0.5") as frontend,
        connected(frontend) as alice,
    ):
        queue = made(redis.url, queueing=True)
        send(producer(alice, queue), "a", "b")
        receiver = worker(alice, queue, 1)
        assert got(receiver, 1) == ["a"]
        redis.process.pause()
        settle(receiver, Delivery.ACCEPTED)
        process_events(alice, 1.5)
        redis.process.resume()
        come_to(lambda: counts(redis, queue), (1, 0))
        receiver.flow(1)
        assert got(receiver, 1) == ["b"]


def receiving(name: str, handle: int, node: str) -> bytes:
    """Write the attach of a receiver."""
    source, target = (
        types.section(0x28, types.write_list([types.string(node)])),
        types.section(0x29, types.write_list([])),
    )
    return frame(0x12, types.string(name), b"\x52%c" % handle, b"\x41", b"\x50\x00", b"\x40", source, target)


def flow(handle: int, credit: int) -> bytes:
    """Write a flow that gives credit."""
    window, given = b"\x70\x7f\xff\xff\xff", b"\x70" + credit.to_bytes(4)
    return frame(0x13, b"\x43", window, b"\x43", window, b"\x52%c" % handle, b"\x43", given)


def disposition(first: int, last: int, state: bytes) -> bytes:
    """Write a disposition that settles."""
    return frame(0x15, b"\x41", b"\x70" + first.to_bytes(4), b"\x70" + last.to_bytes(4), b"\x41", state)


def test_hints(redis: RedisServer, alice: BlockingConnection, queue: str, new_log: NewLog) -> None:
    """Part 3 §3.2.1, §3.2.4: higher priority comes first, expired items do not come, delayed ones later; logs have no delay."""
    sender = producer(alice, queue)
    sender.send(Message(body="usual"))
    sender.send(Message(body="low", priority=0))
    sender.send(Message(body="over", ttl=0.05))
    sender.send(Message(body="past", expiry_time=1.0))
    sender.send(Message(body="late", annotations={symbol("x-opt-delivery-delay"): 1_500}))
    sender.send(Message(body="urgent", priority=9, ttl=60.0))
    time.sleep(0.1)
    receiver = worker(alice, queue, 5)
    assert got(receiver, 3) == ["urgent", "usual", "low"]
    quiet(receiver)
    assert got(receiver, 1) == ["late"]
    settle(receiver, Delivery.ACCEPTED, 4)
    come_to(lambda: counts(redis, queue), (0, 0))
    with pytest.raises(SendException):
        sender.send(Message(body="x", annotations={symbol("x-opt-delivery-delay"): "soon"}))
    log = new_log()
    consumer(alice, log)
    producer(alice, log).send(Message(body="any", priority=9, ttl=60.0, expiry_time=1.0))
    with pytest.raises(SendException):
        producer(alice, log).send(Message(body="x", annotations={symbol("x-opt-delivery-delay"): 1_500}))
    for name, value in (("x-opt-stanzaq-keep", True), ("x-opt-stanzaq-after", "first")):
        with pytest.raises(SendException):
            producer(alice, log).send(Message(body="x", annotations={symbol(name): value}))


def test_replies(redis: RedisServer, frontend: AmqpFrontend, alice: BlockingConnection, queue: str) -> None:
    """A message with `reply-to` is answered with its end: the worker's result, and state and reason as properties."""
    answers = alice.create_receiver(None, dynamic=True, name="answers")
    address = answers.link.remote_source.address
    sender, receiver = producer(alice, queue), worker(alice, queue, 1)
    sender.send(Message(body="first", id="m1", correlation_id="c1", reply_to=address))
    assert got(receiver, 1) == ["first"]
    found = ask(redis, ListSubscribers(queue, Jid(ALICE)))
    assert isinstance(found, SubscriptionList)
    result = codec.pack(Envelope(b'{"size": 7}', "application/json", {"colour": "red"}))
    done = Complete(queue, found.subscriptions[0].jid, locked(redis, queue), envelope=result, body_bytes=11)
    assert isinstance(ask(redis, done), Retracted)
    answer: Any = one(answers)
    assert (answer.correlation_id, answer.content_type, text(answer)) == ("c1", "application/json", '{"size": 7}')
    assert answer.properties == {"item": done.item_id, "state": "acknowledged", "reason": "", "colour": "red"}
    settle(receiver, Delivery.ACCEPTED)
    # A result that another version wrote is left out.
    sender.send(Message(body="newer", correlation_id="c2", reply_to=address))
    receiver.flow(1)
    assert got(receiver, 1) == ["newer"]
    newer = replace(done, item_id=locked(redis, queue), envelope=b"\xc1", body_bytes=1)
    assert isinstance(ask(redis, newer), Retracted)
    answer = one(answers)
    assert (answer.correlation_id, text(answer), answer.properties["state"]) == ("c2", "", "acknowledged")
    assert f'"item": "{newer.item_id}"' in next(
        line for line in frontend.log.splitlines() if "a result cannot be read" in line
    )
    settle(receiver, Delivery.ACCEPTED)
    # Without an id of its own the message's id is meant; a reply elsewhere is the application's own affair.
    sender.send(Message(body="second", id=17, reply_to=address))
    sender.send(Message(body="third", reply_to="another-queue"))
    receiver.flow(2)
    assert got(receiver, 2) == ["second", "third"]
    settle(receiver, Delivery.REJECTED)
    settle(receiver, Delivery.ACCEPTED)
    answer = one(answers)
    assert (answer.correlation_id, text(answer)) == (17, "")
    assert answer.properties["state"] == "dead"
    # The reply is dropped with its link, and the connection goes on.
    sender.send(Message(body="fourth", reply_to=address))
    answers.close()  # type: ignore[no-untyped-call]  # proton has no types for it
    receiver.flow(1)
    assert got(receiver, 1) == ["fourth"]
    settle(receiver, Delivery.ACCEPTED)
    come_to(lambda: counts(redis, queue), (0, 0))
    assert ask(redis, Configure(queue, Jid(ALICE), {"stanzaq#result_seconds": ("0",)})) == Done()
    again = alice.create_receiver(None, dynamic=True, name="again")
    with pytest.raises(SendException):
        sender.send(Message(body="fifth", reply_to=again.link.remote_source.address))
    with pytest.raises(SendException):
        sender.send(Message(body="sixth", annotations={symbol("x-opt-stanzaq-keep"): True}))
    assert "Traceback" not in frontend.log


def test_times_and_parents(redis: RedisServer, alice: BlockingConnection, queue: str) -> None:
    """Issue 25: a message goes out at its time, and after the items that it waits for; a parent that is not there refuses it."""
    first = codec.pack(Envelope(b"first", "text/plain"))
    assert ask(redis, Publish(queue, Jid(ALICE), "first", first, 5)) == Published("first")
    sender, receiver = producer(alice, queue), worker(alice, queue, 3)
    soon = time.time() + 0.5
    at = {symbol("x-opt-scheduled-enqueue-time"): timestamp(int(soon * 1000))}
    sender.send(Message(body="timed", annotations=at))
    sender.send(Message(body="then", annotations={symbol("x-opt-stanzaq-after"): "first"}))
    with pytest.raises(SendException):
        sender.send(Message(body="x", annotations={symbol("x-opt-stanzaq-after"): "first none"}))
    with pytest.raises(SendException):
        sender.send(Message(body="x", annotations={symbol("x-opt-stanzaq-after"): "first first"}))
    assert got(receiver, 1) == ["first"] and got(receiver, 1) == ["timed"] and time.time() >= soon
    settle(receiver, Delivery.ACCEPTED)
    assert got(receiver, 1) == ["then"]
    settle(receiver, Delivery.ACCEPTED, 2)
    come_to(lambda: counts(redis, queue), (0, 0))


def locked(redis: RedisServer, queue: str) -> str:
    """Return the id of the one locked item."""
    found = ask(redis, InspectItems(queue, Jid(ALICE), (), 10))
    assert isinstance(found, InspectedItems)
    (item,) = [each.item_id for each in found.items if each.lock]
    return item
