"""Commands that read much: as many as there are, in few calls, and without a pause while there is more."""

import asyncio
from typing import Any

from broker import codec
from broker.model.commands import Declare, Publish, Retract, Subscribe
from broker.model.items.items import Envelope
from broker.model.names import Jid
from broker.model.results import Declared, Published, Retracted, Subscribed
from broker.redis_core.core import RedisCore
from frontends.commands.item import scan_items
from frontends.commands.runner import ADMINISTRATOR
from frontends.commands.watching.screen import _follow_records
from tests.contract.conftest import Door
from tests.waiting import PATIENCE_SECONDS

W1 = Jid("w1@x/a")
HOUR: float = 3_600


class Counted:
    """A core that counts what it is asked."""

    def __init__(self, core: RedisCore) -> None:
        """Pass everything on."""
        self._core = core
        self.asked = 0

    async def ask(self, command: Any) -> Any:  # noqa: ANN401  (of any kind)
        """Count a command."""
        self.asked += 1
        return await self._core.ask(command)


async def _published(core: RedisCore, node: str, count: int) -> None:
    assert await core.ask(Declare(node, ADMINISTRATOR, {})) == Declared(node)
    body = codec.pack(Envelope(b"<x/>"))
    told = await asyncio.gather(
        *(core.ask(Publish(node, ADMINISTRATOR, f"i{number}", body, 4)) for number in range(count))
    )
    assert all(isinstance(each, Published) for each in told)


async def test_the_tail_of_a_busy_journal(core: RedisCore, door: Door, node: str) -> None:
    """Records that do not fit into one page are read at once, however long the pause between two looks is."""
    count = 450
    assert await core.ask(Declare(node, ADMINISTRATOR, {})) == Declared(node)
    tail = _follow_records(core, node, 0, HOUR, follow=True)
    assert await anext(tail) == []
    await _ended(core, door, node, count)
    found = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while found < count:
            found += len(await anext(tail))


async def _ended(core: RedisCore, door: Door, node: str, count: int) -> None:
    body = codec.pack(Envelope(b"<x/>"))
    assert isinstance(await core.ask(Subscribe(node, W1, W1, count)), Subscribed)
    await asyncio.gather(*(core.ask(Publish(node, ADMINISTRATOR, f"i{number}", body, 4)) for number in range(count)))
    await door.until(lambda: len(door.deliveries) == count)
    told = await asyncio.gather(*(core.ask(Retract(node, W1, each.item_id, each.token)) for each in door.deliveries))
    assert all(isinstance(each, Retracted) for each in told)


async def test_one_item_of_many(core: RedisCore, node: str) -> None:
    """However few items are listed, each call looks at many; the next list continues behind the last one that was shown."""
    await _published(core, node, 1_500)
    counted: Any = Counted(core)
    found, _place = await scan_items(counted, node, 1, "", lambda one: one.item_id == "i1499")
    assert [each.item_id for each in found] == ["i1499"] and counted.asked <= 3
    chosen, listed, scan = {f"i{number}" for number in (1, 3, 4, 1_400, 1_401, 1_402)}, list[str](), ""
    while len(listed) < len(chosen):
        found, scan = await scan_items(core, node, 2, scan, lambda one: one.item_id in chosen)
        listed += [each.item_id for each in found]
        assert len(found) == 2 and (scan or len(listed) == len(chosen))
    assert sorted(listed) == sorted(chosen)
