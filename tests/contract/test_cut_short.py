"""Frontends that die at any call of a change between shared use, of one partition, a group and named partitions.

Whatever such a change leaves, a JID has its credit once (guarantee 3), and gets all of it when it asks again.
"""

import asyncio
import secrets
from collections.abc import Sequence
from typing import Any

import pytest
from pydantic import SecretStr

from broker.model.commands import Declare, Publish, Stats, Subscribe
from broker.model.names import Jid
from broker.model.results import Counted, Declared, Subscribed
from broker.redis_core.core import RedisCore
from broker.redis_core.redis_client.client import Line
from broker.settings import Settings
from broker.tasks import start
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore, Store
from tests.waiting import PATIENCE_SECONDS

OWNER, A, B = Jid("alice@x/home"), Jid("a@x/1"), Jid("b@x/1")

WAYS: dict[str, dict[str, Any]] = {
    "shares": {"credit": 3},
    "joins": {"credit": 8, "group": "g"},
    "joins another": {"credit": 4, "group": "h"},
    "owns": {"credit": 2, "partitions": (0,), "group": "g", "epoch": 50},
}

CHANGES = [
    ("shares", "joins", True),
    ("shares", "owns", False),
    ("joins", "shares", True),
    ("joins", "joins another", False),
    ("joins", "owns", False),
    ("owns", "shares", False),
    ("owns", "joins", False),
]
"""What a JID does first and then, and whether another member is there, so that whoever learns of a change moves partitions."""


class Severed:
    """A connection that sends so many calls; with the next one the process dies: it gets no answer any more."""

    returns = 0

    def __init__(self, link: Any, calls: int) -> None:  # noqa: ANN401  (a connection to any kind of Redis)
        """Send over `link`."""
        self._link = link
        self._calls = calls
        self.died = asyncio.Event()

    async def send(self, lines: Sequence[Line], _durable: object = None) -> list[Any]:
        """Send, or die."""
        if not self._calls:
            self.died.set()
            raise asyncio.CancelledError
        self._calls -= 1
        return await self._link.send(lines)  # type: ignore[no-any-return]

    async def close(self) -> None:
        """Close the connection."""
        await self._link.close()


async def _cut_short(store: Store, node: str, command: Subscribe, calls: int) -> bool:
    """Run a command in a frontend that dies after so many calls; returns whether it was answered before."""
    core = RedisCore(
        Settings(**ADMITTING, redis_url=store.url, xmpp_domain="queue.localhost", xmpp_secret=SecretStr("secret")),
        Door(),
    )
    # From now on it knows the node.
    await core.ask(Stats(node, OWNER))
    link = Severed(core._server._link, calls)
    core._server._link = link  # type: ignore[assignment]
    answered = asyncio.get_running_loop().create_future()
    core.submit(command, answered.set_result)
    died = start(link.died.wait())
    async with asyncio.timeout(PATIENCE_SECONDS):
        await asyncio.wait((answered, died), return_when=asyncio.FIRST_COMPLETED)
        # What it has sent already takes effect.
        while core._server._open:  # noqa: ASYNC110  (nobody tells)
            await asyncio.sleep(0.001)
    await asyncio.sleep(0.001)
    for task in (died, *core._tasks):
        task.cancel()
    await link.close()
    return not link.died.is_set()


async def _rest(core: RedisCore) -> None:
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not core._is_idle():  # noqa: ASYNC110  (whoever is at rest tells nobody)
            await asyncio.sleep(0.001)


async def _locked(core: RedisCore, node: str, partitions: int) -> int:
    """Publish more than anybody may lock; return how much is locked."""
    await asyncio.gather(
        *(core.ask(Publish(node, OWNER, None, b"e", 1, partition=at % partitions)) for at in range(18))
    )
    await _rest(core)
    counted = await core.ask(Stats(node, OWNER))
    assert isinstance(counted, Counted)
    return counted.in_flight


@pytest.mark.parametrize("again", [True, False], ids=["asks again", "is silent"])
@pytest.mark.parametrize(("first", "then", "other"), CHANGES)
async def test_every_call(
    make_core: MakeCore, store: Store, *, first: str, then: str, other: bool, again: bool
) -> None:
    """E10, E28, guarantee 3: a change that is cut short gives nobody its credit twice, and the next one is whole."""
    core, door = await make_core()
    partitions = 1 if "shares" in {first, then} else 2
    whole, calls = False, 0
    while not whole:
        calls += 1
        node = f"jobs-{secrets.token_hex(4)}"
        assert await core.ask(Declare(node, OWNER, {"stanzaq#partitions": (str(partitions),)})) == Declared(node)
        if other:
            assert isinstance(await core.ask(Subscribe(node, B, B, 2, group="g")), Subscribed)
        assert isinstance(await core.ask(Subscribe(node, A, A, **WAYS[first])), Subscribed)
        whole = await _cut_short(store, node, Subscribe(node, A, A, **WAYS[then]), calls)
        await core.owners.rebalance(node)
        await core._sweeper.sweep_all()
        most = max(WAYS[first]["credit"], WAYS[then]["credit"])
        if again:
            epoch = {"epoch": 51} if "epoch" in WAYS[then] else {}
            asked = await core.ask(Subscribe(node, A, A, **(WAYS[then] | epoch)))
            assert isinstance(asked, Subscribed), (calls, asked)
            assert asked.group == WAYS[then].get("group", ""), (calls, asked)
            most = WAYS[then]["credit"]
        await _rest(core)
        door.deliveries.clear()
        locked = await _locked(core, node, partitions)
        mine = sum(each.subscriber == A for each in door.deliveries)
        theirs = sum(each.subscriber == B for each in door.deliveries)
        assert mine <= most, (calls, mine, theirs)
        assert locked == mine + theirs, (calls, locked, mine, theirs)
        if again and not theirs:
            assert mine == most, (calls, mine)
