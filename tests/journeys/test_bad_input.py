"""Bad input is a clear error for its sender and nothing for others (guarantee 7), through ejabberd and directly."""

import asyncio
import itertools
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor

import pytest

from tests.journeys.client import (
    COMMANDS,
    DISCO_ITEMS,
    OWNER,
    PUBSUB,
    Client,
    Delivery,
    submitted,
)
from tests.journeys.conftest import Join
from tests.journeys.fake import FakeServer, condition
from tests.journeys.service import DOMAIN, Frontend, Service
from tests.waiting import PATIENCE_SECONDS

JOB = "<job xmlns='urn:x'/>"
OPTIONS = f"{PUBSUB}#subscribe_options"
QOS = "urn:xmpp:qos"

NO_SUBID = "modify not-acceptable invalid-subid"
NO_NODE = "modify bad-request nodeid-required"
BAD = "modify bad-request"
UNKNOWN = "cancel item-not-found"
BAD_OPTIONS = "modify bad-request invalid-options"
BAD_PAYLOAD = "modify bad-request invalid-payload"
TOO_BIG = "modify not-acceptable payload-too-big"
NO_OPTIONS = "modify not-acceptable configuration-required"


def _pubsub(inside: str, namespace: str = PUBSUB) -> str:
    return f"<pubsub xmlns='{namespace}'>{inside}</pubsub>"


def _credit(form: str) -> str:
    return _pubsub(f"<subscribe node='NODE' jid='JID'/><options>{form}</options>")


def _credits(value: str) -> str:
    return _credit(submitted(OPTIONS, {"pubsub#queue_requests": value}))


def _publish(payload: str, item: str = "i1") -> str:
    return _pubsub(f"<publish node='NODE'><item id='{item}'>{payload}</item></publish>")


def _command(about: str, inside: str = "") -> str:
    return f"<command xmlns='{COMMANDS}' node='{PUBSUB}#get-pending' {about}>{inside}</command>"


def _nested(levels: int) -> str:
    return "<a xmlns='urn:x'>" + "<a>" * (levels - 1) + "</a>" * levels


RSM = "http://jabber.org/protocol/rsm"
MESSAGE = f"<message xmlns='jabber:client'>{_publish(JOB)}</message>"


CASES = {
    "publish without node": ("set", _pubsub(f"<publish><item>{JOB}</item></publish>"), NO_NODE),
    "publish to an unknown node": ("set", _pubsub(f"<publish node='?'><item>{JOB}</item></publish>"), UNKNOWN),
    "a subscription of no state": (
        "set",
        _pubsub("<subscriptions node='NODE'><subscription jid='a@x' subscription='x'/></subscriptions>", OWNER),
        BAD,
    ),
    "a command that dances": ("set", _command("action='dance'"), f"{BAD} malformed-action"),
    "credit of 100,000 digits": ("set", _credits("9" * 100_000), BAD_OPTIONS),
    "10,000 options": ("set", _credit(submitted(OPTIONS, {f"f{n}": "1" for n in range(10_000)})), NO_OPTIONS),
    "payload over the node's limit": ("set", _publish(f"<job xmlns='urn:x'>{'x' * 5000}</job>"), TOO_BIG),
    "payload over any limit": ("set", _publish(f"<job xmlns='urn:x'>{'x' * 500_000}</job>"), TOO_BIG),
    "payload of 100,000 levels": ("set", _publish(_nested(100_000)), BAD_PAYLOAD),
    "request of 100,000 levels": ("set", _nested(100_000), BAD_PAYLOAD),
    "item id of 500 kB": ("set", _publish(JOB, "i" * 500_000), BAD),
    "a lease that is over": (
        "set",
        _credit(submitted(OPTIONS, {"pubsub#queue_requests": "1", "pubsub#expire": "2001-01-01T00:00:00Z"})),
        BAD_OPTIONS,
    ),
    "a page after what never was": (
        "get",
        _pubsub(f"<items node='NODE'/><set xmlns='{RSM}'><after>{'a' * 100_000}</after></set>"),
        UNKNOWN,
    ),
    "nodes after one that never was": (
        "get",
        f"<query xmlns='{DISCO_ITEMS}'><set xmlns='{RSM}'><before>{'a' * 100_000}</before></set></query>",
        UNKNOWN,
    ),
    "another protocol": ("get", "<query xmlns='jabber:iq:last'/>", "cancel service-unavailable"),
    "items of a subscription that is none": ("get", _pubsub("<items node='NODE' subid='7'/>"), NO_SUBID),
    "a subscriber that is none": (
        "set",
        _pubsub(
            "<subscriptions node='NODE'><subscription jid='@@//' subscription='subscribed'/></subscriptions>", OWNER
        ),
        "modify not-acceptable",
    ),
    "what is below an unknown node": ("get", f"<query xmlns='{DISCO_ITEMS}' node='?'/>", UNKNOWN),
    "assured without msgId": ("set", f"<assured xmlns='{QOS}'>{MESSAGE}</assured>", BAD),
    "a namespace with a brace": ("set", "<a xmlns='urn:{x}y'/>", "cancel service-unavailable"),
}
"""One of each way to be refused; the unit tests of the door and of the core have all of a way's."""


class Neighbours:
    """Two others, with a loop of their own: they stay connected through all that is sent here."""

    def __init__(self, service: Service) -> None:
        """Choose their service."""
        self._service = service
        self._there: Future[asyncio.AbstractEventLoop] = Future()
        self._gone = asyncio.Event()
        self._numbers = itertools.count(1)

    async def run(self) -> None:
        """Connect, subscribe, and stay until told to go."""
        server = self._service.ejabberd
        clients = [Client(server.c2s_port, self._service.domain, server.anonymous) for _ in range(2)]
        self._publisher, self._worker = clients
        for client in clients:
            await client.open()
        self._node = await self._publisher.queue()
        assert (await self._worker.subscribe(self._node)).error == ""
        self._there.set_result(asyncio.get_running_loop())
        await self._gone.wait()
        for client in clients:
            await client.close()

    def work(self) -> None:
        """Publish, deliver and acknowledge one item."""
        loop = self._there.result(PATIENCE_SECONDS)
        asyncio.run_coroutine_threadsafe(self._work(f"i{next(self._numbers)}"), loop).result()

    async def _work(self, item: str) -> None:
        assert (await self._publisher.publish(self._node, item)).error == ""
        delivery = await self._worker.next(Delivery)
        assert delivery.item == item
        assert (await self._worker.retract(self._node, item, delivery.token)).error == ""

    def go(self) -> None:
        """Tell them to go."""
        self._there.result(PATIENCE_SECONDS).call_soon_threadsafe(self._gone.set)


@pytest.fixture(scope="module")
def neighbours(service: Service) -> Iterator[Neighbours]:
    """Provide others, who are connected all the time."""
    found = Neighbours(service)
    with ThreadPoolExecutor(1) as aside:
        running = aside.submit(asyncio.run, found.run())
        yield found
        found.go()
        running.result()


async def _nothing_happened(service: Service, neighbours: Neighbours, *clients: Client) -> None:
    for client in clients:
        await client.settle()
        # Every IQ has exactly one answer (Q26).
        assert set(client.answers.values()) == {1}
    assert service.faults() == []
    await asyncio.to_thread(neighbours.work)


@pytest.mark.parametrize(("kind", "payload", "error"), CASES.values(), ids=CASES.keys())
async def test_refused(
    service: Service, join: Join, neighbours: Neighbours, *, kind: str, payload: str, error: str
) -> None:
    """Each bad request has its error, once, and changes nothing for anybody."""
    client = await join()
    node = await client.queue({"pubsub#max_payload_size": "4096"})
    # Twice, so that both frontends probably get it.
    for _ in range(2):
        assert (await client.ask(payload.replace("NODE", node).replace("JID", client.jid), kind)).error == error
    assert await client.browse(node) == []
    await _nothing_happened(service, neighbours, client)


async def test_undeclared_prefix(service: Service, join: Join, neighbours: Neighbours) -> None:
    """A prefix that was declared on the stanza, whose declaration servers drop, is an error for its sender and ends no stream."""
    client = await join()
    node = await client.queue()
    for _ in range(4):
        future = asyncio.create_task(client.ask(f"<pubsub xmlns='{PUBSUB}'/>", request=f"plain-{_}"))
        client.send(
            f"<iq type='set' id='prefix-{_}' to='{DOMAIN}' xmlns:p='urn:p'><pubsub xmlns='{PUBSUB}'>"
            f"<publish node='{node}'><item><p:job/></item></publish></pubsub></iq>"
        )
        assert (await future).error == BAD
    await _nothing_happened(service, neighbours, client)


async def test_someone_elses(service: Service, join: Join, neighbours: Neighbours) -> None:
    """Nobody ends another's lock: not by retract or unlock, with or without its token, not by a forged bounce."""
    worker, thief = await join(), await join()
    node = await worker.queue()
    await worker.subscribe(node)
    await worker.publish(node, "i1")
    held = await worker.next(Delivery)
    for token in (None, held.token):
        assert (await thief.retract(node, "i1", token)).error == "auth forbidden"
        assert (await thief.unlock(node, "i1", token)).error == "auth forbidden"
    identity = held.message.get("id")
    error = "<error type='cancel'><gone xmlns='urn:ietf:params:xml:ns:xmpp-stanzas'/></error>"
    for _ in range(4):
        thief.send(f"<message type='error' id='{identity}' to='{DOMAIN}'>{error}</message>")
    await _nothing_happened(service, neighbours, thief, worker)
    assert worker.left(Delivery) == []
    assert (await worker.retract(node, "i1", held.token)).error == ""


async def test_outcast(service: Service, join: Join, neighbours: Neighbours) -> None:
    """An outcast may do nothing, and does nothing to others (P6)."""
    owner, outcast = await join(), await join()
    node = await owner.queue()
    await owner.affiliate(node, outcast.bare, "outcast")
    for payload in (_credits("1"), _publish(JOB), _pubsub("<retract node='NODE'><item id='i1'/></retract>")):
        answer = await outcast.ask(payload.replace("NODE", node).replace("JID", outcast.jid))
        assert answer.error == "auth forbidden"
    await _nothing_happened(service, neighbours, outcast)


GARBAGE = (
    f"<iq type='get' to='{DOMAIN}'><query xmlns='urn:x'/></iq>",
    f"<iq type='result' id='nobody-asked' to='{DOMAIN}'/>",
    f"<iq type='error' id='nobody-asked' to='{DOMAIN}'/>",
    f"<message type='chat' to='{DOMAIN}'><body>hello</body></message>",
    "".join(
        f"<message type='error' id='{name}' to='{DOMAIN}'/>"
        for name in (
            "sq:",
            "sq:1:1-1:x",
            "sq:1:1-1:n@i/0",
            "sq:99999999999999999999:1-1:n@i/0",
            "sq:1:1-1:n@i/\u0663",
            "x",
        )
    ),
    f"<presence to='{DOMAIN}' type='frobnicate'/>",
    f"<presence to='{DOMAIN}' type='error'/>",
    f"<presence to='{DOMAIN}/nobody'/><presence to='nobody@{DOMAIN}'/>",
    f"<presence to='{DOMAIN}'><status>{'x' * 100_000}</status></presence>",
    " \n\t ",
)


async def test_garbage(service: Service, join: Join, neighbours: Neighbours) -> None:
    """Stanzas that request nothing are ignored."""
    client = await join()
    for text in GARBAGE:
        for _ in range(4):
            client.send(text)
        await client.settle()
    await _nothing_happened(service, neighbours, client)


async def test_presence_subscription(join: Join) -> None:
    """A request to see the service's presence is granted, and the stream continues."""
    client = await join()
    client.send(f"<presence to='{DOMAIN}' type='subscribe'/><presence to='{DOMAIN}' type='probe'/>")
    await client.settle()
    assert set(client.answers.values()) == {1}


# Directly: stanzas that a correct server would never pass on.


@pytest.fixture(scope="module")
def fake() -> Iterator[tuple[FakeServer, Frontend]]:
    """Provide a server that sends anything, and a frontend connected to it with a Redis of its own."""
    with FakeServer() as server, ThreadPoolExecutor(1) as aside:
        greeted = aside.submit(server.accept)
        with Frontend("embedded://", server.port, server.secret) as frontend:
            greeted.result()
            _works(server, frontend)
            yield server, frontend


_count = iter(range(10**9))


def _works(server: FakeServer, frontend: Frontend) -> None:
    """Create, subscribe, publish, deliver and acknowledge, as another client of the same stream."""
    number, before = next(_count), len(server.heard)
    worker, node = f"neighbour@example.org/{number}", f"node-{number}"
    server.ask(_pubsub(f"<create node='{node}'/>"), worker, f"create-{number}")
    server.ask(_credits("1").replace("NODE", node).replace("JID", worker), worker, f"subscribe-{number}")
    server.ask(_publish(JOB).replace("NODE", node), worker, f"publish-{number}")
    answer = server.ask(_pubsub(f"<retract node='{node}'><item id='i1'/></retract>"), worker, f"retract-{number}")[-1]
    assert condition(answer) == ""
    # The delivery, and the notification that the item is gone.
    messages = [stanza for stanza in server.heard[before:] if stanza.tag.endswith("}message")]
    assert [stanza.get("to") for stanza in messages] == [worker, worker]
    assert frontend.alive and frontend.get("/livez") == frontend.get("/readyz") == 200


@pytest.mark.parametrize(
    ("payload", "error"),
    [
        (_publish(_nested(1_000_000)), BAD_PAYLOAD),
        (_nested(1_000_000), BAD_PAYLOAD),
        (_publish(JOB, "i" * 1_048_576), BAD),
        (_publish(f"<job xmlns='urn:x'>{'x' * 8_388_608}</job>"), TOO_BIG),
        ("<a:b/>", BAD),
    ],
    ids=[
        "a million levels in an item",
        "a million levels",
        "1 MB of item id",
        "8 MB of payload",
        "a prefix of nothing",
    ],
)
def test_monsters(fake: tuple[FakeServer, Frontend], payload: str, error: str) -> None:
    """A stanza of any size, depth or shape is at most an error for its sender."""
    server, frontend = fake
    heard = server.ask(payload.replace("NODE", "node-0"), "mallory@example.org/x", "monster")
    assert condition(heard[-1]) == error
    _works(server, frontend)
    assert [stanza.get("id") for stanza in server.heard].count("monster") == 1
    server.heard.clear()


STRAYS = (
    f"<iq type='get' from='m@x/y' to='{DOMAIN}'><query xmlns='urn:x'/></iq>",
    f"<iq type='get' id='1' to='{DOMAIN}'><query xmlns='urn:x'/></iq>",
    "<iq/>",
    "<frobnicate from='m@x/y'/><stream:frobnicate/>",
    "<message/>",
    "<presence/>",
    f"<message from='m@x/y' type='error' id='sq:1:1-1:n@i/0'>{_nested(1_000_000)}</message>",
)


def test_strays(fake: tuple[FakeServer, Frontend]) -> None:
    """Stanzas without an answer are ignored, and other clients are served."""
    server, frontend = fake
    for text in STRAYS:
        server.send(text)
        _works(server, frontend)


def test_iq_of_no_kind(fake: tuple[FakeServer, Frontend]) -> None:
    """An IQ that is neither get nor set is an error."""
    server, frontend = fake
    heard = server.ask("<query xmlns='urn:x'/>", "m@x/y", "kind", "frobnicate")
    assert condition(heard[-1]) == BAD
    _works(server, frontend)


_LAUGHS = "<!ENTITY a 'ha'>" + "".join(
    f"<!ENTITY {b} '{f'&{a};' * 10}'>" for a, b in zip("abcdefgh", "bcdefghi", strict=True)
)
_STREAM = (
    "<stream:stream xmlns='jabber:component:accept' xmlns:stream='http://etherx.jabber.org/streams'"
    f" from='{DOMAIN}' id='ID'>"
)


@pytest.mark.parametrize(
    "header",
    [
        f"<?xml version='1.0'?><!DOCTYPE s [{_LAUGHS}]>{_STREAM.replace('ID', '&i;')}",
        f"<!DOCTYPE s SYSTEM 'file:///etc/passwd'>{_STREAM}",
        f"<!DOCTYPE s [<!ENTITY % e SYSTEM 'http://127.0.0.1:1/'>%e;]>{_STREAM}",
        "HTTP/1.1 400 Bad Request\r\n\r\n",
    ],
    ids=["a billion laughs", "a file", "a page", "no XML"],
)
def test_stream_with_document_type(fake: tuple[FakeServer, Frontend], header: str) -> None:
    """A stream that defines entities is closed before any is expanded, and a new one is opened."""
    server, frontend = fake
    server.send("</stream:stream>")
    server.dropped()
    server.greet(header)
    server.dropped()
    server.accept()
    _eventually_works(server, frontend)


@pytest.mark.parametrize("text", ["<!DOCTYPE s>", "\xff\xfe\x00"])
def test_stream_broken(fake: tuple[FakeServer, Frontend], text: str) -> None:
    """Malformed XML ends the stream, not the frontend, which reconnects."""
    server, frontend = fake
    server.send(text.encode("latin-1"))
    server.dropped()
    server.accept()
    _eventually_works(server, frontend)


def _eventually_works(server: FakeServer, frontend: Frontend) -> None:
    frontend.process.wait_until(frontend._ready, 10)
    _works(server, frontend)
