"""Limits of nodes and of publishers over a real server, with two frontends (stanzaq#rate, stanzaq#publish_rate and others)."""

import asyncio
from collections.abc import Sequence

import pytest

from broker import codec
from broker.model.commands import Configure, Declare, Publish, Subscribe
from broker.model.items.items import Delivery, Envelope
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import Declared, Done, Published, Refused
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import sweeper
from tests.contract.conftest import Door, MakeCore
from tests.waiting import PATIENCE_SECONDS

ALICE = Jid("alice@x/home")
W1, W2 = Jid("w1@x/a"), Jid("w2@x/b")


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def published(core: RedisCore, node: str, count: int, key: str = "") -> None:
    """Publish items to the partitions in turn."""
    body = codec.pack(Envelope(b"<x/>"))
    await asyncio.gather(
        *(core.ask(Publish(node, ALICE, f"{key}{number}", body, 4, key=key)) for number in range(count))
    )


async def wait(doors: Sequence[Door], count: int) -> list[Delivery]:
    """Wait until so many deliveries have been made at these doors together; return them."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while len(found := [each for door in doors for each in door.deliveries]) < count:  # noqa: ASYNC110  (two doors)
            await asyncio.sleep(0.005)
    return found


@pytest.fixture
def unscanned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let no scan find what a change has left."""
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1_000_000)


@pytest.mark.usefixtures("unscanned")
@pytest.mark.parametrize(
    ("options", "first", "changed"),
    [
        ({"rate": "1/h", "rate_burst": "2"}, 2, {"rate": ""}),
        ({"max_in_flight": "3"}, 3, {"max_in_flight": "0"}),
        ({"max_in_flight_by_key": "1"}, 2, {"max_in_flight_by_key": "0"}),
        ({"ordered": "1"}, 2, {"ordered": "0"}),
    ],
)
async def test_an_option_is_changed(
    make_core: MakeCore, node: str, options: dict[str, str], first: int, changed: dict[str, str]
) -> None:
    """What a node held back goes out at once, at any frontend, when its owner lets it."""
    (core, door), (other, door2) = await make_core(), await make_core()
    await declared(core, node, **options)
    for key in "ab":
        await published(core, node, 4, key)
    await core.ask(Subscribe(node, W1, W1, credit=100))
    assert len(await wait((door, door2), first)) == first
    fields = {f"stanzaq#{name}": (value,) for name, value in changed.items()}
    assert await other.ask(Configure(node, ALICE, fields)) == Done()
    assert len({(each.key, each.item_id) for each in await wait((door, door2), 8)}) == 8


@pytest.mark.parametrize("options", [{}, {"pubsub#queueing": "0"}])
async def test_a_publisher_at_its_rate(make_core: MakeCore, node: str, options: dict[str, str]) -> None:
    """Each publisher has its own rate, whatever frontend it uses; the refusal tells how long to wait."""
    (core, _), (other, _) = await make_core(), await make_core()
    chosen = {"stanzaq#publish_rate": "60/h", "pubsub#publish_model": "open", **options}
    assert await core.ask(Declare(node, ALICE, {name: (value,) for name, value in chosen.items()})) == Declared(node)
    body = codec.pack(Envelope(b"<x/>"))
    asked = [each.ask(Publish(node, ALICE, None, body, 4)) for each in (core, other) for _ in range(20)]
    outcomes = await asyncio.gather(*asked)
    refused = [each for each in outcomes if isinstance(each, Refused)]
    assert len(refused) == 39
    assert {each.problem for each in refused} == {Problem.TOO_FAST}
    assert all(0 < each.wait_ms <= 60_000 and "60/h" in each.detail for each in refused)
    assert isinstance(await core.ask(Publish(node, W1, None, body, 4)), Published)
    assert await core.ask(Configure(node, ALICE, {"stanzaq#publish_rate": ("",)})) == Done()
    again = await asyncio.gather(*(core.ask(Publish(node, ALICE, None, body, 4)) for _ in range(5)))
    assert all(isinstance(each, Published) for each in again)


async def test_who_may_not_publish_is_refused_first(core: RedisCore, node: str) -> None:
    """P5: a publish that is refused anyway is refused as without a rate, however often."""
    await declared(core, node, publish_rate="1/h")
    for _ in range(2):
        refused = await core.ask(Publish(node, W1, None, codec.pack(Envelope(b"<x/>")), 4))
        assert isinstance(refused, Refused) and refused.problem is Problem.FORBIDDEN


async def test_who_has_none(core: RedisCore, node: str) -> None:
    """A log takes no limit; a queue of several partitions none that one script must count, at creation and later."""
    for name in ("rate", "max_in_flight", "rate_by_key", "max_in_flight_by_key", "fair"):
        value = {"r": "1/s", "m": "1", "f": "key"}[name[0]]
        refused = await core.ask(Declare(node, ALICE, {"pubsub#queueing": ("0",), f"stanzaq#{name}": (value,)}))
        assert refused == Refused(Problem.NOT_ACCEPTABLE, f"stanzaq#{name}: a log hands nothing out as work")
    refused = await core.ask(Declare(node, ALICE, {"stanzaq#ordered": ("1",), "stanzaq#fair": ("publisher",)}))
    assert isinstance(refused, Refused) and "order of a key" in refused.detail
    await declared(core, node, partitions="2")
    for name, value in (("rate", "1/s"), ("max_in_flight", "1"), ("publish_rate", "1/s"), ("multi_subscribe", "1")):
        option = {f"stanzaq#{name}": (value,)}
        for asked in (
            Declare(f"{node}-2", ALICE, {"stanzaq#partitions": ("2",), **option}),
            Configure(node, ALICE, option),
        ):
            refused = await core.ask(asked)
            assert isinstance(refused, Refused) and refused.problem is Problem.NOT_ACCEPTABLE
            assert f"stanzaq#{name}: one script must count it" in refused.detail
