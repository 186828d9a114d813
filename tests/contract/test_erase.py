"""`stanzaq erase`: what belongs to an account goes from a whole service, and the audit says that it did."""

import json

import pytest

from broker import codec
from broker.model import audit
from broker.model.commands import (
    Affiliate,
    Command,
    Declare,
    NoteErasure,
    Publish,
    PutSchedule,
    Read,
    SetQuota,
    Stats,
    Subscribe,
)
from broker.model.items.hints import Hints
from broker.model.items.items import Envelope
from broker.model.names import Jid, bare_jid
from broker.model.nodes.quotas import Quota
from broker.model.nodes.schedules import Schedule
from broker.model.problems import Problem
from broker.model.results import Counted, Declared, Refused, Replay
from broker.redis_core.core import RedisCore
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.shell import Shell

ADMIN, ALICE, EVE = Jid("root@x/desk"), Jid("alice@x/home"), Jid("eve@y/phone")
BARE = bare_jid(EVE)
ITEM = codec.pack(Envelope(b"<secret/>"))


@pytest.fixture
async def audited(make_core: MakeCore) -> tuple[RedisCore, Door]:
    """Return a core with an audit and an administrator."""
    return await make_core(admins=(bare_jid(ADMIN),), audit=True)


async def done(core: RedisCore, *commands: Command) -> None:
    """Run commands, none of which is refused."""
    for command in commands:
        outcome = await core.ask(command)
        assert not isinstance(outcome, Refused), outcome


async def fill(core: RedisCore, door: Door, node: str) -> None:
    """Let eve publish, hold, subscribe, plan and own."""
    opened = {"pubsub#publish_model": ("open",), "pubsub#access_model": ("open",)}
    log = {"{urn:xmpp:pubsub:queueing:0}enabled": ("false",)}
    halves = {"stanzaq#partitions": ("2",)}
    await done(core, Declare(node, ALICE, opened), Declare(f"{node}-log", ALICE, opened | log))
    await done(core, Declare(f"{node}-own", EVE, halves), Affiliate(node, ALICE, {BARE: "owner"}))
    daily = Schedule.read({"id": "report", "every": "1h"})
    await done(core, PutSchedule(node, EVE, daily, ITEM, 9), SetQuota(ADMIN, BARE, Quota(items=1000)))
    await done(core, Publish(node, EVE, "held", ITEM, 9), Subscribe(node, ALICE, ALICE, 1))
    await door.until(lambda: len(door.deliveries) == 1)
    await done(core, *(Publish(name, EVE, None, ITEM, 9) for name in (node, f"{node}-log", f"{node}-own") * 3))
    await done(core, Publish(node, EVE, "later", ITEM, 9, hints=Hints(delay_ms=60_000)))
    await done(core, Publish(node, ALICE, "hers", ITEM, 9), Subscribe(f"{node}-log", EVE, EVE, 5, start="@latest"))


async def test_a_whole_service(audited: tuple[RedisCore, Door], store: Store, node: str) -> None:
    """All is counted first; it goes, and what is held only when that is said; the audit has no content of it."""
    core, door = audited
    await fill(core, door, node)
    shell = Shell(store.url)
    shell.environment |= {"STANZAQ_AUDIT": "true", "STANZAQ_ADMINS": bare_jid(ADMIN)}
    asked, wrong, looked, erased, again = await shell.several(
        ("erase", BARE),
        ("erase", "y", "--yes"),
        ("erase", BARE, "--dry-run", "--json"),
        ("erase", BARE, "--yes", "--json"),
        ("erase", BARE, "--yes", "--held", "--json"),
    )
    assert (asked.code, wrong.code) == (2, 2) and "'y' is not a bare JID" in wrong.err
    found = {
        "schedules": 1,
        "subscriptions": 1,
        "items": 10,
        "ends": 0,
        "records": 0,
        "quotas": 1,
        "held": 1,
        "leaving": 0,
    }
    assert {name: looked.json[name] for name in found} == found and looked.json["affiliations"] == 2
    assert {name: erased.json[name] for name in found} == found
    assert (erased.json["affiliations"], erased.json["owned_nodes"]) == (1, [f"{node}-own"])
    assert [again.json[name] for name in ("items", "held", "schedules", "subscriptions")] == [1, 0, 0, 0]
    counted = await core.ask(Stats(node, ALICE))
    assert isinstance(counted, Counted) and counted.waiting + counted.in_flight + counted.delayed == 1
    log = await core.ask(Read(f"{node}-log", ALICE, 0, "@earliest", 10))
    assert isinstance(log, Replay) and log.events == ()
    entries = await core.ask(Read(audit.NODE, ADMIN, 0, "@earliest", 100))
    assert isinstance(entries, Replay)
    told = [json.loads(codec.unpack(each.envelope).body) for each in entries.events]
    noted = [each["what"] for each in told if each["command"] == "NoteErasure"]
    assert [each.get("counts", {}).get("items") for each in noted] == [None, 10, None, 1]
    assert not any(b"secret" in each.envelope for each in entries.events)


async def test_administrators_only(audited: tuple[RedisCore, Door], node: str) -> None:
    """Nobody else may note an erasure."""
    refused = await audited[0].ask(NoteErasure(EVE, BARE))
    assert isinstance(refused, Refused) and refused.problem is Problem.FORBIDDEN
    assert await audited[0].ask(Declare(node, ALICE, {})) == Declared(node)
