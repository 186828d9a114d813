"""The work and the bytes of one call are bounded, whatever its rows ask for (guarantee 6)."""

from collections.abc import Mapping
from typing import Any

import pytest

from broker.redis_core.operations.operation import subid, subids
from tests.lua.driver import DEFAULTS, SCRIPTS, T0, Queue

WORKERS = [f"w{number}@x/1" for number in range(4)]
LARGE = 262_144
_BEGUN = {"lock_ms": "", "progress": "", "begun": "1"}


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """Return a partition in which four workers hold 500 items each."""
    for jid in WORKERS:
        queue.subscribe(jid, 500)
    for _ in range(10):
        queue.publish(*[""] * 200, max_items=10_000)
    return queue


def answered(queue: Queue, name: str, *rows: Mapping[str, object]) -> int:
    """Run a script once; return how many of its rows it has answered."""
    found = SCRIPTS[name]
    known = {**DEFAULTS, "number": 0, "now": queue.now}
    reply = queue.runner.run(
        name, [queue.key(key) for key in found.keys], {each: known[each] for each in found.arguments}, rows
    )
    return len(reply[1])


def test_rows_left_over(busy: Queue) -> None:
    """A script stops at a row when its budget is spent; rows without an answer are sent again."""
    rows = [{"subids": subids(jid)} for jid in WORKERS * 5]
    assert 0 < answered(busy, "list_locks", *rows) < len(rows)
    assert sum(len(row[1]) for row in busy.run("list_locks", *rows).rows) == 20 * 500


def test_progress(busy: Queue) -> None:
    """The first row is always run: repeated calls come to an end."""
    rows = [{"subids": subids(jid)} for jid in WORKERS]
    while rows:
        done = answered(busy, "list_locks", *rows)
        assert done
        rows = rows[done:]


def test_locks_of_many_names(queue: Queue) -> None:
    """A subscriber of many names, as a JID has where it may subscribe several times, has no more locks listed than one."""
    for jid in WORKERS[:3]:
        queue.subscribe(jid, 500)
    for _ in range(8):
        queue.publish(*[""] * 200, max_items=10_000)
    (row,) = queue.run("list_locks", {"subids": " ".join(map(subid, WORKERS[:3]))}).rows
    assert len(row[1]) == 1_000


@pytest.mark.parametrize("name", ["acquire_reader", "acquire_partition"])
def test_no_room_for_groups(queue: Queue, name: str) -> None:
    """A partition with all the groups that it may have looks for those that are over, which is work."""
    groups = [{"group": f"g{number}", "epoch": "", "equal": "", "fence": ""} for number in range(1_000)]
    queue.run("acquire_reader", *groups)
    owners: dict[Any, Any] = {f"g{number}": f"1 {T0 + 3_600_000}" for number in range(1_000)}
    queue.client.hset(queue.key("group_epochs"), mapping=owners)
    jid = "w@x/1"
    owner = {
        "subid": subid(jid),
        "jid": jid,
        "credit": 1,
        "sending": "unacknowledged",
        "expected": "",
        "reason": "moved",
        "dry": "",
        "alone": "",
    }
    rows = [{"epoch": "", "equal": "", "fence": "", **owner, "group": f"new{number}"} for number in range(200)]
    wanted = SCRIPTS[name].columns
    assert 0 < answered(queue, name, *({column: row[column] for column in wanted} for row in rows)) < 200


def test_payloads_count(queue: Queue) -> None:
    """Bytes are work: a purge of large items drops fewer of them in one call, and says that there is more."""
    queue.publish(*[""] * 40, body=b"x" * LARGE)
    answer = queue.run("purge")
    assert (0 < answer.rows[0] < 40, answer.more) == (True, 1)
    dropped = answer.rows[0]
    while answer.more:
        answer = queue.run("purge")
        dropped += answer.rows[0]
    assert dropped == 40


def test_dead_letters_count(queue: Queue) -> None:
    """Dead letters are made with their payloads: of locks that expire together some end in each call."""
    queue.open(revision=2, max_deliveries=1)
    queue.subscribe(WORKERS[0], 100)
    answer = queue.publish(*[""] * 40, body=b"x" * LARGE)
    while answer.more:
        answer = queue.expire()
    held = [{**queue.holder(WORKERS[0], item, token), **_BEGUN} for item, token, _, _ in queue.locks(WORKERS[0])]
    assert queue.run("renew", *held).words == ["ok"] * 40
    queue.now += 60_001
    answer = queue.expire()
    made = queue.stats()["dying"]
    assert (0 < made < 40, answer.more) == (True, 1)
    while answer.more:
        answer = queue.expire()
    assert queue.stats()["dying"] == 40


@pytest.mark.parametrize("way", ["after", "before"])
def test_pages_of_large_items(queue: Queue, way: str) -> None:
    """A page is cut by bytes while it is read, and the next one continues there: none is skipped in either direction."""
    names = [f"i{number}" for number in range(12)]
    queue.publish(*names, body=b"x" * 120_000)
    backwards = "1" if way == "before" else ""
    seen: list[str] = []
    reached = ""
    while True:
        rows, reached = queue.page(limit=100, backwards=backwards, **{way: reached})
        found = [row[0] for row in rows]
        seen = found + seen if backwards else seen + found
        if not reached:
            break
    assert seen == names


READERS = [f"r{number}@x/1" for number in range(40)]


@pytest.fixture
def read(unopened: Queue) -> Queue:
    """Return a log with forty readers, each with 1,000 uncommitted entries that `f1` has to send."""
    unopened.open(queueing="0", keep_items=1000)
    for jid in READERS:
        unopened.follow(jid, 1)
    unopened.publish("a")
    for jid in READERS:
        # They had more credit once. Written without scripts, which would take a minute for it.
        many = {f"{subid(jid)} {number:020d}{'0' * 20}": 0 for number in range(1, 1000)}
        unopened.client.zadd(unopened.key("uncommitted"), many)
    return unopened


def test_readers_let_go(read: Queue) -> None:
    """Commits are work: of forty readers that commit together, some commit with the next call."""
    rows = [{"subids": subids(jid), "position": f"{T0}-0"} for jid in READERS]
    assert 0 < answered(read, "commit", *rows) < 40
    read.run("commit", *rows)
    assert not read.client.exists(read.key("uncommitted"))


def test_readers_begin_anew(read: Queue) -> None:
    """The same for forty that begin to read somewhere else."""
    rows = [{"subid": subid(jid), "jid": jid, "credit": 1, "start": "@latest", "lease": 0} for jid in READERS]
    assert 0 < answered(read, "subscribe_log", *rows) < 40
    read.run("subscribe_log", *rows)
    assert not read.client.exists(read.key("uncommitted"))


def search(queue: Queue) -> tuple[list[int], list[str]]:
    """Take over deliveries of `f1`; return the number of each script, and their readers."""
    made: list[int] = []
    whose: list[str] = []
    scan, upto = "0", ""
    while not made or scan != "0":
        answer = queue.run("take_over", frontend="f2", previous="f1", after="", upto=upto, scan=scan)
        made.append(len(answer.deliveries))
        whose += [f"{each.jid} {each.item}" for each in answer.deliveries]
        scan, upto = answer.rows
    return made, whose


def test_takeover_of_readers(read: Queue) -> None:
    """A takeover goes through readers in parts, and each of them gets the next entries once."""
    first = read.run("take_over", frontend="f2", previous="f1", after="", upto="", scan="r0")
    assert (first.rows[0], first.more) == ("r0", 0)
    assert 0 < read.client.zcard(read.key("uncommitted")) < 40_000 - 1_000
    _made, whose = search(read)
    whose += [f"{each.jid} {each.item}" for each in read.run("sweep", frontend="f2").deliveries]
    assert sorted(whose) == sorted(f"{jid} a" for jid in READERS)
    assert read.client.zcard(read.key("uncommitted")) == len(READERS)


def test_takeover_of_payloads(queue: Queue) -> None:
    """Bytes are work: a takeover of large items is made in parts, each item once."""
    queue.subscribe(WORKERS[0], 24)
    queue.publish(*[""] * 24, body=b"x" * LARGE)
    while queue.run("sweep").more:
        pass
    made, whose = search(queue)
    assert sum(made) == len(set(whose)) == 24
    assert max(made) < 24
