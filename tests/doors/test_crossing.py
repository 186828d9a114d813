"""One item through two doors: content and headers survive for all pairs of doors and all kinds of payloads.

The XMPP door takes part without its server: its translators over a core of this process.
"""

import asyncio
from base64 import b64decode, b64encode
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from secrets import token_hex
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from proton import Message, symbol

from broker.model.commands import Declare
from broker.model.items.items import Delivery
from broker.model.names import Jid
from broker.model.results import Declared, Published, Result, Subscribed
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer, valkey_binary
from frontends.xmpp import namespaces as ns
from frontends.xmpp import requests
from frontends.xmpp.messages import deliveries
from frontends.xmpp.stanzas import Iq, Question
from tests.admitting import ADMITTING
from tests.contract.conftest import Door
from tests.doors.amqp.served import AmqpFrontend, annotations, connected, consumer, one, producer
from tests.doors.frontend import ALICE
from tests.doors.rest.served import RestFrontend, client
from tests.waiting import PATIENCE_SECONDS

ME = f"{ALICE}/x"
SERVICE = "queue.example.org"
ELEMENT, JSON, TEXT, BYTES = "application/xml", "application/json", "text/plain;charset=utf-8", "image/png"


@dataclass(frozen=True, slots=True)
class Item:
    """What is published, and what every door must return."""

    body: bytes
    kind: str
    element: str = ""
    headers: tuple[tuple[str, str], ...] = (("colour", "r&d é"), ("size", "12"), ("urgent", "true"))
    key: str = "k 1"


ITEMS = (
    Item("<job xmlns='urn:x' a='b'>é &lt;</job>".encode(), ELEMENT, "<job xmlns='urn:x' a='b'>é &lt;</job>"),
    Item(b"<?xml version='1.0'?>\n<job><a/></job>\n", "text/xml", "<job xmlns=''><a/></job>"),
    Item(b"<job xmlns='urn:x'>", ELEMENT),
    Item('{"a": "<é>"}'.encode(), JSON),
    Item("hällo\n".encode(), TEXT),
    Item(bytes(range(256)), BYTES),
    Item(b"", BYTES),
    Item(b"plain", "application/octet-stream", headers=(), key=""),
)
"""XML of XMPP's own form, other XML, malformed XML, JSON, text, bytes, nothing, and bytes without a type."""


class Xmpp:
    """The door's translators, on a core of its own."""

    def __init__(self, core: RedisCore, door: Door) -> None:
        """Begin."""
        self._core = core
        self._door = door

    async def _asked(self, inside: str) -> Result:
        iq = ET.fromstring(f"<iq xmlns='{ns.COMPONENT}' type='set'><pubsub xmlns='{ns.PUBSUB}'>{inside}</pubsub></iq>")
        question = requests.read(Iq("1", "set", Jid(ME), SERVICE, iq))
        assert isinstance(question, Question)
        return await self._core.ask(question.command)

    async def send(self, node: str, item: Item) -> None:
        """Publish as a client of XMPP would."""
        if item.element and item.kind == ELEMENT:
            payload = item.element
        elif item.kind == JSON:
            payload = f"<json xmlns='{ns.JSON}'>{item.body.decode().replace('<', '&lt;')}</json>"
        else:
            payload = f"<data xmlns='{ns.STANZAQ}' type='{item.kind}'>{b64encode(item.body).decode()}</data>"
        said = "".join(f"<header name='{name}'>{text.replace('&', '&amp;')}</header>" for name, text in item.headers)
        headers = f"<headers xmlns='{ns.SHIM}'>{said}</headers>" if said else ""
        key = f" xmlns:q='{ns.STANZAQ}' q:key='{item.key}'" if item.key else ""
        done = await self._asked(f"<publish node='{node}'><item{key}>{payload}{headers}</item></publish>")
        assert isinstance(done, Published)

    async def check(self, node: str, items: tuple[Item, ...]) -> None:
        """Read a log as a reader over XMPP is sent it."""
        start = "<field var='stanzaq#start'><value>@earliest</value></field>"
        form = f"<x xmlns='{ns.FORM}' type='submit'>{start}</x>"
        done = await self._asked(f"<subscribe node='{node}' jid='{ME}'/><options>{form}</options>")
        assert isinstance(done, Subscribed)

        def received() -> list[Delivery]:
            # Entries of the logs of earlier tests come too: their readers' frontend is found dead after two seconds.
            return [each for each in self._door.deliveries if each.partition.node == node]

        await self._door.until(lambda: len(received()) == len(items))
        for item, delivery in zip(items, received(), strict=True):
            written = deliveries.write_delivery(SERVICE, delivery)
            message = ET.fromstring(written.replace(b"<message", f"<message xmlns='{ns.CLIENT}'".encode(), 1))
            found, *_ = message.iter(f"{{{ns.PUBSUB_EVENT}}}item")
            (payload,) = found
            if item.element:
                assert f"{item.element}</item>".encode() in written
            elif item.kind == JSON:
                assert (payload.tag, payload.text) == (f"{{{ns.JSON}}}json", item.body.decode())
            else:
                assert (payload.tag, payload.get("type")) == (f"{{{ns.STANZAQ}}}data", item.kind)
                assert b64decode(payload.text or "") == item.body
            told = {each.get("name"): each.text for each in message.iter(f"{{{ns.SHIM}}}header")}
            assert told == dict(item.headers)
            (position,) = message.iter(f"{{{ns.STANZAQ}}}position")
            assert position.get("key", "") == item.key


class Rest:
    """The door as a process."""

    def __init__(self, frontend: RestFrontend) -> None:
        """Use this frontend."""
        self._frontend = frontend

    def send(self, node: str, item: Item) -> None:
        """Publish over HTTP, under an id: so an empty body is a message, too."""
        told = {"Content-Type": item.kind, **{f"Item-{name}": text for name, text in item.headers}}
        said = [(name.encode(), text.encode()) for name, text in told.items()]
        if item.key:
            said.append((b"Group-Key", item.key.encode()))
        with client(self._frontend) as http:
            done = http.post(f"/queues/{node}", params={"guid": token_hex(4)}, content=item.body, headers=said)
        assert done.status_code == 200, done.text

    def check(self, node: str, items: tuple[Item, ...]) -> None:
        """Read the messages of a log, and each one's content."""
        with client(self._frontend, Accept="application/json") as http:
            shown = http.get(f"/queues/{node}").json()["messages"]
            keys = [each["group_key"] for each in http.get(f"/surveys/{node}").json()["items"]]
            atom = http.get(f"/queues/{node}", headers={"Accept": "application/atom+xml"}).text
            assert keys == [item.key for item in items]
            for item, each in zip(items, shown, strict=True):
                assert (each["content_type"], each["headers"]) == (item.kind, dict(item.headers))
                got = http.get(each["content_href"])
                assert (got.content, got.headers["Content-Type"]) == (item.body, item.kind)
                assert not item.element or f"<content type='{item.kind}'>{item.element}</content>" in atom


class Amqp:
    """The door as a process."""

    def __init__(self, frontend: AmqpFrontend) -> None:
        """Use this frontend."""
        self._frontend = frontend

    def send(self, node: str, item: Item) -> None:
        """Send it, headers as values of their types."""
        types: dict[str, Callable[[str], Any]] = {"size": int, "urgent": bool}
        said: Any = {name: types.get(name, str)(text) for name, text in item.headers}
        body: Any = item.body.decode() if item.kind == TEXT else item.body
        key = {symbol("event-streams-group-key"): item.key} if item.key else None
        message = Message(
            body=body, inferred=item.kind not in {TEXT, JSON}, content_type=item.kind, properties=said, annotations=key
        )
        with connected(self._frontend) as connection:
            producer(connection, node).send(message)

    def check(self, node: str, items: tuple[Item, ...]) -> None:
        """Read it from the start."""
        with connected(self._frontend) as connection:
            receiver = consumer(connection, node, annotations(offset=symbol("@earliest")), credit=50)
            for item in items:
                came = one(receiver)
                body: Any = came.body
                assert (body.encode() if isinstance(body, str) else bytes(body)) == item.body
                # Proton's word for none.
                assert {"None": "application/octet-stream"}.get(came.content_type, came.content_type) == item.kind
                said: Any = came.properties
                told = {name: str(value) for name, value in (said or {}).items()}
                assert {name: text.replace("True", "true") for name, text in told.items()} == dict(item.headers)
                keys = {str(name): value for name, value in (came.annotations or {}).items()}
                assert keys == ({"event-streams-group-key": item.key} if item.key else {})


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@contextmanager
def frontends(url: str) -> Iterator[tuple[RestFrontend, AmqpFrontend]]:
    """Start the doors that are processes."""
    with RestFrontend(url) as rest, AmqpFrontend(url) as amqp:
        yield rest, amqp


@pytest.fixture(scope="module")
def processes(redis: RedisServer) -> Iterator[tuple[RestFrontend, AmqpFrontend]]:
    """Return the doors that are processes."""
    with frontends(redis.url) as both:
        yield both


Doors = dict[str, Xmpp | Rest | Amqp]


@pytest.fixture
async def doors(redis: RedisServer, processes: tuple[RestFrontend, AmqpFrontend]) -> AsyncIterator[Doors]:
    """Return all doors by their names."""
    door = Door()
    core = RedisCore(
        CommandSettings(**ADMITTING, redis_url=redis.url, node_quota=100_000, partition_quota=1_000_000), door
    )
    await core.start()
    yield {"xmpp": Xmpp(core, door), "rest": Rest(processes[0]), "amqp": Amqp(processes[1])}
    await core.stop()


@pytest.fixture
async def log(redis: RedisServer) -> str:
    """Return a new log."""
    core = RedisCore(
        CommandSettings(**ADMITTING, redis_url=redis.url, node_quota=100_000, partition_quota=1_000_000), None
    )
    node = f"log-{token_hex(4)}"
    fields = {"{urn:xmpp:pubsub:queueing:0}enabled": ("0",), "stanzaq#retention_items": ("1000",)}
    try:
        assert await core.ask(Declare(node, Jid(ALICE), fields)) == Declared(node)
    finally:
        await core.stop()
    return node


@pytest.mark.parametrize("sender", ["xmpp", "rest", "amqp"])
async def test_crosses(doors: Doors, log: str, sender: str) -> None:
    """Issue 10: each kind of payload is the same at every door, with type, headers and group key."""
    for item in ITEMS:
        await _done(doors[sender].send, log, item)
    for door in doors.values():
        await _done(door.check, log, ITEMS)


def test_subscriptions_of_another_door(processes: tuple[RestFrontend, AmqpFrontend]) -> None:
    """A consumer over AMQP pulls its items as one over HTTP does, and is none: it is not listed there."""
    rest, amqp = processes
    with client(rest) as http, connected(amqp) as connection:
        queue = f"pulled-{token_hex(4)}"
        http.put(f"/queues/{queue}").raise_for_status()
        consumer(connection, queue)
        own = http.post("/subscriptions", json={"destinations": [queue]}).json()["href"]
        assert [each["href"] for each in http.get("/subscriptions").json()["subscriptions"]] == [own]


async def _done(step: Callable[..., Awaitable[None] | None], *what: object) -> None:
    """Run a door's function without blocking the core of this process."""
    doing = step(*what) if asyncio.iscoroutinefunction(step) else asyncio.to_thread(step, *what)
    assert doing is not None
    await asyncio.wait_for(doing, PATIENCE_SECONDS)
