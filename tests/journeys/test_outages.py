"""Parts of the service fail and come back: nobody waits in vain, nothing answered is lost, nothing is restarted by hand."""

import asyncio
import contextlib
import signal
import time
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from stanzaq import Job, Publisher, Retry, Worker
from tests.journeys.client import PUBSUB, STANZAQ, Client, Delivery
from tests.journeys.conftest import Join
from tests.journeys.fake import FakeServer
from tests.journeys.service import DOMAIN, DURABLE, Frontend, Service, eventually, serving
from tests.waiting import PATIENCE_SECONDS

REDIS_TIMEOUT = 2.0
"""Long enough that a busy machine adds less than this again. A frontend without a heartbeat for 2 s is dead."""
RESENT_SECONDS = 20.0
"""How soon others have sent a dead frontend's deliveries: 5 s (guarantee 4), and some for a busy machine."""
WATCHDOG_SECONDS = 2.0
DRAIN_SECONDS = 5.0

_ANSWERS_THAT_FILL_A_SOCKET = 8_000

DOWN = {"wait internal-server-error", "wait remote-server-timeout"}


@pytest.fixture(scope="module")
def starter() -> Iterator[ThreadPoolExecutor]:
    """Provide a thread that starts servers again: they die with the thread that started them, so it outlives them."""
    with ThreadPoolExecutor(1) as pool:
        yield pool


@pytest.fixture(scope="module")
def service(starter: ThreadPoolExecutor) -> Iterator[Service]:
    """Provide servers of this module's own, which may be stopped, with a Redis that writes every change to disk at once."""
    settings = {
        "REDIS_TIMEOUT": str(REDIS_TIMEOUT),
        "WATCHDOG_SECONDS": str(WATCHDOG_SECONDS),
        "DRAIN_SECONDS": str(DRAIN_SECONDS),
    }
    with Ejabberd() as ejabberd, serving(ejabberd, DOMAIN, DURABLE, **settings) as service:
        yield service


@pytest.fixture(autouse=True)
async def whole(service: Service) -> AsyncIterator[None]:
    """Begin and end each test with a complete service."""
    await eventually(lambda: not service.faults(), "the service is not whole")
    yield
    service.revive()
    await eventually(lambda: not service.faults(), "the service did not become whole again")


async def _items(client: Client, node: str) -> list[str | None]:
    return [item.get("id") for item in await client.browse(node)]


@pytest.mark.parametrize("fate", ["stopped", "killed"])
async def test_redis_down(service: Service, join: Join, fate: str) -> None:
    """Without Redis every IQ is answered `wait`, after one time-out at most; with it all continues and nothing is lost.

    Stopped with SIGSTOP it takes the request and never answers; killed it is not there.
    """
    owner, worker = await join(), await join()
    node = await owner.queue()
    await worker.subscribe(node, 2)
    for item in ("i1", "i2", "i3"):
        assert (await owner.publish(node, item)).error == ""
    held = {delivery.item: delivery.token for delivery in [await worker.next(Delivery) for _ in range(2)]}
    service.redis.process.pause() if fate == "stopped" else service.redis.kill()
    try:
        began = time.monotonic()
        answers = await asyncio.gather(
            *(owner.publish(node, f"late{number}") for number in range(10)),
            *(worker.retract(node, "i1", held["i1"]) for _ in range(4)),
            worker.subscribe(node, 3),
            worker.unsubscribe(node, owner.bare + "/x"),
            owner.pubsub(f"<items node='{node}'/>", "get"),
            owner.pubsub("<create/>"),
            owner.owner(f"<configure node='{node}'/>", "get"),
            owner.ask("<query xmlns='http://jabber.org/protocol/disco#items'/>", "get"),
        )
        # One after another they would wait so long.
        assert time.monotonic() - began < REDIS_TIMEOUT * len(answers) / 2
        # A foreign JID is refused without any Redis; all other requests wait.
        assert Counter(answer.error in DOWN for answer in answers) == {True: len(answers) - 1, False: 1}
        await _unready(service)
    finally:
        service.redis.process.resume() if fate == "stopped" else service.redis.start()
    await eventually(lambda: not service.faults(), "the frontends did not find Redis again")
    # A timed-out request may have run after all, so all are repeated, with the same ids.
    for number in range(10):
        assert (await owner.publish(node, f"late{number}")).error == ""
    for item, token in held.items():
        assert (await worker.retract(node, item, token)).error in {"", "cancel item-not-found"}
    done, tokens = set(held), dict(held)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(done) < 13:
            delivery = await worker.next(Delivery)
            # On a slow machine the frontends take each other for dead: then one may come twice, with the same token.
            assert tokens.setdefault(delivery.item, delivery.token) == delivery.token
            assert (await worker.retract(node, delivery.item, delivery.token)).error == "" or delivery.item in done
            done.add(delivery.item)
    assert await _items(owner, node) == []
    assert set(owner.answers.values()) == set(worker.answers.values()) == {1}


async def test_ejabberd_restarts(service: Service, join: Join) -> None:
    """When the XMPP server comes back so do the frontends, by themselves, and the work is completed.

    A worker that was not back in time for a delivery has bounced it (P30): so it subscribes again, and may have lost a
    lock.
    """
    worker = await join(f"{service.ejabberd.register('steady', 'secret')}/desk", "secret")
    node = await worker.queue()
    await worker.subscribe(node, 2)
    for item in ("i1", "i2", "i3"):
        await worker.publish(node, item)
    held = [await worker.next(Delivery) for _ in range(2)]
    pids = [frontend.process.pid for frontend in service.frontends]
    service.ejabberd.stop()
    await _unready(service)
    await eventually(lambda: not worker.up, "the worker did not notice")
    service.ejabberd.start()
    await worker.connected()
    await eventually(lambda: not service.faults(), "the frontends did not find the XMPP server again")
    assert [frontend.process.pid for frontend in service.frontends] == pids
    assert (await worker.subscribe(node, 2)).error == ""
    for delivery in held:
        answer = await worker.retract(node, delivery.item, delivery.token)
        assert answer.error in {"", "wait unexpected-request"}
    async with asyncio.timeout(PATIENCE_SECONDS):
        while await _items(worker, node):
            delivery = await worker.next(Delivery)
            await worker.retract(node, delivery.item, delivery.token)


async def test_the_library_outlives_them(
    service: Service, join: Join, starter: ThreadPoolExecutor, capsys: pytest.CaptureFixture[str]
) -> None:
    """A worker and a publisher of the library: a frontend, Redis and ejabberd are killed, and all 300 jobs are done."""
    owner = await join(f"{service.ejabberd.register('owner', 'secret')}/desk", "secret")
    node = await owner.queue({"stanzaq#dedupe": "ignore", "stanzaq#lock_seconds": "5"})
    user, address = service.ejabberd.register("library", "secret"), f"127.0.0.1:{service.ejabberd.c2s_port}"
    account: Any = {"service": DOMAIN, "password": "secret", "address": address, "tls": "disabled"}
    worker = Worker(f"xmpp://{user}", concurrency=10, grace=5, **account)
    runs, strikes = Counter[tuple[str, int]](), {50: service.frontends[0], 100: service.redis, 150: service.ejabberd}
    struck: set[int] = set()
    # Mnesia writes after a moment: an ejabberd that is killed before has not made the accounts.
    spool = service.ejabberd.directory / "spool"
    await eventually(
        lambda: any(b"library" in path.read_bytes() for path in spool.iterdir() if path.is_file()), "no account on disk"
    )

    @worker.task(node, retry=Retry(delay=0))
    async def _job(job: Job[Any]) -> None:
        runs[job.id, job.token] += 1
        await asyncio.sleep(0.01)

    async def strike() -> None:
        for count, server in strikes.items():
            while len(runs) < count:  # noqa: ASYNC110  (nobody is told)
                await asyncio.sleep(0.01)
            await asyncio.get_running_loop().run_in_executor(starter, server.kill)
            await asyncio.get_running_loop().run_in_executor(starter, server.start)
            struck.add(count)

    serving, striking = asyncio.create_task(worker.serve()), asyncio.create_task(strike())
    async with asyncio.timeout(10 * PATIENCE_SECONDS), Publisher(f"xmpp://{user}", **account) as publisher:
        for number in range(300):
            await publisher.publish(node, {}, id=f"job-{number}")
        await striking
        await owner.connected()
        # All may have been published before ejabberd went: nothing else has waited for the frontends since.
        await eventually(lambda: not service.faults(), "a frontend has not come back")
        while await _items(owner, node):  # noqa: ASYNC110
            await asyncio.sleep(0.1)
    worker.stop()
    await asyncio.wait_for(serving, PATIENCE_SECONDS)
    assert struck == set(strikes)
    assert {name for name, _token in runs} == {f"job-{number}" for number in range(300)}
    assert set(runs.values()) == {1}, "a lock is worked once, however often its item is delivered"
    again = Counter(name for name, _token in runs)
    named = ", ".join(f"{name} ({count} times)" for name, count in again.items() if count > 1)
    with capsys.disabled():
        print(f" {len(runs) - 300} runs more than 300 jobs: {named or 'none'};", end="")  # noqa: T201  (of interest)


async def _unready(service: Service) -> None:
    """Wait until the frontends report that they cannot serve; they live all the same."""
    await eventually(
        lambda: all(frontend.get("/readyz") == 503 for frontend in service.frontends), "a frontend claims to be ready"
    )
    assert {frontend.get("/livez") for frontend in service.frontends} == {200}


async def test_frontend_killed_owing(service: Service, join: Join) -> None:
    """Unsent deliveries of a killed frontend are sent by the others within 5 s, with the same token.

    Its XMPP server does not read, so nothing that it writes counts as sent: it dies between the script and the send.
    """
    worker = await join()
    node = await worker.queue({"stanzaq#lock_seconds": "600"})
    await worker.subscribe(node, 50)
    with FakeServer() as server, ThreadPoolExecutor(1) as aside:
        greeted = aside.submit(server.accept)
        with Frontend(service.redis.url, server.port, server.secret) as victim:
            greeted.result()
            head = f"from='p@example.org/x' to='{DOMAIN}'"
            asked = f"<iq type='get' id='fill' {head}><query xmlns='http://jabber.org/protocol/disco#info'/></iq>"
            server.send(asked * _ANSWERS_THAT_FILL_A_SOCKET)
            for number in range(20):
                server.send(f"<iq type='set' id='p' {head}>{_publication(node, f'i{number}')}</iq>")
            async with asyncio.timeout(PATIENCE_SECONDS):
                while len(owed := await _locks(worker, node)) < 20:
                    pass
            await worker.settle()
            assert worker.left(Delivery) == []
            victim.kill()
    async with asyncio.timeout(RESENT_SECONDS):
        came = [await worker.next(Delivery) for _ in owed]
    assert {delivery.item: str(delivery.token) for delivery in came} == owed
    assert {delivery.attempt for delivery in came} == {1}


async def test_frontend_killed_at_work(service: Service, join: Join) -> None:
    """SIGKILL of a frontend under load loses nothing, and nobody waits for a lock to expire."""
    publisher, worker = await join(), await join()
    node = await publisher.queue({"stanzaq#lock_seconds": "600"})
    await worker.subscribe(node, 1000)
    names = {f"i{number}" for number in range(300)}
    publishing = [asyncio.create_task(_publish_surely(publisher, node, name)) for name in names]
    first = await worker.next(Delivery)
    service.frontends[0].kill()
    await asyncio.gather(*publishing)
    came = {first.item: first.token}
    async with asyncio.timeout(RESENT_SECONDS):
        while came.keys() != names:
            delivery = await worker.next(Delivery)
            # A repeated delivery has the same token: a worker can tell.
            assert came.setdefault(delivery.item, delivery.token) == delivery.token
            assert delivery.attempt == 1


async def test_frontend_stopped(service: Service, join: Join) -> None:
    """A frontend that hangs is killed by its watchdog, and all stanzas go to the other (field notes: ejabberd spreads)."""
    publisher = await join()
    node = await publisher.queue()
    victim = service.frontends[1]
    victim.process.pause()
    assert await victim.ended(PATIENCE_SECONDS) == -signal.SIGKILL
    await publisher.wait_for_routes()
    for number in range(20):
        assert (await publisher.publish(node, f"i{number}")).error == ""


async def test_frontend_told_to_go(service: Service, join: Join) -> None:
    """After SIGTERM a frontend answers all earlier requests, and ends with 0; the other one continues.

    Redis pauses for a moment, so that the requests are under way when the signal comes.
    """
    publisher = await join()
    node = await publisher.queue()
    service.redis.process.pause()
    try:
        publishing = [asyncio.create_task(publisher.publish(node, f"i{number}")) for number in range(40)]
        # These need no Redis: their answers prove that both frontends have what was sent before.
        await publisher.settle()
        assert not any(task.done() for task in publishing)
        victim = service.frontends[0]
        victim.process._child.terminate()
    finally:
        service.redis.process.resume()
    assert {answer.error for answer in await asyncio.gather(*publishing)} == {""}
    assert await victim.ended(PATIENCE_SECONDS) == 0
    assert set(await _items(publisher, node)) == {f"i{number}" for number in range(40)}
    await publisher.settle()
    assert set(publisher.answers.values()) == {1}


async def _locks(client: Client, node: str) -> dict[str | None, str | None]:
    answer = await client.ask(f"<locks xmlns='{STANZAQ}' node='{node}'/>", "get")
    return {lock.get("item"): lock.get("token") for lock in answer.find(f"{{{STANZAQ}}}locks")}


async def _publish_surely(publisher: Client, node: str, item: str) -> None:
    """Publish until there is an answer: a stanza at a frontend that dies is lost with it."""
    while True:
        with contextlib.suppress(TimeoutError):
            assert (await publisher.ask(_publication(node, item), seconds=2)).error == ""
            return


def _publication(node: str, item: str) -> str:
    return f"<pubsub xmlns='{PUBSUB}'><publish node='{node}'><item id='{item}'><job xmlns='urn:x'/></item></publish></pubsub>"
