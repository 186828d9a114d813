"""`stanzaq node` and `stanzaq item` as an administrator runs them, beside a frontend that serves."""

import asyncio
import contextlib
import fcntl
import json
import os
import pty
import re
import signal
import socket
import struct
import sys
import termios
import time
from importlib.metadata import version as installed
from typing import Final

import pytest

from broker import codec
from broker.model.commands import Cancel, Configure, Declare, Publish, Renew, Retract, Stats, Subscribe, Unlock
from broker.model.items.items import Envelope, LockEnded
from broker.model.items.progress import Progress
from broker.model.names import Jid
from broker.model.problems import Problem
from broker.model.results import (
    Cancelled,
    Counted,
    Declared,
    Published,
    Refused,
    Renewed,
    Retracted,
    Subscribed,
    Unlocked,
)
from broker.redis_core.core import RedisCore
from broker.redis_core.registry.partitioner import choose_by_hash
from frontends.commands import fields
from tests.contract.conftest import Door, MakeCore, Store
from tests.contract.shell import Shell
from tests.waiting import PATIENCE_SECONDS

ALICE, W1, W2 = Jid("alice@x/home"), Jid("w1@x/a"), Jid("w2@x/a")

PROMPT_SECONDS = 10
"""Time after a command until a frontend has acted on it: a heartbeat, and some more for a busy machine."""


REFUSALS: Final = [
    (("node", "show", "nothing"), 1, "there is no such node"),
    (("node", "configure", "NODE", "lock_seconds=none"), 1, "lock_seconds must be a whole number from 1 to 43200"),
    (("node", "configure", "NODE", "rate=0/s"), 1, "rate must be a rate from 1 to 1000000"),
    (("node", "configure", "NODE", "partitions=1"), 1, "create a wider one"),
    (("node", "configure", "NODE", "locks=1"), 2, "locks is not an option"),
    (("node", "configure", "NODE"), 2, "key=value"),
    (("node", "create", "NODE"), 1, "node-exists"),
    (("node", "create", "other", "--owner", "not a jid"), 2, "--owner: 'not a jid' is not a JID"),
    (("node", "create", "other", "--member", "@x"), 2, "--member: '@x' is not a JID"),
    (("node", "grant", "NODE"), 2, "--member JID for who works on items"),
    (("node", "grant", "NODE", "--publisher", "@x"), 2, "--publisher: '@x' is not a JID"),
    (("node", "grant", "NODE", "--member", "group:"), 2, "--member: 'group:' names no group"),
    (("node", "grant", "nothing", "--member", "a@x"), 1, "there is no such node"),
    (("node", "revoke", "NODE"), 2, "Missing argument"),
    (("node", "revoke", "NODE", "alice@x"), 1, "a node keeps at least one owner"),
    (("node", "approve", "NODE", "b@x"), 1, "b@x does not ask to subscribe to "),
    (("node", "purge", "NODE"), 2, "--yes"),
    (("node", "delete", "NODE"), 2, "--yes"),
    (("node", "move", "NODE", "NODE"), 1, "its own items"),
    (("item", "show", "NODE", "x"), 1, "no item x"),
    (("item", "redrive", "NODE"), 2, "--all"),
    (("item", "redrive", "NODE", "x"), 1, "none of these"),
    (("item", "redrive", "NODE", "x", "--all"), 2, "leave it out, or the ids"),
    (("item", "release", "NODE"), 2, "--holder"),
    (("item", "release", "NODE", "--holder", "w@@x"), 2, "--holder: 'w@@x' is not a JID"),
    (("item", "release", "NODE", "x"), 1, "nobody holds"),
    (("item", "cancel", "NODE", "x"), 2, "--yes"),
    (("item", "cancel", "NODE", "x", "--yes"), 1, "item-not-found"),
    (("item", "delete", "NODE", "x"), 2, "--yes"),
    (("item", "delete", "NODE", "x", "--yes"), 1, "item-not-found"),
    (("item", "publish", "NODE"), 2, "--payload TEXT or --file FILE"),
    (("item", "publish", "NODE", "--payload", "{"), 2, "is not JSON"),
    (("item", "publish", "NODE", "--payload", "[NaN]"), 2, "is not JSON: invalid character"),
    (("item", "publish", "NODE", "--payload", "[" * 5_000), 2, "is not JSON: it is nested too deeply"),
    (("item", "publish", "NODE", "--payload", "NaN", "--type", "application/json; charset=utf-8"), 2, "is not JSON"),
    (("schedule", "add", "NODE", "a", "--payload", "-Infinity", "--every", "1h"), 2, "is not JSON"),
    (
        ("schedule", "add", "NODE", "a", "--file", "/dev/null", "--type", "application/json", "--every", "1h"),
        2,
        "is not JSON",
    ),
    (("item", "publish", "NODE", "--file", "nothing"), 2, "nothing cannot be read"),
    (("item", "publish", "NODE", "--payload", "1", "--type", "x"), 2, "TYPE/SUBTYPE"),
    (("item", "publish", "NODE", "--payload", "1", "--delay", "soon"), 2, "no length of time"),
    (("item", "publish", "NODE", "--payload", "1", "--priority", "10"), 2, "0 to 9"),
    (("item", "publish", "NODE", "--payload", "1", "--header", "x"), 2, "NAME=VALUE"),
    (("item", "publish", "NODE", "--payload", "1", "--header", "stanzaq-x=1"), 2, "reserved"),
    (("item", "publish", "nothing", "--payload", "1"), 1, "there is no such node"),
    (("item", "publish", "NODE", "--payload", "1", "--at", "tomorrow"), 2, "RFC 3339"),
    (("item", "publish", "NODE", "--payload", "1", "--at", "2026-12-01T09:00:00Z", "--delay", "0"), 2, "not both"),
    (("schedule", "add", "NODE", "a"), 2, "--payload TEXT or --file FILE"),
    (("schedule", "add", "NODE", "a", "--payload", "1"), 2, "either cron or every"),
    (("schedule", "add", "NODE", "a", "--payload", "1", "--every", "0"), 2, "every is 1 second"),
    (("schedule", "add", "NODE", "a", "--payload", "1", "--cron", "0 9 * * 8"), 1, "cron cannot be read"),
    (("schedule", "add", "NODE", "a", "--payload", "1", "--cron", "0 9 * * *", "--zone", "X"), 1, "no time zone"),
    (("schedule", "add", "nothing", "a", "--payload", "1", "--every", "1h"), 1, "there is no such node"),
    (("schedule", "pause", "NODE", "a"), 1, "no such schedule"),
    (("schedule", "delete", "NODE", "a"), 2, "--yes"),
    (("schedule", "delete", "NODE", "a", "--yes"), 1, "no such schedule"),
    (("subscriber", "list", "nothing"), 1, "there is no such node"),
    (("lock", "list", "nothing"), 1, "there is no such node"),
    (("lock", "list", "NODE", "--holder", "@x"), 2, "--holder: '@x' is not a JID"),
    (("lock", "release", "NODE"), 2, "--holder"),
    (("journal", "tail", "--node", "nothing"), 1, "there is no node nothing"),
    (("item", "list", "NODE", "--scan", "x"), 1, "continue from"),
    (("item", "list"), 2, "Missing argument"),
    (("item", "list", "NODE", "--state", "waitng"), 2, "'waiting'"),
    (("quota", "set", "x", "items"), 2, "write key=value"),
    (("quota", "set", "x", "items=-1"), 2, "items: must be a whole number from 0"),
    (("quota", "set", "x", "items=1", "items=2"), 2, "named twice"),
    (("quota", "set", "x", "queues=1"), 2, "queues is not part of a quota"),
    (("quota", "set", "x", "publish_rate=0/s"), 2, "publish_rate: must be a rate"),
    (("quota", "set", "a@x/b", "items=1"), 1, "neither a bare JID nor a domain"),
    (("quota", "list", "--owner", "a b@x"), 2, "--owner: 'a b@x' is not a JID"),
    (("quota", "clear", "x"), 1, "no quota of this subject"),
    (("frontend", "disconnect", "00000000"), 2, "--yes"),
    (("frontend", "disconnect", "nobody", "--yes"), 1, "no frontend has such a name"),
]
"""The words, the exit code, and the message."""


@pytest.fixture
def shell(core: RedisCore, store: Store) -> Shell:
    """Give a shell beside a frontend."""
    return Shell(store.url)


async def declared(core: RedisCore, node: str, **options: str) -> None:
    """Create a node."""
    fields = {f"stanzaq#{name}": (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, ALICE, fields)) == Declared(node)


async def published(core: RedisCore, node: str, *items: str, body: bytes = b"<x/>") -> None:
    """Publish items."""
    for item in items:
        command = Publish(node, ALICE, item, codec.pack(Envelope(body)), len(body))
        assert isinstance(await core.ask(command), Published)


async def died(core: RedisCore, node: str, *items: str, reason: str) -> None:
    """Let items die."""
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 100)), Subscribed)
    await published(core, node, *items)
    for item in items:
        assert isinstance(await core.ask(Unlock(node, W1, item, dead_letter=True, reason=reason)), Unlocked)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 0)), Subscribed)


async def test_quotas(shell: Shell, core: RedisCore, node: str) -> None:
    """Quotas are set, listed with what is used, seen beside the nodes of their owners, and cleared."""
    owner = Jid("bob@y/home")
    assert await core.ask(Declare(node, owner, {})) == Declared(node)
    assert isinstance(await core.ask(Publish(node, owner, "a", codec.pack(Envelope(b"<x/>")), 4)), Published)
    set_, more, listed, nodes, table, cleared, none = await shell.several(
        ("quota", "set", "Y", "nodes=4", "items=2", "--json"),
        ("quota", "set", "default", "bytes=1000000", "publish_rate=5/s"),
        ("quota", "list", "--owner", "bob@y", "--json"),
        ("node", "list", "--json"),
        ("quota", "list"),
        ("quota", "clear", "y"),
        ("node", "list"),
    )
    assert set_.json == {"subject": "Y", "limits": {"nodes": 4, "items": 2}}
    assert more.code == 0 and "set the quota of default" in more.err
    domain, own = listed.json["quotas"]
    used = {"nodes": 1, "partitions": 1, "items": 1}
    assert domain == {"subject": "y", "limits": {"nodes": 4, "items": 2}, "used": used}
    assert own["subject"] == "bob@y" and own["limits"] == {"bytes": 1_000_000, "publish_rate": "5/s"}
    assert 0 < own["used"]["bytes"] < 100_000
    (one,) = nodes.json["nodes"]
    assert (one["owner"], one["quota_used"]) == ("bob@y", 0.5)
    assert [line.split("\t") for line in table.out.splitlines()] == [
        ["subject", "nodes", "partitions", "items", "bytes", "publish_rate"],
        ["default", "", "", "", "1000000", "5/s"],
        ["y", "1 of 4", "1", "1 of 2", "", ""],
    ]
    assert cleared.code == 0
    head, row = none.out.splitlines()
    assert head.endswith("\towner\tquota") and "\tbob@y\t" in row and row.endswith(" %")


_DETAILS: Final = "sq:{service}:frontend_details"


async def _until_known(store: Store, *cores: RedisCore) -> None:
    """Wait until just these have said of themselves what is listed."""
    async with asyncio.timeout(PATIENCE_SECONDS), store.client() as client:
        while {name.decode() for name in await client.hkeys(_DETAILS)} != {core.name for core in cores}:  # noqa: ASYNC110  (another process's doing)
            await asyncio.sleep(0.05)


async def test_frontends(shell: Shell, core: RedisCore, store: Store) -> None:
    """Issue 8: frontends are listed; a dead one and a live one are told to end, and the live one learns who wants it."""
    await _until_known(store, core)
    listed, lapsed, told, again = await shell.several(
        ("frontend", "list", "--json"),
        ("frontend", "disconnect", "00000000", "--yes"),
        ("frontend", "disconnect", core.frontend, "--yes", "--json"),
        ("frontend", "list"),
    )
    (one,) = listed.json["frontends"]
    assert (one["name"], one["disconnected_by"]) == (core.frontend, "") and one["ago_ms"] < 5_000
    assert (one["door"], one["host"], one["pid"]) == ("xmpp", socket.gethostname(), os.getpid())
    assert one["version"] == installed("stanzaq") and 0 <= one["up_ms"] < 300_000
    assert lapsed.code == 1 and "00000000 is not in the list" in lapsed.err
    assert told.json == {"frontend": core.frontend, "listed": True}
    assert again.out.splitlines()[1].split("\t")[:5:2] == [core.frontend, "stanzaq", socket.gethostname()]
    async with asyncio.timeout(PATIENCE_SECONDS):
        await core.ending.wait()
    assert core.ended_why == "disconnected by stanzaq"


async def test_frontends_that_are_gone(core: RedisCore, make_core: MakeCore, store: Store) -> None:
    """What a killed frontend said of itself is removed when the next one starts; a stopped one removes it itself."""
    async with store.client() as client:
        await client.hset(_DETAILS, "00000000", "{}")
    other, _ = await make_core()
    await _until_known(store, core, other)
    await other.drain(5)
    await other.stop()
    async with store.client() as client:
        assert await client.hkeys(_DETAILS) == [core.name.encode()]


async def test_tables_fit(shell: Shell, core: RedisCore, door: Door) -> None:
    """On 80 columns each table shows whole columns of short lines, the important ones; on 200 it shows all that have content."""
    node, item, worker = "orders/europe/west", "order-2026-11-29-4117", Jid("worker-7@workers.example.org/a")
    await declared(core, node)
    subscribed = Subscribe(node, worker, worker, 1, client="stanzaq/1.2.3 (worker-7.example.org)")
    assert isinstance(await core.ask(subscribed), Subscribed)
    at = ("--cron", "0 9 * * 1-5", "--zone", "Europe/Berlin")
    made = (
        ("item", "publish", node, "--payload", "{}", "--id", f"{item}-before"),
        ("item", "publish", node, "--payload", "{}", "--id", item),
        ("item", "release", node, f"{item}-before"),
        ("schedule", "add", node, "daily-report-of-orders", "--payload", "{}", *at),
        ("quota", "set", "example.org", "nodes=50", "items=100000", "bytes=1000000000", "publish_rate=100/s"),
    )
    tables = (
        (("node", "list"), "waiting"),
        (("node", "show", node), "max_deliveries"),
        (("item", "list", node), "state"),
        (("item", "show", node, item), "publisher"),
        (("item", "show", node, f"{item}-before", "--history"), "outcome"),
        (("lock", "list", node), "holder"),
        (("subscriber", "list", node), "client"),
        (("schedule", "list", node), "next"),
        (("quota", "list"), "items"),
        (("frontend", "list"), "door"),
        (("top", "--every", "0.1", "--count", "1"), "waiting"),
        (("journal", "tail", "--no-follow"), "outcome"),
    )
    assert [done.code for done in await shell.several(*made)] == [0] * len(made)
    await door.until(lambda: len(door.deliveries) == 2)
    for width in (80, 200):
        shell.environment |= {"COLUMNS": str(width), "FORCE_COLOR": "1", "NO_COLOR": "1", "TERM": "xterm"}
        for (words, column), done in zip(tables, await shell.several(*(words for words, _ in tables)), strict=True):
            shown = re.sub(r"\x1b\[[0-9;?]*[a-zA-Z]", "", done.out).splitlines()
            assert done.code == 0 and max(map(len, shown)) <= width, (words, shown)
            assert column in " ".join(shown) and "…" not in "".join(shown), (words, shown)


async def test_publish_lock_and_watch(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """Issue 26: an item is published, its lock is listed and ended, and what happened is seen, all by the command."""
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    payload = ("--payload", '{"total": 12}', "--header", "kind=order", "--priority", "7")
    made, anonymous, shown = await shell.several(
        ("item", "publish", node, "--id", "a", *payload, "--json"),
        ("item", "publish", node, "--file", __file__, "--key", "k"),
        ("item", "show", node, "a", "--json"),
    )
    assert made.json == {"node": node, "item": "a"} and len(anonymous.out.split()) == 1
    told = shown.json
    assert (told["payload"], told["content_type"], told["priority"]) == ('{"total": 12}', "application/json", 7)
    assert (told["publisher"], told["headers"]) == ("stanzaq", {"kind": "order"})
    await door.until(lambda: len(door.deliveries) == 1)
    first = door.deliveries[0].item_id
    subscribers, locks, of_nobody, released = await shell.several(
        ("subscriber", "list", node, "--json"),
        ("lock", "list", node, "--json"),
        ("lock", "list", node, "--holder", "nobody@x", "--json"),
        ("lock", "release", node, first, "--json"),
    )
    (subscriber,) = subscribers.json["subscribers"]
    assert (subscriber["subscriber"], subscriber["held"]) == (W1, 1) and subscribers.json["total"] == 1
    (lock,) = locks.json["locks"]
    assert (lock["item"], lock["holder"], lock["token"]) == (first, W1, door.deliveries[0].token)
    assert of_nobody.json["locks"] == [] and released.json == {"node": node, "released": 1}
    # Its holder has come back for it, or for the other one.
    await door.until(lambda: len(door.deliveries) == 2)
    history, rows, tail, last, top, busiest = await shell.several(
        ("item", "show", node, first, "--history", "--json"),
        ("item", "show", node, first, "--history"),
        ("journal", "tail", "--node", node, "--no-follow", "--json"),
        ("journal", "tail", "--no-follow", "--lines", "1"),
        ("top", "--every", "0.1", "--json"),
        ("top", "--every", "0.1", "--limit", "1"),
    )
    (attempt,) = history.json["history"]
    assert (attempt["outcome"], attempt["holder"]) == ("released", W1)
    assert rows.out.splitlines() == ["\t".join(line) for line in (attempt, attempt.values())]
    record = tail.json
    assert (record["node"], record["item"], record["type"]) == (node, first, "released")
    assert last.out.splitlines()[0].startswith("ended\tpartition\toutcome\t") and len(last.out.splitlines()) == 2
    (seen,) = [each for each in top.json["nodes"] if each["node"] == node]
    assert (seen["waiting"], seen["held"], seen["subscribers"]) == (1, 1, 1) and seen["published"] == 0
    assert [len(line.split("\t")) for line in busiest.out.splitlines()] == [9, 9]
    screen = await shell.on_a_screen(200, "journal", "tail", "--no-follow", "--node", node)
    assert "1 released" in screen and first in screen


async def test_top_refreshes(shell: Shell, core: RedisCore, node: str) -> None:
    """Issue 26: at a terminal `top` draws its table anew until Ctrl-C, which ends it in order and gives the cursor back."""
    await declared(core, node)
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 200, 0, 0))
    running = await asyncio.create_subprocess_exec(
        *shell.command,
        *("top", "--every", "0.1"),
        env={**shell.environment, "TERM": "xterm", "NO_COLOR": "1"},
        # Its controlling terminal, which turns Ctrl-C into a signal.
        preexec_fn=lambda: os.login_tty(theirs),
    )
    os.close(theirs)
    try:
        shown = b""
        async with asyncio.timeout(PATIENCE_SECONDS):
            for waiting in ("1", "2"):
                await published(core, node, f"item-{waiting}")
                row = rf"{node} +running +[\d.]+ +[\d.]+ +{waiting} ".encode()
                while not re.search(row, shown):
                    shown += await asyncio.to_thread(os.read, ours, 65_536)
        assert b"nodes, " in shown and b"items wait" in shown
        # It began each time where the last table did.
        assert b"\x1b[1A" in shown and shown.count(b"published/s") > 1
        os.write(ours, b"\x03")
        async with asyncio.timeout(PATIENCE_SECONDS):
            with contextlib.suppress(OSError):
                # An ended process's terminal gives an error.
                while True:
                    shown += await asyncio.to_thread(os.read, ours, 65_536)
        assert await asyncio.wait_for(running.wait(), 60) == 0
        assert shown.rpartition(b"\x1b[?25")[2][:1] == b"h"
        assert b"Traceback" not in shown
    finally:
        if running.returncode is None:
            running.kill()
        os.close(ours)


async def test_schedules(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """Issue 25: a schedule is made, listed, paused, resumed and deleted by the command; frontends publish for it."""
    await declared(core, node)
    when = ("--cron", "0 9 * * 1-5", "--zone", "Europe/Berlin", "--payload", '{"a": 1}', "--header", "kind=order")
    later = ("item", "publish", node, "--payload", "1", "--at", "2030-01-01T00:00:00Z")
    daily, tick, listing, paused, resumed, refused = await shell.several(
        ("schedule", "add", node, "daily", *when, "--key", "k", "--priority", "7", "--json"),
        ("schedule", "add", node, "tick", "--every", "1s", "--payload", "2"),
        ("schedule", "list", node),
        ("schedule", "pause", node, "daily", "--json"),
        ("schedule", "resume", node, "daily"),
        later,
    )
    assert (daily.json["state"], daily.json["by"], daily.json["published"]) == ("active", "stanzaq", 0)
    assert "tick is active, next at " in tick.err and refused.code == 2
    head, *rows = [line.split("\t") for line in listing.out.splitlines()]
    assert head[:3] == ["id", "when", "state"]
    assert [row[:3] for row in rows] == [
        ["daily", "0 9 * * 1-5 Europe/Berlin", "active"],
        ["tick", "every 1s", "active"],
    ]
    assert paused.json["state"] == "paused" and "daily is active" in resumed.err
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    await door.until(lambda: bool(door.deliveries))
    assert door.deliveries[0].item_id.startswith("tick@") and door.deliveries[0].publisher == "stanzaq"
    deleted, left = await shell.several(
        ("schedule", "delete", node, "tick", "--yes", "--json"), ("schedule", "list", node, "--json")
    )
    assert deleted.json == {"node": node, "deleted": "tick"}
    assert [each["id"] for each in left.json["schedules"]] == ["daily"]


async def test_the_tail_follows(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """What ends while one watches is shown, in order; the reader of the pipe may go at any time."""
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    running = await asyncio.create_subprocess_exec(
        *shell.command,
        *("journal", "tail", "--node", node, "--json", "--every", "0.1"),
        env=shell.environment,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    assert running.stdout and running.stderr
    try:
        for item in ("a", "b", "c"):
            await published(core, node, item)
            await door.until(lambda: bool(door.deliveries))
            await core.ask(Retract(node, W1, item, door.deliveries.pop().token))
            # So the later ones are no part of what it begins with.
            assert json.loads(await asyncio.wait_for(running.stdout.readline(), 60))["item"] == item
    finally:
        running.send_signal(signal.SIGINT)
        await asyncio.wait_for(running.communicate(), 60)
    assert running.returncode == 0


async def test_a_node_s_life(shell: Shell, core: RedisCore, node: str) -> None:
    """A node is created, shown, changed, emptied and removed; each command reports what it did, for programs as JSON."""
    show = ("node", "show", node, "--json")
    made, first, changed, then = await shell.several(
        ("node", "create", node, "lock_seconds=30", "pubsub#title=two words", "--json"),
        show,
        ("node", "configure", node, "max_items=7", "fair=key", "fair_weights=gold=3", "fair_weights=plain=0.5"),
        show,
    )
    assert made.json == {"node": node} and changed.code == 0
    shown = first.json
    assert shown["options"]["lock_seconds"] == "30" and shown["options"]["title"] == "two words"
    # All have the names that `create` and `configure` take.
    assert all("#" not in name and "#" in fields.find_option(name) for name in shown["options"] if name != "queueing")
    assert shown["affiliations"] == {"alice@x": "owner"} and shown["counts"]["waiting"] == 0
    turns = {"fair": "key", "fair_weights": "gold=3\nplain=0.5"}
    assert then.json["options"] == shown["options"] | {"max_items": "7"} | turns
    await published(core, node, "a", "b")
    listed, purged, deleted, gone = await shell.several(
        ("node", "list", "--json"),
        ("node", "purge", node, "--yes", "--json"),
        ("node", "delete", node, "--yes"),
        show,
    )
    (one,) = listed.json["nodes"]
    assert (listed.json["total"], one["node"], one["counts"]["waiting"]) == (1, node, 2)
    assert one.keys() < shown.keys() and one["counts"].keys() == shown["counts"].keys()
    assert purged.json == {"node": node, "purged": 2} and deleted.code == 0
    assert (gone.code, gone.out) == (1, "") and "node-not-found" in gone.err


async def test_refusals(shell: Shell, core: RedisCore, node: str) -> None:
    """A refused or wrong command ends with its exit code, a sentence on stderr, and nothing on stdout."""
    await declared(core, node, partitions="2")
    commands = [[node if word == "NODE" else word for word in words] for words, _, _ in REFUSALS]
    for (words, code, said), done in zip(REFUSALS, await shell.several(*commands), strict=True):
        assert (done.code, done.out) == (code, ""), (words, done)
        assert said in done.err and "Traceback" not in done.err, words


async def test_no_redis(shell: Shell) -> None:
    """Without a Redis a command says so."""
    shell.environment["STANZAQ_REDIS_URL"] = "redis://127.0.0.1:1/0"
    done = await shell("node", "list")
    assert (done.code, done.err) == (1, "stanzaq: Redis at 127.0.0.1:1 cannot be reached: connection refused\n")
    shell.environment["STANZAQ_REDIS_URL"] = "embedded://"
    done = await shell("node", "list")
    assert done.code == 2 and "embedded" in done.err


async def test_a_release_is_prompt(shell: Shell, core: RedisCore, door: Door, store: Store, node: str) -> None:
    """A lock that a command ends is lost at once.

    A frontend notifies the holder, and the next worker has the item in a second.
    """
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 1)), Subscribed)
    await published(core, node, "a")
    assert isinstance(await core.ask(Subscribe(node, W2, W2, 1)), Subscribed)
    token = door.deliveries[0].token
    assert isinstance(await core.ask(Renew(node, W1, "a", token, progress=Progress(0.4, "half"))), Renewed)
    shown = (await shell("item", "show", node, "a", "--json")).json
    assert (shown["state"], shown["lock"]["holder"], shown["lock"]["token"]) == ("locked", W1, token)
    progress = shown["lock"]["progress"]
    assert (progress["share"], progress["note"]) == (0.4, "half")
    assert (await shell("item", "release", node, "a", "--json")).json == {"node": node, "released": 1}
    ended = time.monotonic()
    await door.until(lambda: len(door.deliveries) == 2 and bool(door.notices))
    assert time.monotonic() - ended < PROMPT_SECONDS
    assert door.notices == [LockEnded(node, W1, "a", token)]
    assert (door.deliveries[1].subscriber, door.deliveries[1].attempt) == (W2, 2)
    assert isinstance(await core.ask(Retract(node, W1, "a", token)), Refused)
    assert isinstance(await core.ask(Retract(node, W2, "a")), Retracted)
    async with store.client() as client:
        # The command never registered itself as a frontend.
        assert await client.zrange("sq:{service}:frontends", 0, -1) == [core.frontend.encode()]


async def test_a_cancel_is_prompt(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """An item that a command cancels is gone at once, in any partition; a frontend tells the holder."""
    await declared(core, node, partitions="3")
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 3, group="g")), Subscribed)
    await core.ask(
        Publish(node, ALICE, "a", codec.pack(Envelope(b"<x/>")), 4, partition=(choose_by_hash("a", 3) + 1) % 3)
    )
    await door.until(lambda: len(door.deliveries) == 1)
    token = door.deliveries[0].token
    assert (await shell("item", "cancel", node, "a", "--yes", "--json")).json == {"node": node, "cancelled": "a"}
    await door.until(lambda: LockEnded(node, W1, "a", token, cancelled=True) in door.notices)
    outcome = await core.ask(Retract(node, W1, "a", token))
    assert isinstance(outcome, Refused) and outcome.problem is Problem.ITEM_NOT_FOUND
    outcome = await core.ask(Cancel(node, ALICE, "a"))
    assert isinstance(outcome, Refused) and outcome.problem is Problem.ITEM_NOT_FOUND
    await published(core, node, "b")
    assert await core.ask(Cancel(node, ALICE, "b")) == Cancelled()
    assert await core.ask(Cancel(node, ALICE, "b")) == Cancelled(replayed=True)
    await core.ask(Declare(f"{node}-log", ALICE, {"pubsub#queueing": ("0",)}))
    outcome = await core.ask(Cancel(f"{node}-log", ALICE, "b"))
    assert isinstance(outcome, Refused) and outcome.problem is Problem.UNSUPPORTED


@pytest.mark.parametrize("partitions", ["1", "3"])
async def test_a_cancel_of_what_is_not_there(core: RedisCore, node: str, partitions: str) -> None:
    """Who may publish to a node that admits no readers hears that an item is gone; others do not learn which ids there are."""
    options = {"stanzaq#partitions": (partitions,), "pubsub#access_model": ("whitelist",)}
    assert await core.ask(Declare(node, ALICE, options)) == Declared(node)
    await published(core, node, "there")
    hidden = [await core.ask(Cancel(node, W1, name)) for name in ("there", "gone")]
    assert isinstance(hidden[0], Refused) and hidden[0].problem is Problem.FORBIDDEN and hidden[0] == hidden[1]
    await core.ask(Configure(node, ALICE, {"pubsub#publish_model": ("open",)}))
    found = [await core.ask(Cancel(node, W1, name)) for name in ("there", "gone")]
    told = [each.problem for each in found if isinstance(each, Refused)]
    assert told == [Problem.FORBIDDEN, Problem.ITEM_NOT_FOUND]


async def test_pause_and_resume(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """What comes after a pause is not handed out; after a resume everything is, within a second."""
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 10)), Subscribed)
    assert (await shell("node", "pause", node, "--json")).json == {"node": node, "state": "paused"}
    await published(core, node, "a", "b", "c", "d")
    assert door.deliveries == []
    assert (await shell("node", "resume", node)).code == 0
    ended = time.monotonic()
    await door.until(lambda: len(door.deliveries) == 4)
    assert time.monotonic() - ended < PROMPT_SECONDS


async def test_drain(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """A drain that waits ends when the last item is acknowledged."""
    await declared(core, node)
    assert isinstance(await core.ask(Subscribe(node, W1, W1, 10)), Subscribed)
    await published(core, node, "a")
    draining = asyncio.create_task(shell("node", "drain", node, "--wait", "--json"))
    command = Publish(node, ALICE, "b", codec.pack(Envelope(b"<x/>")), 4)
    # Ends with the shell, which has a time limit of its own.
    while isinstance(await core.ask(command), Published):
        await core.ask(Retract(node, W1, "b"))
        assert not draining.done(), await draining
        await asyncio.sleep(0.1)
    await asyncio.sleep(0.5)
    assert not draining.done()
    assert isinstance(await core.ask(Retract(node, W1, "a")), Retracted)
    assert (await draining).json == {"node": node, "state": "draining", "left": 0}


async def test_redrive(shell: Shell, core: RedisCore, door: Door, node: str) -> None:
    """Dead letters are listed and shown with their reasons, and return by name, by reason or all of them."""
    await declared(core, node)
    await died(core, node, "a", "b", "c", reason="no-disk")
    await died(core, node, "d", reason="other")
    dead = f"{node}/dead"
    async with asyncio.timeout(PATIENCE_SECONDS):
        counted = await core.ask(Stats(node, ALICE))
        while not isinstance(counted, Counted) or counted.dying:
            await asyncio.sleep(0.02)
            counted = await core.ask(Stats(node, ALICE))
    items = (await shell("item", "list", dead, "--json")).json["items"]
    reasons = {one["headers"]["stanzaq-dead-item"]: one["headers"]["stanzaq-dead-reason"] for one in items}
    assert reasons == {"a": "no-disk", "b": "no-disk", "c": "no-disk", "d": "other"}
    by_name = next(one["item"] for one in items if one["headers"]["stanzaq-dead-item"] == "b")
    alive = Publish(node, ALICE, "alive", codec.pack(Envelope(b"<x/>")), 4)
    assert isinstance(await core.ask(alive), Published)
    shown, living, named, of_both, of_header, rest, back, gone, again = await shell.several(
        ("item", "show", dead, by_name, "--json"),
        ("item", "redrive", node, "alive"),
        ("item", "redrive", dead, by_name, "--json"),
        ("item", "redrive", dead, "--reason", "no-disk", "--header", "stanzaq-dead-item=a", "--json"),
        ("item", "redrive", dead, "--header", "stanzaq-dead-reason=no-disk", "--json"),
        ("item", "redrive", dead, "--all", "--json"),
        ("item", "list", node, "--json"),
        ("item", "delete", node, "d", "--yes", "--json"),
        ("item", "delete", node, "d", "--yes", "--json"),
    )
    assert (shown.json["payload"], shown.json["headers"]["stanzaq-dead-holder"]) == ("<x/>", W1)
    (attempt,) = shown.json["history_of_death"]
    assert (attempt["outcome"], attempt["holder"], attempt["reason"]) == ("released", W1, "no-disk")
    assert shown.json["history"] == []
    assert living.code == 1 and living.err == "stanzaq: moved 0\nstanzaq: 1 stayed: it is no dead letter\n"
    assert gone.json == {"node": node, "deleted": "d"}
    assert again.code == 1 and "item-not-found" in again.err
    assert [each.json["moved"] for each in (named, of_both, of_header, rest)] == [1, 1, 1, 1]
    assert all(each.json["whole"] and not each.json["stayed"] for each in (named, of_both, of_header, rest))
    assert {one["item"]: one["attempts"] for one in back.json["items"]} == dict.fromkeys(["alive", *"abcd"], 0)
    came = {one["headers"].get("stanzaq-moved-from") for one in back.json["items"] if one["item"] != "alive"}
    assert came == {dead}


async def test_move_at_a_rate(shell: Shell, core: RedisCore, node: str) -> None:
    """Items move to another node at most at the given rate; an interrupted move finishes the item it has begun."""
    await declared(core, node)
    await declared(core, f"{node}-2")
    await published(core, node, *(f"i{n}" for n in range(60)))
    done = await shell("node", "move", node, f"{node}-2", "--item", "i1", "--item", "i2", "--json")
    assert done.json == {"moved": 2, "stayed": {}, "whole": True}
    command = (*shell.command, "node", "move", node, f"{node}-2", "--rate", "10", "--json")
    running = await asyncio.create_subprocess_exec(
        *command, env=shell.environment, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE
    )
    began = time.monotonic()
    moved = 0
    while moved < 10:
        await asyncio.sleep(0.05)
        counted = await core.ask(Stats(f"{node}-2", ALICE))
        assert isinstance(counted, Counted)
        moved = counted.waiting - 2
    running.send_signal(2)
    out, _err = await asyncio.wait_for(running.communicate(), 30)
    told = json.loads(out.splitlines()[-1])
    assert not told["whole"] and 10 <= told["moved"] <= 10 * (time.monotonic() - began) + 2
    counts = {one["node"]: one["counts"]["waiting"] for one in (await shell("node", "list", "--json")).json["nodes"]}
    assert counts == {node: 58 - told["moved"], f"{node}-2": 2 + told["moved"]}


async def test_names_are_whole(shell: Shell, core: RedisCore, node: str) -> None:
    """In a pipe nothing is cut and tabs separate columns; a narrow terminal wraps a long name."""
    long = f"{node}-{'n' * 90}"
    await declared(core, long)
    await published(core, long, "bell\x07 and\ttab")
    head, row = (await shell("node", "list")).out.splitlines()
    assert head.split("\t")[:2] == ["node", "state"] and row.split("\t")[:2] == [long, "running"]
    (_, listed) = (await shell("item", "list", long)).out.splitlines()
    assert listed.split("\t")[0] == "bell\\x07 and\\ttab"
    screen = await shell.on_a_screen(60, "node", "list")
    assert max(map(len, screen.splitlines())) <= 60
    first = "".join(line.split(" ")[0] for line in screen.splitlines()[1:])
    assert long in first


async def test_completion(shell: Shell, core: RedisCore, node: str) -> None:
    """The shell completes names of nodes."""
    await declared(core, node)
    words = f"stanzaq node show {node[:6]}"
    shell.environment |= {"_STANZAQ_COMPLETE": "complete_bash", "COMP_WORDS": words, "COMP_CWORD": "3"}
    shell.command = [sys.executable, "-c", "from frontends.cli import app; app(prog_name='stanzaq')"]
    assert (await shell()).out.split() == [node]


async def test_admitting(core: RedisCore, shell: Shell, node: str) -> None:
    """An operator makes a closed queue for a worker and a publisher, admits another one, and takes that back."""
    closed = ("pubsub#access_model=whitelist", "--owner", "alice@x")
    admitted = ("--member", "w1@x/a", "--member", "m@x", "--publisher", "group:P")
    made, granted, removed, shown = await shell.several(
        ("node", "create", node, *closed, *admitted),
        ("node", "grant", node, "--member", "w2@x", "--json"),
        ("node", "revoke", node, "m@x"),
        ("node", "show", node, "--json"),
    )
    assert (made.err, granted.json) == (
        f"stanzaq: created {node}\n",
        {"node": node, "affiliations": {"w2@x": "member"}},
    )
    assert removed.code == 0
    assert shown.json["affiliations"] == {
        "alice@x": "owner",
        "group:P": "publisher",
        "w1@x": "member",
        "w2@x": "member",
    }
    for jid, may in ((W1, True), (Jid("m@x/a"), False)):
        assert isinstance(await core.ask(Subscribe(node, jid, jid, 1)), Subscribed) == may


async def test_approving(core: RedisCore, shell: Shell, node: str) -> None:
    """An operator sees who asks, approves one and refuses another."""
    assert await core.ask(Declare(node, ALICE, {"pubsub#access_model": ("authorize",)})) == Declared(node)
    for jid in (W1, W2):
        assert isinstance(await core.ask(Subscribe(node, jid, jid, 1)), Subscribed)
    asking, approved, refused, after, shown = await shell.several(
        ("node", "approve", node, "--json"),
        ("node", "approve", node, "w1@x"),
        ("node", "approve", node, "w2@x", "--refuse"),
        ("node", "approve", node, "--json"),
        ("node", "show", node, "--json"),
    )
    assert asking.json == {"node": node, "requests": ["w1@x", "w2@x"]} and after.json["requests"] == []
    assert (approved.err, refused.err) == ("stanzaq: approved w1@x\n", "stanzaq: refused w2@x\n")
    assert shown.json["affiliations"] == {"alice@x": "owner", "w1@x": "member"}
