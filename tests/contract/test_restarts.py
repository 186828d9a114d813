"""After a killed Redis or a lost reply: all answered changes are there, and repeated requests count once (guarantee 1)."""

import asyncio
import itertools
from pathlib import Path

import pytest

from broker.model.commands import Browse, Declare, Publish, Retract, Stats, Subscribe, Unlock
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Browsed, Published, Retracted, Unlocked
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Server
from broker.scripts.location import lua_directory
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import Asked, MakeCore, lose_reply
from tests.contract.proxy import LossyNetwork
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1 = Jid("w1@x/a")
SURE = {"appendonly": "yes", "appendfsync": "always"}


def item(node: str, item_id: str) -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, b"payload", 7)


async def listed(core: RedisCore, node: str) -> list[tuple[str, str]]:
    """Return the items of a node, each with its state."""
    browsed = await core.ask(Browse(node, ALICE, (), 1_000))
    assert isinstance(browsed, Browsed)
    return [(each.item_id, each.state) for each in browsed.items]


async def test_restart(make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Guarantee 1: with AOF `always` a killed Redis loses nothing that was answered; meanwhile every command is answered."""
    with RedisServer(tmp_path / "redis", options=SURE) as server:
        core, door = await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        await core.ask(Subscribe(node, W1, W1, 1))
        for n in range(3):
            assert await core.ask(item(node, f"i{n}")) == Published(f"i{n}")
        server.kill()
        asked = Asked(core)
        asked.submit(item(node, "during"), Retract(node, W1, "i0"), Stats(node, ALICE))
        assert {result.problem for result in await asked.settled()} == {Problem.UNAVAILABLE}
        server.start()
        assert await listed(core, node) == [("i0", "locked"), ("i1", "waiting"), ("i2", "waiting")]
        assert isinstance(await core.ask(Retract(node, W1, "i0", door.deliveries[0].token)), Retracted)
        await door.until(lambda: door.deliveries[-1].item_id == "i1")
        await core.stop()


async def test_killed_in_the_middle(make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Guarantee 1: Redis dies during a burst of publishes; answered items are there, and repeated ones are there once."""
    answered, unanswered = set[str](), set[str]()

    async def pour(core: RedisCore, publisher: int, enough: asyncio.Event) -> None:
        for name in (f"p{publisher}-{n}" for n in itertools.count()):
            if not isinstance(await core.ask(item(node, name)), Published):
                unanswered.add(name)
                return
            answered.add(name)
            if len(answered) == 300:
                enough.set()

    with RedisServer(tmp_path / "redis", options=SURE) as server:
        core, _ = await make_core(server.url)
        await core.ask(Declare(node, ALICE, {}))
        enough = asyncio.Event()
        async with asyncio.TaskGroup() as group:
            for publisher in range(20):
                group.create_task(pour(core, publisher, enough))
            await enough.wait()
            server.kill()
        server.start()
        assert len(unanswered) == 20
        assert answered <= {name for name, _state in await listed(core, node)} <= answered | unanswered
        for name in unanswered:
            assert await core.ask(item(node, name)) == Published(name)
        assert sorted(name for name, _state in await listed(core, node)) == sorted(answered | unanswered)
        await core.stop()


@pytest.mark.parametrize("dedupe", ["overwrite", "ignore"])
@pytest.mark.parametrize("restarted", [False, True])
async def test_asked_again(make_core: MakeCore, node: str, tmp_path: Path, dedupe: str, *, restarted: bool) -> None:
    """Q27, X1: after a lost reply a client may repeat with the same ids: it gets the answer, and nothing is duplicated."""
    with RedisServer(tmp_path / "redis", options=SURE) as server:
        async with LossyNetwork(server.url.removeprefix("unix://")) as network:
            core, door = await make_core(network.url)
            await core.ask(Declare(node, ALICE, {"stanzaq#dedupe": (dedupe,)}))
            await core.ask(Subscribe(node, W1, W1, 2))
            for name in ("done", "back"):
                await core.ask(item(node, name))
            tokens = {delivery.item_id: delivery.token for delivery in door.deliveries}
            requests: list[Publish | Retract | Unlock] = [
                item(node, "new"),
                Retract(node, W1, "done", tokens["done"], "r1"),
                Unlock(node, W1, "back", tokens["back"], delay_ms=60_000, request="r2"),
            ]
            for request in requests:
                await lose_reply(core, network, node, request, about=str(request.item_id))
            if restarted:
                server.kill()
                server.start()
            # A busy machine may need longer to connect than Redis is given here to answer.
            async with asyncio.timeout(PATIENCE_SECONDS):
                while core.healthy():  # noqa: ASYNC110  (the next heartbeat tells nobody)
                    await asyncio.sleep(0.05)
            published, retracted, unlocked = [await core.ask(request) for request in requests]
            assert published == Published("new", duplicate=dedupe == "ignore")
            assert retracted == Retracted(W1, replayed=True)
            assert unlocked == Unlocked(W1, replayed=True)
            await door.until(lambda: "new" in {delivery.item_id for delivery in door.deliveries})
            assert isinstance(await core.ask(Retract(node, W1, "new")), Retracted)
            # Overwriting a locked item sets its successor (X1): no frontend remembers a publish.
            once_more = [("new", "locked")] if dedupe == "overwrite" else []
            assert sorted(await listed(core, node)) == [("back", "delayed"), *once_more]
            await core.stop()


async def test_idle_connections(tmp_path: Path) -> None:
    """After a restart of Redis everyone is served: connections that it closed meanwhile cause no error."""
    with RedisServer(tmp_path / "redis", port=0) as server:
        connected = Server.connect(server.url, lua_directory(), 1.0)
        await asyncio.gather(*(connected.command("DBSIZE") for _ in range(10)))
        server.kill()
        server.start()
        # The event loop has to notice it.
        await asyncio.sleep(0.05)
        assert await asyncio.gather(*(connected.command("DBSIZE") for _ in range(10))) == [0] * 10
        await connected.close()
