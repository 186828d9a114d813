"""A queue at one server, with workers and publishers there and at others (docs/federation.md): servers and links fail."""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from contextlib import AsyncExitStack, ExitStack, asynccontextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Any
from xml.etree.ElementTree import Element

import pytest

from frontends.tools.servers.redis import RedisServer, valkey_binary
from stanzaq import Job, Publisher, Retry, Worker
from stanzaq.transport.account import Account
from stanzaq.xmpp import connection
from stanzaq.xmpp.connection import XmppConnection
from tests.certificates import Authority
from tests.federation import pages
from tests.federation.forger import Forger
from tests.federation.names import Names
from tests.federation.servers import SECRET, PageEjabberd, PageProsody, PageServer
from tests.journeys.service import Frontend, eventually
from tests.network import Link, network
from tests.waiting import PATIENCE_SECONDS

SERVICE = "queue.example.org"
LOCK_SECONDS = 3


@dataclass(frozen=True)
class Far:
    """A server that is not the queue's, and the links from and to the queue's."""

    server: PageServer
    coming: Link
    going: Link


@dataclass(frozen=True)
class Federation:
    """The queue's server, a frontend, and other servers by the software that they run."""

    home: PageServer
    frontend: Frontend
    far: dict[str, Far]


def _zone(site: str, port: int) -> str:
    """Give the records of the page for a site: it is here, at a port."""
    changes = (
        ("xmpp.example.org", "localhost"),
        ("example.org", site),
        ("5269", str(port)),
        ("192.0.2.1", "127.0.0.1"),
    )
    return pages.replaced(pages.block("federation.md", "zone"), *changes)


@pytest.fixture(scope="module")
def federation(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    """Give three servers that find each other by DNS; whatever passes between home and another passes a link."""
    directory = tmp_path_factory.mktemp("sites")
    with ExitStack() as stack:
        names = [stack.enter_context(Names()) for _ in range(3)]
        links = stack.enter_context(network(4))
        admitted = pages.block("federation.md", "yaml")
        home = PageEjabberd(directory / "home", "example.org", authority, names[0].port, more=admitted)
        far: dict[str, PageServer] = {
            "ejabberd": PageEjabberd(directory / "ejabberd", "example.com", authority, names[1].port),
            "prosody": PageProsody(directory / "prosody", "example.net", authority, names[2].port),
        }
        sites = {}
        for number, (kind, server) in enumerate(far.items()):
            coming, going = links[2 * number : 2 * number + 2]
            names[0].add(_zone(server.site, going.lead(server.s2s_port)))
            names[number + 1].add(_zone(home.site, coming.lead(home.s2s_port)))
            sites[kind] = Far(server, coming, going)
        servers: list[PageServer] = [home, *far.values()]
        for server in servers:
            stack.enter_context(server)
            server.add_accounts()
        # An ejabberd that is killed forgets accounts that it has just made, unless it has ended once since.
        far["ejabberd"].stop()
        far["ejabberd"].start()
        redis = stack.enter_context(RedisServer(binary=valkey_binary()))
        settings = {"XMPP_DOMAIN": SERVICE, "ADMINS": "worker@example.org"}
        frontend = stack.enter_context(Frontend(redis.url, home.component_port, SECRET, **settings))
        yield Federation(home, frontend, sites)


@pytest.fixture(params=["ejabberd", "prosody"])
def far(federation: Federation, request: pytest.FixtureRequest) -> Far:
    """Give another server, of each kind."""
    return federation.far[request.param]


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the library ask again after 2 s instead of 15, which is all that these tests would wait for."""
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 2.0)


def account(server: PageServer, user: str = "worker") -> dict[str, Any]:
    """Give what a worker or publisher of an account of the page is made with."""
    address = f"127.0.0.1:{server.c2s_port}"
    return {"url": f"xmpp://{user}@{server.site}", "service": SERVICE, "password": SECRET, "address": address}


class Silent:
    """One that listens to nothing."""

    async def connected(self) -> None:
        """Need no set-up."""

    def message(self, message: Element) -> None:
        """Ignore it."""


@dataclass
class Work:
    """Who has begun which job how often, and who has done it."""

    begun: Counter[tuple[str, str]] = field(default_factory=Counter)
    done: Counter[tuple[str, str]] = field(default_factory=Counter)
    free: asyncio.Event = field(default_factory=asyncio.Event)
    """Until it is set the far worker's jobs do not end."""

    def of(self, who: str) -> set[str]:
        """Name the jobs that somebody has done."""
        return {job for name, job in self.done if name == who}

    def has_begun(self, count: int) -> bool:
        """Tell whether so many jobs have been begun."""
        return len(self.begun) == count

    @asynccontextmanager
    async def worker(self, server: PageServer, node: str, credit: int, *, busy: bool = False) -> AsyncIterator[None]:
        """Let a worker of this server work; one that is busy keeps its jobs until they are set free."""
        worker = Worker(**account(server), concurrency=credit, grace=1)

        @worker.task(node, retry=Retry(delay=0))
        async def _job(job: Job[Any]) -> None:
            self.begun[server.site, job.id] += 1
            if busy:
                await self.free.wait()
            self.done[server.site, job.id] += 1

        serving = asyncio.create_task(worker.serve())
        try:
            yield
        finally:
            worker.stop()
            await asyncio.wait_for(serving, PATIENCE_SECONDS)


async def ask(server: PageServer, payload: str, kind: str = "set") -> Element:
    """Send a request of the page's worker to the queue."""
    asking = XmppConnection(Account.read(**account(server), tls="required"))
    running = asyncio.create_task(asking.run(Silent()))
    try:
        async with asyncio.timeout(PATIENCE_SECONDS):
            return await asking.ask("ask", kind, payload)
    finally:
        await asking.close()
        await asyncio.wait({running})


async def make_node(federation: Federation, lock_seconds: int = LOCK_SECONDS) -> str:
    """Make a node of which everybody may be publisher and worker, with short locks."""
    node = f"federation-{secrets.token_hex(4)}"
    options = {"pubsub#publish_model": "open", "stanzaq#dedupe": "ignore", "stanzaq#lock_seconds": str(lock_seconds)}
    fields = "".join(f"<field var='{name}'><value>{value}</value></field>" for name, value in options.items())
    form = f"<configure><x xmlns='jabber:x:data' type='submit'>{fields}</x></configure>"
    await ask(
        federation.home, f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><create node='{node}'/>{form}</pubsub>"
    )
    return node


async def test_far_publisher_and_worker(federation: Federation, far: Far) -> None:
    """Workers at home and far away share what publishers at both have sent, each job once."""
    node, work = await make_node(federation), Work()
    near, away = federation.home, far.server
    names = [str(number) for number in range(40)]
    one, other = Publisher(**account(near)), Publisher(**account(away, "publisher"))
    async with work.worker(near, node, 2), work.worker(away, node, 2), one, other:
        await asyncio.gather(*((one, other)[int(name) % 2].publish(node, {}, id=name) for name in names))
        await eventually(lambda: work.of(near.site) | work.of(away.site) == set(names), "jobs are missing")
        # Each of both is reached: with one alone it goes on until that has had one.
        for site in (near.site, away.site):
            while not work.of(site):
                await one.publish(node, {})
    assert set(work.begun.values()) == {1}


@asynccontextmanager
async def holding(federation: Federation, work: Work, node: str) -> AsyncIterator[Publisher]:
    """Let a worker of each other server hold three items; gives a publisher at home."""
    async with Publisher(**account(federation.home)) as publisher, AsyncExitStack() as stack:
        for number, far in enumerate(federation.far.values(), 1):
            await stack.enter_async_context(work.worker(far.server, node, 3, busy=True))
            for name in range(3):
                await publisher.publish(node, {}, id=f"held-{number}-{name}")
            await eventually(partial(work.has_begun, 3 * number), "a far worker is not given the items")
        yield publisher


async def gone_on(work: Work, node: str, publisher: Publisher) -> None:
    """Publish at home, and wait until those at home have done that, and then what others hold."""
    for name in ("new-1", "new-2"):
        await publisher.publish(node, {}, id=name)
    await eventually(lambda: {"new-1", "new-2"} <= work.of("example.org"), "those at home do not go on")
    await eventually(lambda: len(work.of("example.org")) == 8, "held items do not come back")


async def come_back(federation: Federation, work: Work, node: str, publisher: Publisher) -> None:
    """Wait until each of the other servers' workers has done something new."""
    sites = {far.server.site for far in federation.far.values()}
    async with asyncio.timeout(2 * PATIENCE_SECONDS):
        while {site for site, job in work.done if job.startswith("late")} != sites:
            await publisher.publish(node, {}, id=f"late-{secrets.token_hex(4)}")
            await asyncio.sleep(0.2)


async def test_servers_killed(federation: Federation) -> None:
    """Others are killed while their workers hold items: home goes on at once, and gets them after their locks."""
    node, work = await make_node(federation), Work()
    servers = [far.server for far in federation.far.values()]
    async with holding(federation, work, node) as publisher:
        async with work.worker(federation.home, node, 2):
            for server in servers:
                server.kill()
            try:
                await gone_on(work, node, publisher)
                assert work.of("example.org") == {job for _, job in work.done}
            finally:
                for server in servers:
                    server.start()
        work.free.set()
        await come_back(federation, work, node, publisher)


async def test_links_hang(federation: Federation) -> None:
    """The network to others forwards nothing: home goes on at once. When it forwards again all is done, and they return."""
    # An item whose lock ends meanwhile may go to a silent worker again.
    node, work = await make_node(federation, lock_seconds=60), Work()
    links = [link for far in federation.far.values() for link in (far.coming, far.going)]
    async with holding(federation, work, node) as publisher:
        async with work.worker(federation.home, node, 2):
            for link in links:
                link.hang()
            work.free.set()
            try:
                for name in ("new-1", "new-2"):
                    await publisher.publish(node, {}, id=name)
                await eventually(lambda: {"new-1", "new-2"} <= work.of("example.org"), "those at home do not go on")
            finally:
                for link in links:
                    link.heal()
            await eventually(lambda: len({job for _, job in work.done}) == 8, "jobs are missing")
        await come_back(federation, work, node, publisher)


async def test_lost_answer(federation: Federation, far: Far) -> None:
    """The answer to a far publisher is lost with its connection: it publishes again, and there is one item."""
    node, work = await make_node(federation), Work()
    near, away = federation.home, far.server
    async with Publisher(**account(away, "publisher")) as publisher:
        await publisher.publish(node, {}, id="a")
        far.going.hang()
        publishing = asyncio.create_task(publisher.publish(node, {}, id="b"))
        await asyncio.to_thread(far.going.held.wait, PATIENCE_SECONDS)
        assert not publishing.done()
        far.going.cut()
        far.going.heal()
        await asyncio.wait_for(publishing, PATIENCE_SECONDS)
        async with work.worker(near, node, 5):
            await publisher.publish(node, {}, id="c")
            await eventually(lambda: work.of(near.site) == set("abc"), "jobs are missing")
    assert set(work.begun.values()) == {1}


PUBSUB = "http://jabber.org/protocol/pubsub"


def _request(sender: str, payload: str) -> str:
    return f"<iq type='set' id='forged' from='{sender}' to='{SERVICE}'>{payload}</iq>"


@pytest.mark.parametrize(
    "sender", ["worker@example.org", "worker@example.org/x", "worker@example.net/x", "example.org"]
)
async def test_forged_sender(federation: Federation, authority: Authority, sender: str) -> None:
    """A server that speaks for users of others is cut off, and the queue does not hear it; for its own users it is believed."""
    node, work = await make_node(federation), Work()
    delete = f"<pubsub xmlns='{PUBSUB}#owner'><delete node='{node}'/></pubsub>"
    publish = (
        f"<pubsub xmlns='{PUBSUB}'><publish node='{node}'><item id='own'><job xmlns='urn:x'/></item></publish></pubsub>"
    )
    shown = authority.sign(f"forger-{secrets.token_hex(4)}", "example.com", client=True)
    with Forger(federation.home.s2s_port, "example.com", SERVICE, shown) as forger:
        heard = forger.say(_request("forger@example.com/x", publish) + _request(sender, delete), "</stream:error>")
        assert "<invalid-from" in heard
    async with work.worker(federation.home, node, 1):
        await eventually(
            lambda: work.of("example.org") == {"own"}, "the node is gone, or the stream was not believed at all"
        )


def test_forged_sender_at_prosody(federation: Federation, authority: Authority) -> None:
    """Prosody refuses likewise what a server says for users of others."""
    shown = authority.sign(f"forger-{secrets.token_hex(4)}", "example.com", client=True)
    with Forger(federation.far["prosody"].server.s2s_port, "example.com", "example.net", shown) as forger:
        forged = "<message from='worker@example.org/x' to='worker@example.net'><body>x</body></message>"
        assert "<not-authorized" in forger.say(forged, "</stream:error>")


def test_server_that_is_not_admitted(federation: Federation, authority: Authority) -> None:
    """A server that the page's lines do not name is not believed for its own users either, though its certificate is good."""
    shown = authority.sign("stranger", "example.edu", client=True)
    with Forger(federation.home.s2s_port, "example.edu", SERVICE, shown) as forger:
        assert "<invalid-from" in forger.say(_request("worker@example.edu/x", ""), "</stream:error>")


@pytest.mark.soak
@pytest.mark.parametrize("far", ["ejabberd"], indirect=True)
async def test_distance(federation: Federation, far: Far, capsys: pytest.CaptureFixture[str]) -> None:
    """A far worker does as many jobs a second as its credit and the distance admit: an acknowledgement and a delivery each."""
    with capsys.disabled():
        for milliseconds in (0, 10, 50, 100):
            for credit in (1, 10, 100):
                far.coming.slow(milliseconds / 1000)
                far.going.slow(milliseconds / 1000)
                count = max(20, min(40 * credit, 1000)) if milliseconds else 400
                rate = await _jobs_a_second(federation, far, count, credit)
                print(f"{milliseconds} ms each way, credit {credit}: {rate:.1f} jobs/s")  # noqa: T201  (for the page)
                round_trip = 2 * milliseconds / 1000
                assert not round_trip or rate <= 1.1 * credit / round_trip
    far.coming.slow(0)
    far.going.slow(0)


async def _jobs_a_second(federation: Federation, far: Far, count: int, credit: int) -> float:
    node, work = await make_node(federation, lock_seconds=60), Work()
    async with Publisher(**account(federation.home)) as publisher:
        await publisher.publish_many(node, ({} for _ in range(count)))
    async with work.worker(far.server, node, credit):
        while not work.done:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0.001)
        began, before = time.monotonic(), len(work.done)
        while len(work.done) < count:  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        return (count - before) / (time.monotonic() - began)
