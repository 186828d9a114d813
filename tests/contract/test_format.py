"""The format of the store: the first frontend records it, and a program of another format changes nothing."""

from typing import Any

import pytest

from broker import keys
from broker.model.commands import Declare
from broker.model.names import Jid
from broker.model.problems import OtherFormat
from broker.model.results import Declared
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from broker.store_format import FORMAT, LEAST
from tests.admitting import ADMITTING
from tests.contract.conftest import EVERYWHERE, Door, MakeCore, Store

ALICE = Jid("alice@x/1")
STORE, NAMES = keys.of_service("store"), keys.of_service("all_nodes")
NOTED = {b"format": str(FORMAT).encode(), b"least": str(LEAST).encode()}


def unstarted(store: Store) -> RedisCore:
    """Make a core that is not started."""
    given: dict[str, Any] = {"redis_url": store.url, "xmpp_domain": "queue.localhost", "xmpp_secret": "secret"}
    return RedisCore(Settings(**ADMITTING, **given), Door())


@EVERYWHERE
async def test_empty(make_core: MakeCore, store: Store, node: str) -> None:
    """The first frontend records the format of an empty store, a command does not; with existing nodes it is recorded again."""
    command = unstarted(store)
    async with store.client() as client:
        await command.reach()
        assert await client.hgetall(STORE) == {}
        core, _ = await make_core()
        assert await client.hgetall(STORE) == NOTED
        # A master has lost all keys of the service.
        await client.delete(STORE, NAMES)
        assert await core.ask(Declare(node, ALICE, {})) == Declared(node)
        assert await client.hgetall(STORE) == NOTED
    await make_core()
    await command.reach()
    await command.stop()


@EVERYWHERE
@pytest.mark.parametrize("found", [0, FORMAT + 1])
async def test_another(make_core: MakeCore, store: Store, found: int) -> None:
    """An older or newer store is refused, with both versions; the frontend is not listed there."""
    async with store.client() as client:
        # Stores from before the first format list their nodes elsewhere.
        await client.zadd(NAMES if found else keys.of_service("names"), {"jobs": 1})
        if found:
            await client.hset(STORE, "format", found)
        before = await client.hgetall(STORE)
        for name in ("start", "reach"):
            core = unstarted(store)
            with pytest.raises(OtherFormat, match=rf"a store of format {found}, .* keeps format {FORMAT}: \w"):
                await getattr(core, name)()
            assert not await client.exists(keys.of_service("frontends"))
            await core.stop()
        assert await client.hgetall(STORE) == before
