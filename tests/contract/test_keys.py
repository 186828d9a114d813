"""The examples of keys in docs/operations.md look like the keys of a queue that uses everything."""

# ruff: noqa: ANN401  (clients of one server and of a cluster have no type in common)

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final

import pytest

from broker import codec, keys
from broker.model.commands import (
    Bind,
    Command,
    Complete,
    Declare,
    Deliver,
    Disconnect,
    PrepareMessage,
    Presence,
    Publish,
    PutSchedule,
    Receive,
    Renew,
    Retract,
    SetQuota,
    Subscribe,
    Unlock,
)
from broker.model.items.dependencies import Dependencies, Parent
from broker.model.items.hints import Hints
from broker.model.items.items import Envelope, NodeEvent
from broker.model.items.outcomes import ReplyMode
from broker.model.items.progress import Progress
from broker.model.items.qos import Qos
from broker.model.names import Jid, Partition, bare_jid
from broker.model.nodes.pull_subscriptions import pull_jid
from broker.model.nodes.quotas import Quota
from broker.model.nodes.schedules import Schedule
from broker.model.nodes.tree import Scope, SubscriptionType
from broker.model.results import Refused
from broker.model.roles import Said
from broker.redis_core.core import RedisCore
from broker.redis_core.maintenance import relay, sweeper
from broker.redis_core.operations.operation import subid
from broker.settings import CommandSettings
from tests.admitting import ADMITTING
from tests.contract.conftest import Door, MakeCore, Store
from tests.operations import EXAMPLES, shape

ALICE, BOB = Jid("alice@example.org/home"), Jid("bob@example.org/b")
WORKER = Jid("worker@example.org/a")

_NOTICES: Final = "sq:{service}:notices"
_WAKEUP: Final = "sq:{service}:wakeup"
_WAKEUPS: Final = "sq:{process:1c0f9a3b}:wakeups"

_NAMED: Final[Mapping[str, Any]] = {
    "partition": lambda name: keys.of_partition(name, Partition("jobs", "8e71964d", 0)),
    "node": lambda name: keys.of_node(name, "jobs"),
    "service": keys.of_service,
    "process": lambda name: keys.of_process(name, "1c0f9a3b"),
    "qos": keys.of_qos,
}


@pytest.mark.parametrize("key", keys.TABLE, ids=lambda key: key.name)
def test_each_has_one(key: keys.Key) -> None:
    """Every key of the table has an example, under a name as the core would give it, and of its type."""
    if key.holder == "jid":
        names = {
            keys.of_jid(key.name, jid) for jid in ("alice@example.org", "worker@example.org", "example.org")
        } & EXAMPLES.keys()
        (name,) = names
    else:
        name = _NAMED[key.holder](key.name)
    example = EXAMPLES[name]
    if not example.startswith("as `"):
        marks = {"hash": "` → `", "zset": "`, `", "stream": "` → `", "set": "", "list": ""}
        assert marks[key.type] in example and (marks[key.type] or " → " not in example)


def item(node: str, item_id: str | None, key: str = "") -> Publish:
    """Publish an item."""
    return Publish(node, ALICE, item_id, codec.pack(Envelope(b"<x/>")), 4, key=key)


async def done(core: RedisCore, *commands: Command) -> list[Any]:
    """Run commands one after the other; none is refused."""
    results = [await core.ask(command) for command in commands]
    assert not [result for result in results if isinstance(result, Refused)]
    return results


async def work(core: RedisCore, door: Door) -> None:
    """Let items wait, be held, replaced, parked, given back, delayed and acknowledged."""
    await done(core, Presence(WORKER, available=True))
    await done(core, Declare("jobs", ALICE, {"stanzaq#max_deliveries": ("9",)}))
    await done(core, item("jobs", "job-1"), item("jobs", "job-1"), item("jobs", "job-2"), item("jobs", "job-3"))
    await done(
        core, Subscribe("jobs", WORKER, WORKER, 3, client="stanzaq/1.2.3 (worker-7)"), Subscribe("jobs", BOB, BOB, 1)
    )
    await door.until(lambda: len(door.deliveries) == 3)
    held = {each.item_id: each for each in door.deliveries}
    progress = Progress(0.4, "page 2 of 5")
    await done(core, Renew("jobs", WORKER, "job-1", held["job-1"].token, progress=progress))
    await done(core, item("jobs", "job-1"), Retract("jobs", WORKER, "job-2", held["job-2"].token, request="r"))
    await done(core, Unlock("jobs", WORKER, "job-3", held["job-3"].token, delay_ms=60_000, request="s"))
    await done(core, *(item("jobs", f"more-{number}") for number in range(9)))
    await done(core, item("jobs", "more-8"))
    await done(core, replace(item("jobs", "urgent"), hints=Hints(priority=7, ttl_ms=60_000)))


async def collected(core: RedisCore) -> None:
    """Make a collection whose worker has all the credit in one of two leaves, and does not get into the other."""
    await done(core, Declare("uk", ALICE, {"pubsub#node_type": ("collection",)}))
    below = {"pubsub#collection": ("uk",)}
    await done(core, Declare("books", ALICE, below | {"stanzaq#partitions": ("2",)}))
    await done(core, Declare("secret", ALICE, below | {"pubsub#access_model": ("whitelist",)}), item("secret", "a"))
    await done(core, Subscribe("uk", WORKER, WORKER, 5, scope=Scope(SubscriptionType.ITEMS, None)))
    await done(core, *(replace(item("books", f"i{number}"), partition=1 - number % 2) for number in range(8)))
    lease = "lease-82d601f7ec00003c"
    several = Subscribe(lease, ALICE, Jid(f"alice@example.org/{lease}"), 5, Qos.PULLED, destinations=("jobs", "uk"))
    await done(core, several)


async def busy(core: RedisCore, door: Door) -> None:
    """Make nodes of every kind with work under way."""
    await work(core, door)
    daily = Schedule.read({"id": "report", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin"})
    await done(core, PutSchedule("jobs", ALICE, daily, codec.pack(Envelope(b"<x/>")), 4))
    await done(core, Declare("answered", ALICE, {"stanzaq#result_seconds": ("600",)}))
    asked = Hints(reply=ReplyMode.TOLD)
    await done(core, *(replace(item("answered", name), hints=asked) for name in ("job-4", "job-5")))
    await done(core, Subscribe("answered", WORKER, WORKER, 5))
    result = codec.pack(Envelope(b"<done/>"))
    await done(core, Complete("answered", WORKER, "job-4", envelope=result, body_bytes=7))
    await done(core, replace(item("answered", "job-6"), hints=Hints(after=Dependencies((Parent("job-5"),)))))
    ordered = {"stanzaq#ordered": ("true",)}
    await done(core, Declare("ordered", ALICE, ordered), Subscribe("ordered", WORKER, WORKER, 5))
    await done(core, item("ordered", "a", "customer-7"), item("ordered", "b", "customer-7"))
    bounded = {
        "stanzaq#rate_by_key": ("1/h",),
        "stanzaq#max_in_flight_by_key": ("9",),
        "stanzaq#publish_rate": ("7200/h",),
    }
    await done(core, Declare("bounded", ALICE, bounded), Subscribe("bounded", WORKER, WORKER, 5))
    await done(core, item("bounded", "a", "customer-7"), item("bounded", "b", "customer-7"))
    turns = {"stanzaq#fair": ("key",), "stanzaq#fair_weights": ("customer-7=3",)}
    await done(core, Declare("turns", ALICE, turns), item("turns", "a", "customer-7"))
    await done(core, Declare("left", ALICE, {}), item("left", "a"), Presence(BOB, available=True))
    await done(core, Subscribe("left", BOB, BOB, 5), Presence(BOB, available=False))
    await done(core, Declare("once", ALICE, {"stanzaq#dedupe": ("ignore",)}), item("once", "job-1"))
    await done(core, Declare("sure", ALICE, {}), item("sure", "a"))
    await done(core, Subscribe("sure", WORKER, WORKER, 5, Qos.ACKNOWLEDGED))
    await done(core, Declare("read", ALICE, {}), item("read", None))
    await done(core, Subscribe("read", WORKER, WORKER, 5, start="@earliest"))
    await done(core, Bind("read", BOB, 0, "audit", 7))
    halves = {"stanzaq#partitions": ("2",)}
    await done(core, Declare("owned", ALICE, halves), item("owned", None))
    await done(core, Subscribe("owned", WORKER, WORKER, 5, group="billing"))
    await collected(core)
    # A node of this name is another's: the dead letter stays where it is.
    await done(core, Declare("stuck", ALICE, {}), Declare("stuck/dead", BOB, {}))
    await done(core, Subscribe("stuck", WORKER, WORKER, 1), item("stuck", "job-1"))
    await door.until(lambda: "stuck" in {each.partition.node for each in door.deliveries})
    await done(core, Unlock("stuck", WORKER, "job-1", None, reason="torn", dead_letter=True))
    await done(
        core, Declare("closed", ALICE, {"pubsub#access_model": ("authorize",)}), Subscribe("closed", WORKER, WORKER, 5)
    )
    ends = int(time.time() * 1000) + 3_600_000
    await done(core, Declare("leased", ALICE, {}), Subscribe("leased", WORKER, WORKER, 5, until_ms=ends))
    twice = [Subscribe("several", WORKER, WORKER, 1)] * 2
    await done(core, Declare("several", ALICE, {"stanzaq#multi_subscribe": ("1",)}), *twice)
    await done(core, Declare("chosen", ALICE, {}), item("chosen", None))
    await done(core, Subscribe("chosen", WORKER, WORKER, 5, selector="color = 'red'"))
    await done(core, Subscribe("chosen", BOB, BOB, 1, selector="p.message-id IN ('one', 'two')"))
    await done(core, item("chosen", "one"), item("chosen", "two"))
    for name in ("m1", "m2"):
        await done(core, PrepareMessage(ALICE, name, Publish("jobs", ALICE, None, b"payload", 7), name))
    await done(core, Deliver(ALICE, "m2"))
    quota = SetQuota(Jid("engine@example.org/a"), "alice@example.org", Quota(items=1000, publish_rate="1000/s"))
    await done(core, quota, item("once", "metered"))


async def examples_of(client: Any) -> dict[str, list[str]]:
    """Return what there is, by the keys' last names, each entry written as the page does."""
    found: dict[str, list[str]] = {}
    for key in [name.decode() async for name in client.scan_iter()]:
        match (await client.type(key)).decode():
            case "hash":
                pairs = [(field, b" \xe2\x86\x92 ", value) for field, value in (await client.hgetall(key)).items()]
            case "zset":
                told = await client.zrange(key, 0, -1, withscores=True)
                pairs = [(member, b", ", b"%d" % int(score)) for member, score in told]
            case "list":
                pairs = [(entry, b"", b"") for entry in await client.lrange(key, 0, -1)]
            case "set":
                pairs = [(member, b"", b"") for member in await client.smembers(key)]
            case _:
                pairs = [
                    (log_id, b" \xe2\x86\x92 ", b" ".join(word for pair in fields.items() for word in pair))
                    for log_id, fields in await client.xrange(key)
                ]
        entries = [b"".join(parts).decode(errors="replace") for parts in pairs]
        found.setdefault(key.rpartition(":")[2], []).extend(entries)
    return found


async def test_they_are_true(make_core: MakeCore, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of each key that a busy service has, some entry looks like the example."""
    # The libraries are noted by the scan.
    monkeypatch.setattr(sweeper, "SCAN_EVERY", 1)
    core, door = await make_core(xmpp_domain="queue.example.org", admins="engine@example.org")
    await busy(core, door)
    hung, _ = await make_core()
    for task in hung._running:
        task.cancel()
    await done(core, Disconnect(Jid("engine@example.org/a"), hung.frontend))
    await core.measure()
    rest = RedisCore(CommandSettings(**ADMITTING, redis_url=store.url), None, "rest")
    await rest.start()
    ends = time.time() + 3_600
    lease = pull_jid(ALICE, "1f0b3c5d7e90003c")
    await done(rest, Declare("fetched", ALICE, {}))
    await done(rest, Subscribe("fetched", ALICE, lease, 5, Qos.PULLED, lease_ms=60_000))
    await rest.note_token(bare_jid(WORKER), Said(None, 0, ends, (Jid("group:queue-team"),)))
    waits = asyncio.create_task(rest.ask(Receive("fetched", ALICE, lease, 60_000, 60)))
    missing = {name for name, example in EXAMPLES.items() if not example.startswith("as `")} - {
        "sq:{qos}:deliveries_begun",
        # Only until a frontend has written them: tests/lua/test_read_outbox.py has them.
        "sq:{jobs@8e71964d/0}:outbox_records",
        "sq:{jobs@8e71964d/0}:outbox_replies",
        # Only with more locks than one script may end: tests/lua/test_bounce.py has it.
        "sq:{jobs@8e71964d/0}:locks_to_release",
        # Only while a command is carried out: tests/contract/test_audit.py has it.
        "sq:{service}:audit_notes",
        # Only while a store is upgraded: tests/processes/test_upgrades.py has it.
        "sq:{service}:upgrade",
        _NOTICES,
        _WAKEUP,
        _WAKEUPS,
    }
    seen: dict[str, list[str]] = {}
    deadline = time.monotonic() + 15
    async with store.client() as client:
        # Another frontend measures, so what is published is not measured at once.
        await client.hset(keys.of_service("quota_measuring"), "asked", 1)
        await client.persist(keys.of_service("quota_measuring"))
        await done(core, item("once", "measured"))
        await core.quota_use.refresh()
        await core.quota_use.measure()
        await done(core, item("once", "counted"))
        await core.quota_use.refresh()
        # Some exist only for a moment.
        while missing and time.monotonic() < deadline:
            seen = await examples_of(client)
            missing = {name for name in missing if not shown(name, seen)}
            await asyncio.sleep(0.05)
    waits.cancel()
    await rest.stop()
    assert not missing, {name: seen.get(name.rpartition(":")[2]) for name in missing}


def test_what_is_there_for_a_moment() -> None:
    """Short-lived keys that a command leaves for a frontend: the example is compared with what is written."""
    assert EXAMPLES[_WAKEUP] == "`1`", "tests/lua/test_leave_work.py"
    assert shape(EXAMPLES[_WAKEUPS]).fullmatch(f"{subid(WORKER)} {Partition('jobs', '8e71964d', 0)}")
    written = relay.encode(NodeEvent("jobs", WORKER, "purge")).decode()
    assert shape(EXAMPLES[_NOTICES]).fullmatch(written)


def shown(name: str, seen: Mapping[str, list[str]]) -> bool:
    """Return whether some entry of a key looks like its example."""
    return any(shape(EXAMPLES[name]).fullmatch(entry) for entry in seen.get(name.rpartition(":")[2], []))
