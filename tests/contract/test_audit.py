"""The audit over a real server: what is written of each administrative command, and what becomes of it when something dies."""

import asyncio
import json
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker import codec, keys
from broker.model import audit
from broker.model.commands import (
    Affiliate,
    Associate,
    Command,
    Configure,
    Declare,
    Delete,
    Disconnect,
    MoveItems,
    Publish,
    Purge,
    Read,
    Release,
    RemoveSchedule,
    SetQuota,
    Stats,
)
from broker.model.items.items import Envelope
from broker.model.names import Jid, bare_jid
from broker.model.nodes.quotas import Quota
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Declared, Done, Published, Refused, Replay
from broker.redis_core import audit as audit_module
from broker.redis_core.core import RedisCore
from broker.redis_core.registry.rows import ROWS
from tests.contract.conftest import MakeCore, Store
from tests.contract.shell import Shell
from tests.operations import EXAMPLES, shape

ADMIN, ALICE, EVE = Jid("root@x/desk"), Jid("alice@x/home"), Jid("eve@y/phone")
ITEM = codec.pack(Envelope(b"<x/>"))


@pytest.fixture
async def audited(make_core: MakeCore) -> RedisCore:
    """Return a core with an audit and an administrator."""
    return (await make_core(admins=(bare_jid(ADMIN),), audit=True))[0]


async def written(core: RedisCore) -> list[dict[str, Any]]:
    """Return the entries of the audit."""
    found = await core.ask(Read(audit.NODE, ADMIN, 0, "@earliest", 100))
    return [json.loads(codec.unpack(each.envelope).body) for each in found.events] if isinstance(found, Replay) else []


async def test_changes(audited: RedisCore, node: str) -> None:
    """An entry says who changed what from where, before and after; what is no change has none."""
    audit.ADDRESS.set("192.0.2.7")
    with capture_logs() as lines:
        assert await audited.ask(Declare(node, ALICE, {"pubsub#title": ("Jobs",)})) == Declared(node)
        assert await audited.ask(Configure(node, ALICE, {"stanzaq#max_deliveries": ("7",)})) == Done()
        assert await audited.ask(Affiliate(node, ALICE, {bare_jid(EVE): "member"})) == Done()
        assert isinstance(await audited.ask(Publish(node, ALICE, None, ITEM, 4)), Published)
        await audited.ask(Stats(node, ALICE))
        await audited.ask(Purge(node, ALICE))
        await audited.ask(SetQuota(ADMIN, "x", Quota(nodes=5)))
        assert await audited.ask(Delete(node, ADMIN)) == Done()
    made, configured, affiliated, purged, limited, deleted = await written(audited)
    assert (made["command"], made["node"], made["before"]) == ("Declare", node, {})
    assert made["after"]["options"]["pubsub#title"] == "Jobs"
    assert made["after"]["affiliations"] == {"alice@x": "owner"}
    options = {"stanzaq#max_deliveries": "20"}, {"stanzaq#max_deliveries": "7"}
    assert (configured["before"]["options"], configured["after"]["options"]) == options
    about = ("who", "door", "address", "outcome", "what")
    what = {"options": {"stanzaq#max_deliveries": ["7"]}}
    assert [configured[name] for name in about] == [ALICE, "xmpp", "192.0.2.7", "done", what]
    assert (affiliated["before"], affiliated["after"]) == ({}, {"affiliations": {"eve@y": "member"}})
    assert (purged["result"], purged["before"], purged["after"]) == ({"count": 1, "more": False}, {}, {})
    assert (limited["what"]["subject"], limited["after"]) == ("x", {"quota": {"nodes": 5}})
    assert (deleted["who"], deleted["after"]) == (ADMIN, {})
    assert deleted["before"]["affiliations"] == {"alice@x": "owner", "eve@y": "member"}
    told = [line for line in lines if line["event"] == "administered"]
    assert [line["command"] for line in told] == [
        each["command"] for each in (made, configured, affiliated, purged, limited, deleted)
    ]
    assert told[0]["subscriber"] == ALICE


async def test_a_very_large_change(audited: RedisCore, node: str) -> None:
    """A change that no entry has room for leaves one that says how large it was."""
    await audited.ask(Declare(node, ALICE, {}))
    many = {Jid(f"{'x' * 60}{number}@y"): "member" for number in range(4_000)}
    assert await audited.ask(Affiliate(node, ALICE, many)) == Done()
    entry = (await written(audited))[1]
    assert (entry["command"], entry["outcome"]) == ("Affiliate", "done") and entry["what"]["bytes"] > 500_000


async def test_refusals(audited: RedisCore, node: str) -> None:
    """Whoever is refused an administrative command is in the audit, whatever the command."""
    await audited.ask(Declare(node, ALICE, {}))
    asked: list[Command] = [
        Configure(node, EVE, {"stanzaq#rate": ("1/s",)}),
        Delete(node, EVE),
        Purge(node, EVE),
        Affiliate(node, EVE, {bare_jid(EVE): "owner"}),
        Affiliate(node, ALICE, {bare_jid(ALICE): "none"}),
        Release(node, EVE, ("a",)),
        MoveItems(node, EVE, None, ("a",), "", 1),
        RemoveSchedule(node, EVE, "daily"),
        Associate("no-collection", ALICE, node),
        Disconnect(EVE, "00000000"),
        SetQuota(EVE, "y", None),
    ]
    answers = [await audited.ask(each) for each in asked]
    entries = (await written(audited))[1:]
    assert [each["outcome"] for each in entries] == ["refused"] * len(asked)
    assert [each["command"] for each in entries] == [type(each).__name__ for each in asked]
    problems = [each.problem.value for each in answers if not isinstance(each, Done)]  # type: ignore[union-attr]
    assert [each["problem"] for each in entries] == problems
    assert [each["before"] for each in entries] == [{}] * len(asked)


async def test_it_is_read_by_administrators_only(audited: RedisCore, node: str) -> None:
    """The log is the service's: nobody takes its name, and nobody but administrators reads or writes it."""
    taken = await audited.ask(Declare(audit.NODE, ALICE, {}))
    assert isinstance(taken, Refused) and taken.problem is Problem.NODE_NAME_INVALID
    for asked in (Read(audit.NODE, ALICE, 0, "@earliest", 1), Publish(audit.NODE, ALICE, None, ITEM, 4)):
        refused = await audited.ask(asked)
        assert isinstance(refused, Refused) and refused.problem in {Problem.CLOSED_NODE, Problem.FORBIDDEN}
    assert [each["problem"] for each in await written(audited)] == ["node-name-invalid"]


async def test_a_process_dies(audited: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A change whose process dies before it is answered is in the audit, once: how it ended is unknown."""
    assert audited._audit
    begun, release = asyncio.Event(), asyncio.Event()

    async def hang(_command: object) -> Done:
        begun.set()
        await release.wait()
        return Done()

    dying = asyncio.ensure_future(audited._audit.carry_out(hang, Configure(node, ALICE, {"stanzaq#rate": ("1/s",)})))
    await begun.wait()
    dying.cancel()
    async with store.client() as client:
        ((name, note),) = (await client.hgetall(keys.of_service("audit_notes"))).items()
    assert shape(EXAMPLES["sq:{service}:audit_notes"]).fullmatch(f"{name.decode()} → {note.decode()}")
    await audited._audit.finish()
    assert await written(audited) == []
    monkeypatch.setattr(audit_module, "ABANDONED_MS", 0)
    await asyncio.gather(audited._audit.finish(), audited._audit.finish())
    (entry,) = await written(audited)
    assert (entry["command"], entry["node"], entry["outcome"]) == ("Configure", node, "unknown")
    async with store.client() as client:
        assert not await client.exists(keys.of_service("audit_notes"))


async def test_nothing_can_be_published(
    audited: RedisCore, store: Store, node: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While an entry cannot be published, the change succeeds and its entry waits; beyond the bound the log says it is lost."""
    assert await audited.ask(Declare(node, ALICE, {})) == Declared(node)
    assert audited._audit
    publish = audited._audit._ask

    fault = CoreUnavailable("Redis is away")

    async def refuse(_command: Command) -> Refused:
        raise fault

    monkeypatch.setattr(audited._audit, "_ask", refuse)
    assert await audited.ask(Configure(node, ALICE, {"stanzaq#rate": ("1/s",)})) == Done()
    monkeypatch.setattr(audit_module, "MOST_NOTES", 1)
    with capture_logs() as lines:
        assert await audited.ask(Configure(node, ALICE, {"stanzaq#rate": ("2/s",)})) == Done()
    lost = next(line for line in lines if line["event"] == "an audit entry is lost")
    assert (lost["log_level"], lost["command"], lost["node"]) == ("error", "Configure", node)
    assert [each["command"] for each in await written(audited)] == ["Declare"]
    monkeypatch.setattr(audited._audit, "_ask", publish)
    monkeypatch.setattr(audit_module, "ABANDONED_MS", 0)
    await audited._audit.finish()
    entry = (await written(audited))[1]
    assert (entry["outcome"], entry["what"]) == ("done", {"options": {"stanzaq#rate": ["1/s"]}})


async def test_the_name_is_taken(make_core: MakeCore, store: Store, node: str) -> None:
    """Where somebody else's node has the name, nothing is published to it, and the log says so."""
    core, _ = await make_core()
    await core._store.create(audit.NODE, bare_jid(EVE), audit_module._CONFIG, None)
    audited, _ = await make_core(audit=True)
    with capture_logs() as lines:
        assert await audited.ask(Declare(node, ALICE, {})) == Declared(node)
    assert any("belongs to another" in line["event"] for line in lines)


@pytest.fixture
def shell(audited: RedisCore, store: Store) -> Shell:
    """Return a shell beside a frontend."""
    shell = Shell(store.url)
    shell.environment["STANZAQ_AUDIT"] = "true"
    return shell


async def test_command(shell: Shell, audited: RedisCore, node: str) -> None:
    """`stanzaq audit` prints entries as a table and as lines of JSON; what the shell changes is in it."""
    nothing, made, wrong, shown, exported = await shell.several(
        ("audit",),
        ("node", "create", node, "--owner", "alice@x"),
        ("audit", "--since", "soon"),
        ("audit",),
        ("audit", "--since", "1h", "--json"),
    )
    assert (nothing.code, made.code, wrong.code) == (1, 0, 2)
    assert "STANZAQ_AUDIT=true" in nothing.err and "neither a time" in wrong.err
    assert f"Declare\t{node}\tdone\t" in shown.out
    entry = json.loads(exported.out.splitlines()[0])
    assert (entry["who"], entry["door"], entry["node"]) == ("alice@x", "command line", node)
    assert entry["address"].startswith("user ")


def test_commands_that_administer() -> None:
    """The table of commands says which ones administer, and each has a handler, which the audit surrounds."""
    administer = {kind.__name__ for kind, row in ROWS.items() if row.administers}
    assert administer == {
        *("Declare", "Configure", "Delete", "Purge", "Associate", "Dissociate", "Affiliate", "Approve"),
        *("ManageSubscribers", "PutSchedule", "PauseSchedule", "RemoveSchedule", "Release", "MoveItems"),
        *("Disconnect", "SetQuota", "NoteErasure"),
    }
    assert all(row.handler and row.handled is None and not row.waits for row in ROWS.values() if row.administers)
