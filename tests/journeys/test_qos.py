"""Quality of service through a whole service (urn:xmpp:qos): three levels, two frontends, deaths between two steps."""

import asyncio
import secrets
from collections.abc import AsyncIterator, Iterator
from typing import Final
from xml.etree import ElementTree as ET
from xml.sax.saxutils import quoteattr

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from tests.journeys.client import CLIENT, PUBSUB, Answer, Client
from tests.journeys.conftest import Join
from tests.journeys.service import DURABLE, Service, comes_to, eventually, serving
from tests.waiting import PATIENCE_SECONDS

DOMAIN: Final = "qos.localhost"
QOS = "urn:xmpp:qos"
JOB = "<job xmlns='urn:x'/>"


@pytest.fixture(scope="module")
def service(ejabberd: Ejabberd) -> Iterator[Service]:
    """Provide a service of this module's own, whose messages outlive its Redis."""
    with serving(ejabberd, DOMAIN, DURABLE, EVENT_LOG=f"watch@{Ejabberd.accounts}") as service:
        yield service


@pytest.fixture(autouse=True)
async def whole(service: Service) -> AsyncIterator[None]:
    """End each test with a complete service."""
    yield
    service.revive()
    await eventually(lambda: not service.faults(), "the service did not become whole again")


@pytest.fixture
async def sender(join: Join, account: tuple[str, str]) -> Client:
    """Return a client that the service trusts."""
    return await join(*account)


def at(node: str) -> str:
    """Return the address of a node."""
    return f"{node}@{DOMAIN}"


async def acknowledged(client: Client, node: str, inside: str = JOB, mark: str = "") -> Answer:
    """Send a message at least once."""
    return await client.ask(
        f"<acknowledged xmlns='{QOS}'><message xmlns='{CLIENT}'{mark}>{inside}</message></acknowledged>", to=at(node)
    )


async def assured(client: Client, node: str, msg_id: str, inside: str = JOB) -> Answer:
    """Send the first step of an exactly-once message."""
    message = f"<message xmlns='{CLIENT}'>{inside}</message>"
    return await client.ask(f"<assured xmlns='{QOS}' msgId={quoteattr(msg_id)}>{message}</assured>", to=at(node))


async def deliver(client: Client, node: str, msg_id: str) -> Answer:
    """Send the second."""
    return await client.ask(f"<deliver xmlns='{QOS}' msgId={quoteattr(msg_id)}/>", to=at(node))


async def insistent(client: Client, node: str, msg_id: str) -> None:
    """Repeat both steps as a sender does, until the message is delivered."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        for step in (assured, deliver):
            while (await step(client, node, msg_id)).error.startswith("wait"):  # noqa: ASYNC110
                await asyncio.sleep(0.05)


async def items(client: Client, node: str) -> list[str]:
    """Return the items of a node, without what the service has added."""
    return [item.get("id", "").partition("~")[0] for item in await client.browse(node)]


async def test_the_three_levels(sender: Client) -> None:
    """S1, S15: a message goes into the queue at each level, and the address advertises this."""
    node = await sender.queue()
    info = await sender.ask("<query xmlns='http://jabber.org/protocol/disco#info'/>", "get", to=at(node))
    assert QOS in {feature.get("var") for feature in info.element.iter()}
    named = await sender.ask(f"<query xmlns='http://jabber.org/protocol/disco#info' node='{node}'/>", "get")
    assert [ET.tostring(each) for each in info.element[0]] == [ET.tostring(each) for each in named.element[0]]
    sender.send(f"<message to='{at(node)}' id='plain'>{JOB}<no-store xmlns='urn:xmpp:hints'/></message>")
    await comes_to(lambda: items(sender, node), ["plain"])
    reply = await acknowledged(sender, node, mark=" id='acknowledged'")
    assert (reply.error, len(reply.element)) == ("", 0)
    received = await assured(sender, node, "assured")
    assert received.error == "" and received.find(f"{{{QOS}}}received").get("msgId") == "assured"
    assert await items(sender, node) == ["plain", "acknowledged"]
    done = await deliver(sender, node, "assured")
    assert (done.error, len(done.element)) == ("", 0)
    assert await items(sender, node) == ["plain", "acknowledged", "assured"]


async def test_refusals_are_told(sender: Client, join: Join) -> None:
    """S13: at every level the sender learns that a message has no effect, and why."""
    node = f"none-{secrets.token_hex(4)}"
    assert (await acknowledged(sender, node)).error == "cancel item-not-found"
    await assured(sender, node, "m1")
    assert (await deliver(sender, node, "m1")).error == "cancel gone"
    sender.send(f"<message to='{at(node)}' id='lost'>{JOB}</message>")
    await eventually(lambda: any(_is_error(heard, "lost") for heard in sender.heard), "nobody told of the message")
    closed = await (await join()).create(node, {"pubsub#publish_model": "publishers"})
    assert closed.error == ""
    assert (await acknowledged(sender, node)).error == "auth forbidden"


def _is_error(heard: object, name: str) -> bool:
    return heard.get("type") == "error" and heard.get("id") == name  # type: ignore[attr-defined, no-any-return]


async def test_strangers_and_greed(sender: Client, join: Join, service: Service) -> None:
    """S18, S19, S21, SX6: untrusted is not-allowed, too much is resource-constraint, and watchers are notified."""
    watch = await join(service.ejabberd.register("watch", "secret"), "secret")
    watch.send("<presence/>")
    node = await sender.queue()
    stranger = await join()
    assert (await assured(stranger, node, "m1")).error == "cancel not-allowed"
    answers = await asyncio.gather(*(assured(sender, node, f"greed{n}") for n in range(110)))
    errors = [answer.error for answer in answers]
    assert (errors.count(""), errors.count("wait resource-constraint")) == (100, 10)
    log = "{urn:xmpp:eventlog}log"
    # A notice before the server knows the watcher is lost, and notices come once a second at most.
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not any(heard.find(log) is not None for heard in watch.heard):
            assert (await assured(stranger, node, "m1")).error == "cancel not-allowed"
            await asyncio.sleep(0.2)
    assert (await acknowledged(stranger, node)).error == ""
    for n, held in enumerate(errors):
        assert held or (await deliver(sender, node, f"greed{n}")).error == ""


async def test_another_ones_name(sender: Client) -> None:
    """S8: a sender named inside the message is overwritten with the real one."""
    node = await sender.queue()
    inside = f"<pubsub xmlns='{PUBSUB}'><publish node='{node}'><item id='i1'>{JOB}</item></publish></pubsub>"
    forged = f"<message xmlns='{CLIENT}' from='king@localhost/throne' to='x@{DOMAIN}'>{inside}</message>"
    assert (await sender.ask(f"<acknowledged xmlns='{QOS}'>{forged}</acknowledged>")).error == ""
    (item,) = await sender.browse(node)
    assert (item.get("id"), item.get("publisher")) == ("i1", sender.bare)


async def test_a_frontend_dies_between_the_steps(sender: Client, service: Service) -> None:
    """SX9: whichever frontend dies at whatever step, every message is there once."""
    node = await sender.queue()
    names = [f"m{n}" for n in range(40)]
    for name in names[:20]:
        assert (await assured(sender, node, name)).error == ""
    sending = asyncio.gather(*(_patient(sender, node, name) for name in names))
    await asyncio.sleep(0.02)
    service.frontends[0].kill()
    await sending
    await sender.wait_for_routes()
    assert sorted(await items(sender, node)) == sorted(names)


TRY_SECONDS: Final = 2


async def _patient(client: Client, node: str, name: str) -> None:
    """Repeat unanswered stanzas: a dead frontend has lost some."""
    while True:
        try:
            async with asyncio.timeout(TRY_SECONDS):
                await insistent(client, node, name)
                return
        except TimeoutError:
            pass


async def test_redis_dies_between_the_steps(sender: Client, service: Service) -> None:
    """SX7: received messages are stored, and delivered ones known, when Redis comes back."""
    node = await sender.queue()
    for name in ("held", "delivered"):
        assert (await assured(sender, node, name)).error == ""
    assert (await deliver(sender, node, "delivered")).error == ""
    service.redis.kill()
    assert (await assured(sender, node, "during")).error.startswith("wait")
    service.redis.start()
    for name in ("held", "delivered"):
        await insistent(sender, node, name)
    assert await items(sender, node) == ["delivered", "held"]
