"""Deliveries that need confirmation (urn:xmpp:qos), through ejabberd and two frontends with short pauses."""

import asyncio
import re
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from tests.journeys.client import EVENT, PUBSUB, STANZAQ, Client, Delivery, form_values
from tests.journeys.conftest import Join
from tests.journeys.qos_worker import Asked, Worker
from tests.journeys.service import Service, comes_to, eventually, serving

DOMAIN: Final = "deliveries.localhost"
RETRIES = 3
PAUSE_SECONDS = 1.0

JoinWorker = Callable[..., Awaitable[Worker]]
each_quality = pytest.mark.parametrize("qos", ["acknowledged", "assured"])


@pytest.fixture(scope="module")
def service(ejabberd: Ejabberd) -> Iterator[Service]:
    """Provide a service of this module's own, which tries again each second and gives up after four."""
    settings = {"QOS_RETRY_SECONDS": str(PAUSE_SECONDS), "QOS_RETRY_MOST_SECONDS": "1", "QOS_RETRIES": str(RETRIES)}
    with serving(ejabberd, DOMAIN, **settings) as service:
        yield service


@pytest.fixture
async def join_worker(service: Service) -> AsyncIterator[JoinWorker]:
    """Return a function that makes workers."""
    workers: list[Worker] = []

    async def make() -> Worker:
        worker = Worker(service.ejabberd.c2s_port, DOMAIN, service.ejabberd.anonymous)
        workers.append(worker)
        await worker.open()
        return worker

    yield make
    await asyncio.gather(*(worker.close() for worker in workers))


async def entrusted(join: Join, join_worker: JoinWorker, qos: str) -> tuple[Client, Worker, str, Asked]:
    """Return an owner, a worker at a level, the node, and what the worker was sent for an item."""
    owner, worker = await join(), await join_worker()
    node = await owner.queue()
    assert (await worker.subscribe_at(node, qos)).error == ""
    assert (await owner.publish(node, "i1")).error == ""
    return owner, worker, node, await worker.next_asked()


async def test_acknowledged(join: Join, join_worker: JoinWorker) -> None:
    """S3, S4, S7: the item comes in an IQ; its result is the confirmation, and work continues as ever."""
    _, worker, node, asked = await entrusted(join, join_worker, "acknowledged")
    assert (asked.what, asked.sender, asked.message_id) == ("acknowledged", DOMAIN, "")
    (message,) = asked.element[0]
    assert message.attrib == {}
    assert asked.delivery and (asked.delivery.item, asked.delivery.payload.tag) == ("i1", "{urn:x}job")
    worker.confirm(asked)
    await asyncio.sleep(PAUSE_SECONDS * 2)
    await worker.settle()
    assert worker.asked == []
    assert (await worker.retract(node, "i1", asked.delivery.token)).error == ""


async def test_assured(join: Join, join_worker: JoinWorker) -> None:
    """S9, S11, SX1: an unqualified `received` brings `deliver`, with the deadline; nothing comes twice."""
    _, worker, node, asked = await entrusted(join, join_worker, "assured")
    assert asked.what == "assured" and re.fullmatch(r"[0-9a-f]+-0-\d+", asked.message_id)
    worker.received(asked)
    go = await worker.next_asked()
    assert (go.what, go.message_id, go.delivery) == ("deliver", asked.message_id, None)
    assert go.id != asked.id and go.element[0].get(f"{{{STANZAQ}}}expires")
    worker.confirm(go)
    await asyncio.sleep(PAUSE_SECONDS * 2)
    await worker.settle()
    assert worker.asked == []
    assert asked.delivery and (await worker.retract(node, "i1", asked.delivery.token)).error == ""


@each_quality
async def test_one_handshake_for_several(join: Join, join_worker: JoinWorker, qos: str) -> None:
    """S4, S9, S11: what one IQ brings is confirmed together."""
    owner, worker = await join(), await join_worker()
    node = await owner.queue()
    names = [f"i{number}" for number in range(4)]
    for name in names:
        await owner.publish(node, name)
    assert (await worker.subscribe_at(node, qos, 4, batch=4)).error == ""
    asked = await worker.next_asked()
    items = [each.get("id") for each in asked.element.iter(f"{{{EVENT}}}item")]
    assert items == names
    await worker.complete(asked)
    await worker.settle()
    assert worker.asked == []
    tokens = {each.get("item", ""): int(each.get("token", "")) for each in asked.element.iter(f"{{{STANZAQ}}}lock")}
    for name in names:
        assert (await worker.retract(node, name, tokens[name])).error == ""


async def test_options(join: Join, join_worker: JoinWorker) -> None:
    """P13: the level is in the result and in the options; a wrong one, and an IQ to a bare JID, are refused."""
    owner, worker = await join(), await join_worker()
    node = await owner.queue()
    answer = await worker.subscribe_at(node, "assured", 5)
    assert form_values(answer.find(f"{{{PUBSUB}}}pubsub/{{{PUBSUB}}}options"))["stanzaq#qos"] == "assured"
    assert form_values((await worker.options(node)).element)["stanzaq#qos"] == "assured"
    assert (await worker.subscribe_at(node, "banana")).error == "modify bad-request invalid-options"
    assert (await worker.subscribe_at(node, "assured", 1, worker.bare)).error == "modify bad-request invalid-options"
    assert form_values((await worker.options(node)).element)["stanzaq#qos"] == "assured"
    await worker.subscribe(node, 5)
    assert form_values((await worker.options(node)).element)["stanzaq#qos"] == "unacknowledged"


@each_quality
async def test_an_error_passes_it_on(join: Join, join_worker: JoinWorker, qos: str) -> None:
    """Q18: a worker that answers with an error gives the item back at once, and stays subscribed while it may recover."""
    owner, worker, node, asked = await entrusted(join, join_worker, qos)
    other = await join()
    await other.subscribe(node)
    worker.refuse(asked, "wait", "resource-constraint")
    passed = await other.next(Delivery)
    # Silence would have passed it on only after so many repetitions.
    assert len(worker.asked) < RETRIES
    assert (passed.item, passed.attempt) == ("i1", 2)
    assert (await worker.options(node)).error == ""
    await owner.publish(node, "i2")
    assert (await worker.next_asked()).what == qos


async def test_an_error_for_good(join: Join, join_worker: JoinWorker) -> None:
    """P30: a client without the protocol says so, and is unsubscribed."""
    _, worker, node, asked = await entrusted(join, join_worker, "acknowledged")
    worker.refuse(asked, "cancel", "feature-not-implemented")

    async def error() -> str:
        return (await worker.options(node)).error

    await comes_to(error, "cancel unexpected-request not-subscribed")


async def test_silence_passes_it_on(join: Join, join_worker: JoinWorker) -> None:
    """S5, S6: the same IQ again, as often as configured; then another worker gets the item."""
    _, worker, node, asked = await entrusted(join, join_worker, "acknowledged")
    other = await join()
    await other.subscribe(node)
    passed = await other.next(Delivery)
    assert (passed.item, passed.attempt) == ("i1", 2)
    assert [(again.id, again.delivery) for again in worker.asked] == [(asked.id, asked.delivery)] * RETRIES
    # Too late: its answer changes nothing for the present holder.
    worker.confirm(asked)
    worker.refuse(asked, "cancel", "gone")
    await worker.settle()
    assert (await other.retract(node, "i1", passed.token)).error == ""


async def test_silence_after_received(join: Join, join_worker: JoinWorker) -> None:
    """S12: `deliver` is tried again as the item was, and after silence the item goes to another."""
    other = await join()
    _, worker, node, asked = await entrusted(join, join_worker, "assured")
    worker.received(asked)
    await other.subscribe(node)
    assert (await other.next(Delivery)).item == "i1"
    # On a busy machine the first step may have been repeated before it was answered.
    delivers = [again.message_id for again in worker.asked if again.what == "deliver"]
    assert delivers == [asked.message_id] * (RETRIES + 1)


async def test_offline(join: Join, join_worker: JoinWorker) -> None:
    """Q18: the server's own error for a worker that disconnected without a word gives back all its items, at once."""
    owner, worker, node, asked = await entrusted(join, join_worker, "acknowledged")
    worker.confirm(asked)
    await worker.subscribe_at(node, "acknowledged", 2)
    await worker.settle()
    worker.vanish()
    other = await join()
    await other.subscribe(node, 3)
    for name in ("i2", "i3"):
        await owner.publish(node, name)
    assert {(await other.next(Delivery)).item for _ in range(3)} == {"i1", "i2", "i3"}


async def test_forged(join: Join, join_worker: JoinWorker) -> None:
    """Bad input: replies of strangers, of other locks and of no lock at all, and `received` of something else."""
    _, worker, node, asked = await entrusted(join, join_worker, "assured")
    stranger = await join_worker()
    stranger.received(asked)
    stranger.refuse(asked, "cancel", "gone")
    token, position, rest = asked.id.removeprefix("sq:s:").split(":", 2)
    forged = [
        f"sq:s:{int(token) + 1}:{position}:{rest}",
        f"sq:s:{token}:1-1:{rest}",
        f"sq:d:{token}:{position}:{rest}",
        f"sq:a:{token}:{position}:{rest}",
        f"sq:{token}:{position}:{rest}",
        f"sq:s:{token}:{position}:nothing@00/0",
        f"sq:s:{'9' * 400}:{position}:{rest}",
        "sq:",
    ]
    for name in forged:
        false = Asked("", name, asked.sender, asked.message_id, None, asked.element)
        worker.received(false)
        worker.refuse(false, "cancel", "gone")
    for inside in ("", "<received/>", "<received msgId='another'/>", "<banana/>"):
        worker.confirm(asked, inside)
    await worker.settle()
    assert [again.what for again in worker.asked if again.what != "assured"] == []
    worker.asked.clear()
    worker.received(asked)
    worker.received(asked)
    go = await worker.next_asked()
    while go.what != "deliver":
        go = await worker.next_asked()
    worker.confirm(go)
    worker.confirm(go)
    # Stanzas sent at once may overtake each other: each goes to any frontend.
    await worker.settle()
    worker.refuse(go, "cancel", "gone")
    await worker.settle()
    assert asked.delivery and (await worker.retract(node, "i1", asked.delivery.token)).error == ""


async def test_many_over_both_frontends(join: Join, join_worker: JoinWorker) -> None:
    """SX13: replies reach any frontend, and every handshake is completed."""
    owner, worker = await join(), await join_worker()
    node = await owner.queue()
    await worker.subscribe_at(node, "assured", 5)
    for number in range(20):
        await owner.publish(node, f"i{number}")
    begun: dict[str, Delivery] = {}
    done: list[str] = []
    while len(done) < 20:
        asked = await worker.next_asked()
        if asked.what == "assured":
            assert asked.delivery
            begun[asked.message_id] = asked.delivery
            worker.received(asked)
            continue
        worker.confirm(asked)
        delivery = begun.pop(asked.message_id, None)
        if delivery:
            done.append(delivery.item)
            assert (await worker.retract(node, delivery.item, delivery.token)).error == ""
    assert sorted(done) == sorted(f"i{number}" for number in range(20))
    await worker.settle()
    assert await owner.browse(node) == []


async def test_frontend_killed_between_the_steps(service: Service, join: Join, join_worker: JoinWorker) -> None:
    """X8, SX13: a frontend dies after it got `received`; each item is begun once all the same, with one token."""
    owner, worker = await join(), await join_worker()
    node = await owner.queue()
    await worker.subscribe_at(node, "assured", 10)
    for number in range(10):
        await owner.publish(node, f"i{number}")
    held = [await worker.next_asked() for _ in range(10)]
    for asked in held:
        worker.received(asked)
    service.frontends[0].kill()
    known = {asked.message_id: asked.delivery for asked in held}
    begun: list[str] = []
    while len(begun) < 10:
        asked = await worker.next_asked()
        assert asked.message_id in known
        if asked.what == "assured":
            worker.received(asked)
            continue
        worker.confirm(asked)
        if asked.message_id not in begun:
            begun.append(asked.message_id)
    await worker.wait_for_routes()
    for delivery in known.values():
        assert delivery and (await worker.retract(node, delivery.item, delivery.token)).error == ""
    service.frontends[0].start()
    await eventually(lambda: not service.faults(), "the service did not become whole again")
    assert await owner.browse(node) == []


async def test_frontends_stand(service: Service, join: Join) -> None:
    """Both frontends are alive and ready."""
    await (await join()).settle()
    assert service.faults() == []
