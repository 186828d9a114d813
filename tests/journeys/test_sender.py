"""The plugin for senders against the service, while frontends and the sender itself are killed."""

import asyncio
import dataclasses
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from stanzaq.xep_qos import MemoryOutbox, Outbox, Outstanding, Refused, Step
from tests.journeys.client import Client
from tests.journeys.conftest import Join
from tests.journeys.sender import Sender
from tests.journeys.service import DURABLE, Service, serving
from tests.waiting import PATIENCE_SECONDS

DOMAIN: Final = "sender.localhost"

Enter = Callable[..., Awaitable[Sender]]


@pytest.fixture(scope="module")
def service(ejabberd: Ejabberd) -> Iterator[Service]:
    """Give a service of this module's own, whose frontends may be killed."""
    with serving(ejabberd, DOMAIN, DURABLE) as service:
        yield service


@pytest.fixture(autouse=True)
def whole(service: Service) -> Iterator[None]:
    """Start again what a test has killed."""
    yield
    service.revive()


@pytest.fixture
async def enter(service: Service, account: tuple[str, str]) -> AsyncIterator[Enter]:
    """Give the maker of senders: all of one account and resource, unless another JID is given."""
    senders: list[Sender] = []
    bare, password = account

    async def make(outbox: Outbox | None = None, jid: str = "") -> Sender:
        sender = Sender(jid or f"{bare}/desk", password, outbox)
        senders.append(sender)
        await sender.open(service.ejabberd.c2s_port)
        return sender

    yield make
    await asyncio.gather(*(sender.close() for sender in senders))


@pytest.fixture
async def owner(join: Join) -> Client:
    """Give somebody who makes nodes and looks at them."""
    return await join()


class Snare(MemoryOutbox):
    """An outbox at which something happens between the two steps: when <deliver/> is about to be sent."""

    def __init__(self, between: Callable[[], object]) -> None:
        """Choose what."""
        super().__init__()
        self._between = between

    def save(self, sent: Outstanding) -> None:
        """Keep a message, and let it happen."""
        super().save(sent)
        if sent.step is Step.DELIVER:
            self._between()


def _job() -> Element:
    return ET.fromstring(f"<job xmlns='urn:example:job'>{secrets.token_hex(8)}</job>")


async def _texts(owner: Client, node: str) -> list[str | None]:
    await owner.wait_for_routes()
    return [item[0].text for item in await owner.browse(node)]


async def test_support(enter: Enter) -> None:
    """The service says that it speaks QoS; the server beside it does not."""
    sender = await enter()
    assert await sender.qos.supported(DOMAIN)
    assert not await sender.qos.supported("localhost")


async def test_each_level(enter: Enter, owner: Client) -> None:
    """What is acknowledged or delivered is in the queue, once, as it was sent."""
    sender, node = await enter(), await owner.queue()
    jobs = [_job(), _job()]
    await sender.qos.send_acknowledged(jobs[0], f"{node}@{DOMAIN}")
    await sender.qos.send_assured(jobs[1], f"{node}@{DOMAIN}")
    assert await _texts(owner, node) == [job.text for job in jobs]


def _kill_frontend(service: Service) -> None:
    service.frontends[0].kill()


def _kill_redis(service: Service) -> None:
    service.redis.kill()
    asyncio.get_running_loop().call_later(1.0, service.redis.start)


@pytest.mark.parametrize("kill", [_kill_frontend, _kill_redis])
async def test_killed_between_the_steps(
    kill: Callable[[Service], None], service: Service, enter: Enter, owner: Client
) -> None:
    """What dies when the message is held, and has yet to be delivered, costs time and nothing else."""
    node = await owner.queue()
    outbox = Snare(lambda: kill(service))
    sender, job = await enter(outbox), _job()
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sender.qos.send_assured(job, f"{node}@{DOMAIN}")
    assert await _texts(owner, node) == [job.text]
    assert outbox.pending() == []


async def test_killed_under_load(service: Service, enter: Enter, owner: Client) -> None:
    """Of many assured messages under way when a frontend dies, each is in the queue once."""
    node = await owner.queue()
    sender, jobs = await enter(), [_job() for _job_number in range(40)]
    sending = [asyncio.create_task(sender.qos.send_assured(job, f"{node}@{DOMAIN}")) for job in jobs]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        service.frontends[1].kill()
        await asyncio.gather(*sending)
    assert sorted(str(text) for text in await _texts(owner, node)) == sorted(str(job.text) for job in jobs)


async def test_nobody_there(service: Service, enter: Enter, owner: Client) -> None:
    """While no frontend runs, an ejabberd without s2s says no in their place: the sender is told, and nothing comes later."""
    node = await owner.queue()
    sender = await enter()
    for frontend in service.frontends:
        frontend.kill()
    with pytest.raises(Refused) as told:
        await sender.qos.send_assured(_job(), f"{node}@{DOMAIN}")
    assert told.value.condition == "forbidden"
    service.frontends[0].start()
    assert await _texts(owner, node) == []


async def test_sender_reconnected(service: Service, enter: Enter, owner: Client) -> None:
    """A sender whose connection breaks between the steps goes on as soon as it has another, not when its patience ends."""
    node = await owner.queue()

    def between() -> None:
        sender.abort()

    outbox = Snare(between)
    sender, job = await enter(outbox), _job()
    sender.qos._timing = dataclasses.replace(sender.qos._timing, first=10 * PATIENCE_SECONDS)
    port = service.ejabberd.c2s_port
    sender.add_event_handler("disconnected", lambda _: sender.connect("127.0.0.1", port), disposable=True)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await sender.qos.send_assured(job, f"{node}@{DOMAIN}")
    assert await _texts(owner, node) == [job.text]
    assert outbox.pending() == []


async def test_sender_restarted(enter: Enter, owner: Client) -> None:
    """A sender that dies between the steps goes on when it is back, with the same outbox and resource."""
    node = await owner.queue()
    dead = asyncio.Event()
    outbox = Snare(dead.set)
    first, job = await enter(outbox), _job()
    sending = asyncio.create_task(first.qos.send_assured(job, f"{node}@{DOMAIN}"))
    await asyncio.wait_for(dead.wait(), PATIENCE_SECONDS)
    sending.cancel()
    first.abort()
    second = await enter(outbox)
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.gather(*second.qos.resume().values())
    assert await _texts(owner, node) == [job.text]
    assert outbox.pending() == []


@pytest.mark.parametrize(("level", "condition"), [("send_acknowledged", "item-not-found"), ("send_assured", "gone")])
async def test_no_such_node(level: str, condition: str, enter: Enter) -> None:
    """A node that is not there is told, soon."""
    sender = await enter()
    with pytest.raises(Refused) as told:
        await asyncio.wait_for(getattr(sender.qos, level)(_job(), f"nowhere@{DOMAIN}"), PATIENCE_SECONDS)
    assert told.value.condition == condition


async def test_not_trusted(service: Service, enter: Enter, owner: Client) -> None:
    """Somebody whom the service does not trust is told so (S18), and may still send acknowledged messages."""
    node = await owner.queue()
    stranger, job = await enter(jid=service.ejabberd.anonymous), _job()
    with pytest.raises(Refused) as told:
        await stranger.qos.send_assured(_job(), f"{node}@{DOMAIN}")
    assert told.value.condition == "not-allowed"
    await stranger.qos.send_acknowledged(job, f"{node}@{DOMAIN}")
    assert await _texts(owner, node) == [job.text]
