"""Publishers with an outbox against the service, while frontends, Redis, connections and the publisher itself are killed."""

import asyncio
import os
import signal
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest

from frontends.tools.servers.ejabberd import Ejabberd
from stanzaq import Publisher, StanzaqError
from stanzaq.publisher.outbox import Outbox
from stanzaq.transport.interface import Outgoing
from stanzaq.xmpp import connection
from tests.journeys.client import Client
from tests.journeys.conftest import Join
from tests.journeys.service import DURABLE, Service, serving
from tests.waiting import PATIENCE_SECONDS

DOMAIN: Final = "outbox.localhost"

Between = Callable[[Callable[[], object]], None]


@pytest.fixture(scope="module")
def service(ejabberd: Ejabberd) -> Iterator[Service]:
    """Provide a service of this module's own, whose frontends may be killed."""
    with serving(ejabberd, DOMAIN, DURABLE) as service:
        yield service


@pytest.fixture(autouse=True)
def whole(service: Service) -> Iterator[None]:
    """Start again what a test has killed."""
    yield
    service.revive()


@pytest.fixture
def given(service: Service, account: tuple[str, str], tmp_path: Path) -> dict[str, Any]:
    """Return the arguments of a publisher of a new account."""
    address = f"127.0.0.1:{service.ejabberd.c2s_port}"
    place = {"service": DOMAIN, "address": address, "tls": "disabled"}
    return {"url": f"xmpp://{account[0]}", "password": account[1], **place, "outbox": tmp_path / "outbox.db"}


@pytest.fixture
async def owner(join: Join) -> Client:
    """Return a client that creates nodes and lists them."""
    return await join()


@pytest.fixture
def between(monkeypatch: pytest.MonkeyPatch) -> Between:
    """Return a function that runs something between the two steps: before `deliver` is sent for the first time."""

    def choose(happens: Callable[[], object]) -> None:
        save, happened = Outbox.save, False

        async def saved(outbox: Outbox, outgoing: Outgoing) -> None:
            nonlocal happened
            await save(outbox, outgoing)
            if outgoing.since and not happened:
                happened = True
                happens()

        monkeypatch.setattr(Outbox, "save", saved)

    return choose


async def ids(owner: Client, node: str) -> list[str]:
    """Return the ids of a node's items."""
    await owner.wait_for_routes()
    return sorted(str(item.get("id")) for item in await owner.browse(node))


async def left(path: Path) -> list[Outgoing]:
    """Return the content of the outbox."""
    outbox = Outbox(path)
    found = await outbox.open()
    await outbox.close()
    return found


def _kill_frontend(service: Service) -> None:
    service.frontends[0].kill()


def _kill_redis(service: Service) -> None:
    service.redis.kill()
    asyncio.get_running_loop().call_later(1.0, service.redis.start)


@pytest.mark.parametrize("kill", [_kill_frontend, _kill_redis])
async def test_killed_between_the_steps(
    kill: Callable[[Service], None], service: Service, given: dict[str, Any], owner: Client, between: Between
) -> None:
    """A frontend that dies between the two steps costs time and nothing else."""
    node = await owner.queue()
    between(lambda: kill(service))
    async with Publisher(**given) as publisher, asyncio.timeout(2 * PATIENCE_SECONDS):
        assert await publisher.publish(node, {}, id="one", key="k", priority=7, headers={"a": "b"}) == "one"
    assert await ids(owner, node) == ["one"] and await left(given["outbox"]) == []


async def test_killed_under_load(
    service: Service, given: dict[str, Any], owner: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of many items under way when a frontend dies, each is in the queue once."""
    # Stanzas to the dead frontend are lost, and repeated.
    monkeypatch.setattr(connection, "_ANSWER_SECONDS", 1.0)
    node = await owner.queue()
    async with Publisher(**given) as publisher, asyncio.timeout(2 * PATIENCE_SECONDS):
        sending = [asyncio.create_task(publisher.publish(node, {})) for _ in range(40)]
        await asyncio.wait(sending, return_when=asyncio.FIRST_COMPLETED)
        service.frontends[1].kill()
        sent = await asyncio.gather(*sending)
    assert await ids(owner, node) == sorted(sent)


async def test_reconnected(given: dict[str, Any], owner: Client, between: Between) -> None:
    """A publisher whose connection breaks between the steps continues on the next one."""
    node = await owner.queue()
    async with Publisher(**given) as publisher, asyncio.timeout(PATIENCE_SECONDS):
        sender: Any = publisher._sender

        def cut() -> None:
            sender._connection._stream.abort()

        between(cut)
        await publisher.publish(node, {}, id="one")
    assert await ids(owner, node) == ["one"] and await left(given["outbox"]) == []


_KILLED = """
import asyncio, os, signal, sys
from stanzaq import Publisher
from stanzaq.publisher.outbox import Outbox

save = Outbox.save

async def saved(outbox, outgoing):
    await save(outbox, outgoing)
    if outgoing.since:
        os.kill(os.getpid(), signal.SIGKILL)

async def main():
    Outbox.save = saved
    async with Publisher({url!r}, service={service!r}, address={address!r}, tls="disabled", outbox={outbox!r}) as publisher:
        await publisher.publish({node!r}, "job", id="one")

asyncio.run(main())
"""


async def test_restarted(given: dict[str, Any], owner: Client) -> None:
    """An item whose publisher is killed between the steps is sent by the next one, once."""
    node = await owner.queue()
    program = _KILLED.format(**{**given, "outbox": str(given["outbox"])}, node=node)
    killed = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", program), env={**os.environ, "STANZAQ_PASSWORD": given["password"]}
    )
    assert await asyncio.wait_for(killed.wait(), PATIENCE_SECONDS) == -signal.SIGKILL
    assert await ids(owner, node) == [] and [each.item for each in await left(given["outbox"])] == ["one"]
    async with Publisher(**given) as publisher, asyncio.timeout(PATIENCE_SECONDS):
        await publisher.publish(node, {}, id="two")
        while await ids(owner, node) != ["one", "two"]:  # noqa: ASYNC110  (nobody is told)
            await asyncio.sleep(0.05)
    assert await left(given["outbox"]) == []


async def test_refused(given: dict[str, Any], owner: Client) -> None:
    """An unknown node is reported as without an outbox, and nothing stays in it."""
    node = await owner.queue()
    async with Publisher(**given) as publisher, asyncio.timeout(PATIENCE_SECONDS):
        with pytest.raises(StanzaqError) as refused:
            await publisher.publish("nowhere", {})
        assert refused.value.condition == "item-not-found"
        await publisher.publish(node, {}, id="one")
    assert await left(given["outbox"]) == [] and await ids(owner, node) == ["one"]
