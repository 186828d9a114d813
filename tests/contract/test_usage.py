"""What processes have used is written once a minute, for reports."""

import time

from broker import keys
from broker.scaling.usage import MINUTE_MS, REDIS, Usage, read_all
from tests.contract.conftest import MakeCore, Store


async def _noted(store: Store) -> list[Usage]:
    async with store.client() as client:
        return sorted(read_all((await client.hgetall(keys.of_service("process_usage"))).items()))


async def test_samples(store: Store, make_core: MakeCore) -> None:
    """Each frontend writes itself, one of them the masters; again in the same minute, or after an hour, nothing is doubled."""
    now_ms = int(time.time() * 1000) // MINUTE_MS * MINUTE_MS
    gone = Usage("xmpp", "0000dead", now_ms - 61 * MINUTE_MS, 5, 5)
    (one, _), (other, _) = await make_core(), await make_core()
    async with store.client() as client:
        await client.hset(keys.of_service("process_usage"), gone.field, gone.value)
    for minute in (now_ms, now_ms + 1, now_ms + MINUTE_MS):
        for core in (one, other):
            await core._usage.note(minute)
    found = [each for each in await _noted(store) if each.name]
    assert {each.name for each in found if each.kind == "xmpp"} == {one.name, other.name}
    assert sorted(each.at_ms for each in found if each.kind == REDIS) == [now_ms, now_ms + MINUTE_MS]
    assert len(found) == 6
    assert all(each.cpu_ms > 0 for each in found)
    await one._usage.note(now_ms + 61 * MINUTE_MS)
    assert len([each for each in await _noted(store) if each.name == one.name]) == 2


async def test_an_unreadable_sample(store: Store, make_core: MakeCore) -> None:
    """Guarantee 8: samples of another form are skipped, and keep nobody from writing."""
    core, _ = await make_core()
    texts = {b"7": b"1 2 3", b"7 xmpp a": b"a b c", b"\xff xmpp a": b"1 2 3", b"7 xmpp b": b"1 2"}
    async with store.client() as client:
        await client.hset(keys.of_service("process_usage"), mapping=texts)
    await core._usage.note(int(time.time() * 1000))
    assert core.name in {each.name for each in await _noted(store)}
