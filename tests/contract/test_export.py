"""`stanzaq export` and `stanzaq import`: from one store to another, each item once, also after a kill, and bad files."""

import asyncio
import json
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
import redis.asyncio as aioredis

from broker import codec, payloads
from broker.model.commands import (
    Affiliate,
    Declare,
    Describe,
    InspectItems,
    ListSchedules,
    PauseSchedule,
    Publish,
    PutSchedule,
    Retract,
    Subscribe,
)
from broker.model.items.hints import Hints
from broker.model.items.items import Envelope, ItemDetails
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, form_values
from broker.model.nodes.schedules import Schedule, ScheduleState
from broker.model.nodes.tree import COLLECTION
from broker.model.results import (
    Declared,
    Described,
    Done,
    InspectedItems,
    Published,
    Retracted,
    Scheduled,
    ScheduleList,
    Subscribed,
)
from broker.redis_core.core import RedisCore
from frontends.commands.stores import export_file
from frontends.tools.servers.redis import RedisServer
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.shell import Shell
from tests.waiting import PATIENCE_SECONDS

ALICE, W1 = Jid("alice@x/home"), Jid("w1@x/a")
QUEUEING = "{urn:xmpp:pubsub:queueing:0}enabled"


@pytest.fixture
def target(tmp_path: Path) -> Any:  # noqa: ANN401  (a generator's)
    """Run another Redis, which is empty."""
    with RedisServer(tmp_path / "target") as server:
        yield server


async def published(core: RedisCore, node: str, item: str | None, envelope: Envelope, **more: Any) -> None:  # noqa: ANN401
    """Publish an item."""
    command = Publish(node, ALICE, item, codec.pack(envelope), len(envelope.body), **more)
    assert isinstance(await core.ask(command), Published)


async def items(core: RedisCore, node: str) -> list[ItemDetails]:
    """Return the items of a node in the order of its partitions."""
    found: list[ItemDetails] = []
    place = ""
    while True:
        part = await core.ask(InspectItems(node, ALICE, (), 1_000, place))
        assert isinstance(part, InspectedItems)
        found += part.items
        place = part.scan
        if not place:
            return found


def told(one: ItemDetails) -> tuple[Any, ...]:
    """Return what an import keeps of an item."""
    named = one.item_id != f"{one.partition}-{one.position}"
    return (named and one.item_id, one.partition, one.publisher, one.key, one.priority, one.envelope)


async def test_everything_arrives(  # noqa: PLR0917  (fixtures)
    target: RedisServer, core: RedisCore, door: Door, make_core: MakeCore, store: Store, node: str, tmp_path: Path
) -> None:
    """Issue 56: items with all that they have, options, rights and schedules of a queue and a log; a repeat adds nothing."""
    log, above = f"{node}-log", f"{node}-above"
    options = {"stanzaq#lock_seconds": ("300",), "stanzaq#partitions": ("3",), COLLECTION: (above,)}
    assert await core.ask(Declare(above, ALICE, {"pubsub#node_type": ("collection",)})) == Declared(above)
    assert await core.ask(Declare(node, ALICE, options)) == Declared(node)
    assert await core.ask(Declare(log, ALICE, {QUEUEING: ("0",)})) == Declared(log)
    rights = {Jid("w1@x"): "member", Jid("bad@y"): "outcast", Jid("group:/a@b"): "owner"}
    assert await core.ask(Affiliate(node, ALICE, rights)) == Done()
    item = codec.pack(Envelope(b'"x"', payloads.JSON, {"a": "b"}))
    schedule = Schedule.read({"id": "daily", "cron": "0 9 * * *", "zone": "Europe/Berlin", "catchup": "all"})
    made = await core.ask(PutSchedule(node, ALICE, schedule, item, 3, "k", Hints(priority=2)))
    assert isinstance(made, Scheduled)
    assert isinstance(await core.ask(PauseSchedule(node, ALICE, "daily", paused=True)), Scheduled)
    await published(core, node, "held", Envelope(b"<x xmlns='urn:x'/>"), key="k")
    taken = await core.ask(Subscribe(node, W1, W1, 3, partitions=(0, 1, 2)))
    assert isinstance(taken, Subscribed)
    await door.until(lambda: bool(door.deliveries))
    for number in range(7):
        await published(core, node, f"i{number}", Envelope(b"%d" % number, payloads.JSON), partition=number % 3)
    await published(core, node, "raw", Envelope(b"\xff\0", "image/png", {"amqp": "inner", "traceparent": "00"}))
    await published(core, node, "later", Envelope(b"<y xmlns='urn:x'/>"), hints=Hints(3_600_000, 9, 7_200_000))
    await published(core, node, None, Envelope(b"made", "text/plain"))
    for number in range(3):
        await published(core, log, "twice" if number else None, Envelope(b"%d" % number, payloads.JSON))
    (exported,) = await Shell(store.url).several(("export", above, node, log))
    assert exported.code == 0, exported
    assert json.loads(exported.out.splitlines()[-1]) == {"is": "end", "nodes": 3, "items": 14}
    file = tmp_path / "file"
    file.write_text(exported.out)
    first, second = await Shell(target.url).several(("import", str(file)), ("import", str(file)))
    assert (first.code, first.err) == (0, "stanzaq: 14 imported\n"), first
    assert (second.code, second.err) == (0, "stanzaq: 14 there already\n"), second
    there, _ = await make_core(target.url)
    assert list(map(told, await items(there, node))) == list(map(told, await items(core, node)))
    before = {one.item_id: one for one in await items(core, node)}
    after = {one.item_id: one for one in await items(there, node)}
    assert after["held"].lock is None and before["held"].lock
    for name in ("until_ms", "ends_ms"):
        assert abs(getattr(after["later"], name) - getattr(before["later"], name)) < PATIENCE_SECONDS * 1_000
    assert [codec.unpack(one.envelope).body for one in await items(there, log)] == [b"0", b"1", b"2"]
    assert [one.item_id for one in await items(there, log)][1:] == ["twice"] * 2
    old, new = [await each.ask(Describe(node, ALICE, as_owner=True)) for each in (core, there)]
    assert isinstance(old, Described) and isinstance(new, Described)
    assert form_values(node, old.record.config) == form_values(node, new.record.config)
    assert old.record.affiliations == new.record.affiliations and new.record.parent == above
    listed = await there.ask(ListSchedules(node, ALICE, 1, id="daily"))
    assert isinstance(listed, ScheduleList)
    (status,) = listed.schedules
    assert (status.schedule, status.maker, status.state) == (schedule, "alice@x", ScheduleState.PAUSED)
    assert status.item is not None
    assert (status.item.envelope, status.item.key, status.item.hints) == (item, "k", Hints(priority=2))


async def test_who_owns_it_no_longer(  # noqa: PLR0917  (fixtures)
    target: RedisServer, core: RedisCore, make_core: MakeCore, store: Store, node: str, tmp_path: Path
) -> None:
    """Whoever created a node and lost it, or is an outcast since, gets nothing by an import, not even for a moment."""
    mallory = Jid("mallory@y")
    nodes = {f"{node}-lost": "none", f"{node}-cast": "outcast"}
    for name, affiliation in nodes.items():
        assert await core.ask(Declare(name, mallory, {})) == Declared(name)
        assert await core.ask(Affiliate(name, mallory, {Jid("bob@x"): "owner"})) == Done()
        assert await core.ask(Affiliate(name, Jid("bob@x"), {mallory: affiliation})) == Done()
    (exported,) = await Shell(store.url).several(("export", *nodes))
    assert exported.code == 0, exported
    file = tmp_path / "file"
    file.write_text(exported.out)
    first, second = await Shell(target.url).several(("import", str(file)), ("import", str(file)))
    assert (first.code, second.code) == (0, 0), (first, second)
    there, _ = await make_core(target.url)
    for name, affiliation in nodes.items():
        described = await there.ask(Describe(name, Jid("bob@x"), as_owner=True))
        assert isinstance(described, Described), described
        rights = described.record.affiliations
        assert rights[Jid("bob@x")] is Affiliation.OWNER and described.record.creator == "bob@x"
        assert rights.get(mallory, Affiliation.NONE).value == affiliation


async def killed_import(target: RedisServer, file: Path, node: str) -> int:
    """Kill an import as soon as it has stored something; returns how much it has stored by then."""
    shell = Shell(target.url)
    with subprocess.Popen([*shell.command, "import", str(file)], env=shell.environment) as running:  # noqa: ASYNC220
        async with aioredis.Redis.from_url(target.url) as client, asyncio.timeout(PATIENCE_SECONDS):
            # Only polling sees what another process does.
            while not (keys := await client.keys(f"sq:{{{node}@*}}:log")) or not await client.xlen(keys[0]):  # noqa: ASYNC110
                await asyncio.sleep(0.001)
            running.send_signal(signal.SIGKILL)
            running.wait()
            return int(await client.xlen(keys[0]))


def write_export(file: Path, node: str, count: int) -> list[str]:
    """Write an export of a queue with so many items; returns their ids."""
    names = [f"item-{number}" for number in range(count)]
    write_items(file, node, {f"{number}-1": name for number, name in enumerate(names)})
    return names


def write_items(file: Path, node: str, named: Mapping[str, str], **options: str) -> None:
    """Write an export of a queue with these items by position."""
    lines: list[export_file.Line] = [
        export_file.Head(version=export_file.VERSION),
        export_file.NodeLine(
            node=node,
            incarnation="0",
            owner="alice@x",
            options={"access_model": "open", **options},
            affiliations={"alice@x": "owner"},
        ),
        *(
            export_file.ItemLine(
                item=name,
                partition=0,
                position=position,
                publisher="bob@x",
                content_type="text/plain",
                payload="x" * 200,
            )
            for position, name in named.items()
        ),
        export_file.EndLine(nodes=1, items=len(named)),
    ]
    file.write_bytes(b"".join(map(export_file.write_line, lines)))


async def test_an_id_that_is_anothers(target: RedisServer, make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """An item whose id the service has made is no stranger's of that id in the other store; a repeat adds nothing."""
    core, _ = await make_core(target.url)
    assert await core.ask(Declare(node, ALICE, {})) == Declared(node)
    await published(core, node, None, Envelope(b"stranger", "text/plain"))
    (stranger,) = await items(core, node)
    write_items(tmp_path / "file", node, {stranger.position: stranger.item_id, "5-1": "named"})
    once = ("import", str(tmp_path / "file"))
    first, second = await Shell(target.url).several(once, once)
    assert (first.err, second.err) == ("stanzaq: 2 imported\n", "stanzaq: 2 there already\n"), (first, second)
    here, arrived, named = await items(core, node)
    assert here == stranger and named.item_id == "named"
    assert codec.unpack(arrived.envelope).body == b"x" * 200 and arrived.item_id == f"0-{arrived.position}"


async def test_a_full_node(target: RedisServer, make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Nothing is dropped for an import, also where the oldest makes room for a publish."""
    core, _ = await make_core(target.url)
    options = {"pubsub#max_items": ("1",), "pubsub#publish_node_full": ("retract-oldest",)}
    assert await core.ask(Declare(node, ALICE, options)) == Declared(node)
    await published(core, node, "own", Envelope(b"own", "text/plain"))
    write_items(tmp_path / "file", node, {"5-1": "theirs"}, max_items="1", publish_node_full="retract-oldest")
    done = await Shell(target.url)("import", str(tmp_path / "file"))
    assert done.code == 1 and f"{node}, item theirs: " in done.err and "run the import again" in done.err, done
    assert [one.item_id for one in await items(core, node)] == ["own"]


async def resumes(make_core: MakeCore, target: RedisServer, node: str, file: Path, count: int) -> int:
    """Interrupt an import of so many items, let somebody work on the first, and run it again; returns when it was killed."""
    names = write_export(file, node, count)
    stored = await killed_import(target, file, node)
    core, door = await make_core(target.url)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    await door.until(lambda: bool(door.deliveries))
    given = door.deliveries[0]
    assert isinstance(await core.ask(Retract(node, W1, given.item_id, given.token)), Retracted)
    (done,) = await Shell(target.url).several(("import", str(file)))
    assert done.code == 0, done
    assert [one.item_id for one in await items(core, node)] == names[1:]
    return stored


async def test_goes_on_after_a_kill(target: RedisServer, make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Issue 56: an import that was killed is run again: each item once, in its order, and none that was worked on meanwhile."""
    await resumes(make_core, target, node, tmp_path / "file", 2_000)


@pytest.mark.soak
async def test_a_hundred_thousand(target: RedisServer, make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Issue 56: 100,000 items with a kill in between, exported from one store and imported into the next."""
    assert await resumes(make_core, target, node, tmp_path / "file", 100_000) < 100_000
    with (tmp_path / "again").open("wb") as out:
        shell = Shell(target.url)
        exporting = subprocess.run([*shell.command, "export", node], env=shell.environment, stdout=out, check=True)  # noqa: ASYNC221
    assert exporting.returncode == 0
    with RedisServer(tmp_path / "third") as third:
        assert await killed_import(third, tmp_path / "again", node) < 99_999
        (done,) = await Shell(third.url).several(("import", str(tmp_path / "again")))
        assert done.code == 0, done
        core, _ = await make_core(third.url)
        assert [one.item_id for one in await items(core, node)] == [f"item-{number}" for number in range(1, 100_000)]


BAD: list[tuple[str, str]] = [
    ("", "F is no export of stanzaq"),
    ("{}\n", "F is no export of stanzaq"),
    (
        '{"is": "stanzaq export", "version": 2, "service": "9.9.9"}\n',
        "has version 2 of the format, and this program reads 1: use stanzaq 9.9.9",
    ),
    ("HEAD", "F is cut short after line 1"),
    ("HEAD NODE", "F is cut short after line 2"),
    ('HEAD NODE {"is": "item", "it', "F is cut short after line 3"),
    ("HEAD NODE nothing\n", "F, line 3: JSON is malformed"),
    ("HEAD ITEM END", "F, line 2: an item stands before the line of its node"),
    ('HEAD NODE {"is": "end", "nodes": 1, "items": 2}\n', "F has 1 nodes and 0 items, and its last line says 1 and 2"),
    ("HEAD NODE ITEM END END", "F, line 5: there is more after the line with the count"),
    ('HEAD NODE {"is": "item", "itme": "a"}\n', "F, line 3: Object contains unknown field `itme`"),
]


@pytest.mark.parametrize(("text", "sentence"), BAD)
def test_bad_files(text: str, sentence: str) -> None:
    """Issue 56: a file that is no export, or not a whole one, is told in one sentence with its line."""
    given: dict[str, export_file.Line] = {
        "HEAD": export_file.Head(version=1),
        "NODE": export_file.NodeLine(node="n", incarnation="0", owner="a@x", options={}, affiliations={}),
        "ITEM": export_file.ItemLine(
            item="i", partition=0, position="1-1", publisher="a@x", content_type="text/plain", payload=""
        ),
        "END": export_file.EndLine(nodes=1, items=1),
    }
    for name, line in given.items():
        text = text.replace(f"{name} ", name).replace(name, export_file.write_line(line).decode())
    with pytest.raises(export_file.Unreadable) as refused:
        list(export_file.read_lines("F", text.encode().splitlines(keepends=True)))
    assert sentence in str(refused.value)


async def test_another_number_of_partitions(
    target: RedisServer, make_core: MakeCore, node: str, tmp_path: Path
) -> None:
    """Issue 56: entries without key and id go to one partition each, also when the import is run again."""
    core, _ = await make_core(target.url)
    assert await core.ask(Declare(node, ALICE, {QUEUEING: ("0",), "stanzaq#partitions": ("2",)})) == Declared(node)
    options = {"queueing": "0", "partitions": "3"}
    lines: list[export_file.Line] = [
        export_file.Head(version=1),
        export_file.NodeLine(node=node, incarnation="0", owner="alice@x", options=options, affiliations={}),
        *(
            export_file.ItemLine(
                item=f"{number % 3}-{number}-1",
                partition=number % 3,
                position=f"{number}-1",
                publisher="bob@x",
                content_type="text/plain",
                payload=str(number),
            )
            for number in range(9)
        ),
        export_file.EndLine(nodes=1, items=9),
    ]
    file = tmp_path / "file"
    file.write_bytes(b"".join(map(export_file.write_line, lines)))
    again = ("import", "--keep-options", str(file))
    assert [done.code for done in await Shell(target.url).several(again, again)] == [0, 0]
    found = [(one.partition, codec.unpack(one.envelope).body) for one in await items(core, node)]
    assert found == [(0, b"%d" % number) for number in (0, 2, 3, 5, 6, 8)] + [(1, b"%d" % n) for n in (1, 4, 7)]


async def test_refusals(target: RedisServer, make_core: MakeCore, node: str, tmp_path: Path) -> None:
    """Issue 56: a node with other options or rights is refused with the differences, unless they are kept; nothing half done."""
    core, _ = await make_core(target.url)
    assert await core.ask(Declare(node, ALICE, {"stanzaq#lock_seconds": ("30",)})) == Declared(node)
    line = {
        "is": "node",
        "node": f"{node}-new",
        "incarnation": "1",
        "owner": "alice@x",
        "options": {},
        "affiliations": {},
    }
    other = line | {"node": node, "options": {"lock_seconds": "60"}, "affiliations": {"alice@x": "publisher"}}
    item = {
        "is": "item",
        "content_type": "text/plain",
        "payload": "x",
        "item": "a",
        "partition": 0,
        "position": "1-1",
        "publisher": "a@x",
    }

    def written(name: str, *lines: dict[str, Any]) -> str:
        head = {"is": "stanzaq export", "version": 1}
        end = {
            "is": "end",
            "nodes": sum(each["is"] == "node" for each in lines),
            "items": sum(each["is"] == "item" for each in lines),
        }
        file = tmp_path / name
        file.write_text("".join(f"{json.dumps(each)}\n" for each in (head, *lines, end)))
        return str(file)

    files = {
        "unknown": (
            written("a", line, other | {"options": {"lock_second": "60"}}),
            "line 3: lock_second is not an option of a node; did you mean lock_seconds",
        ),
        "value": (
            written("b", line, other | {"options": {"lock_seconds": "0"}}),
            "line 3: stanzaq#lock_seconds must be a whole number",
        ),
        "role": (
            written("c", line, line | {"node": "n", "affiliations": {"b@x": "editor"}}),
            "line 3: b@x: editor is none of owner, publisher",
        ),
        "below": (
            written("f", line, line | {"node": "n", "collection": "above"}),
            "n is below above, which is neither there nor before it",
        ),
        "json": (written("d", line, item | {"content_type": "application/json"}), "line 3: the payload is not JSON"),
        "differs": (written("e", line, other, item), "lock_seconds changes from 30 to 60; "),
    }
    shell = Shell(target.url)
    *refused, missing, kept, unknown = await shell.several(
        *(("import", file) for file, _ in files.values()),
        ("import", "nothing"),
        ("import", "--keep-options", files["differs"][0]),
        ("export", "nothing"),
    )
    for (name, (_, sentence)), done in zip(files.items(), refused, strict=True):
        assert done.code == 1 and sentence in done.err, name
        assert done.err.count("\n") == 1
    assert missing.code == 2 and "nothing cannot be read: No such file" in missing.err
    assert kept.code == 0 and kept.err == "stanzaq: 1 imported\n"
    assert unknown.code == 1 and "there is no node nothing" in unknown.err
    described = await core.ask(Describe(node, ALICE, as_owner=True))
    assert isinstance(described, Described) and described.record.config.lock_seconds == 30
    assert [one.item_id for one in await items(core, node)] == ["a"]
