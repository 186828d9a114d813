"""read_outbox: what leaves a partition is read when it is to be delivered, again and again until it has arrived."""

from typing import Any

from tests.lua.dependencies import asked, note, record, wait
from tests.lua.driver import T0, Answer, Queue, text
from tests.lua.worded import ALICE, W1

ASKED = f"0 4 0 {ALICE}/one"


def die(queue: Queue, *items: str, **more: str) -> Answer:
    """Publish items and make them dead letters."""
    queue.publish(*items, **more)
    queue.subscribe(W1, len(items))
    return queue.run("unlock", *(queue.given_back(W1, item, dead_letter="1", reason="torn") for item in items))


def schedule(queue: Queue, name: str, at: int, item: str = "item") -> Answer:
    """Store a schedule."""
    row = {"id": name, "expected": "", "record": f"record {name}", "item": item, "at": at}
    return queue.run("store_schedule", row)


def outcome(state: str, item: str, reason: str = "", jid: str = "") -> str:
    """Write how an item has ended."""
    return f"{state} {len(jid)} {len(item)} {len(reason)} {jid} {item} {reason} "


def cancel(queue: Queue, item: str) -> Answer:
    """Cancel an item."""
    return queue.run("cancel", {"sender": ALICE, "owner": "1", "item": item, "request": ""})


def place(queue: Queue, item: str) -> str:
    """Return the position of an item."""
    return {row[1]: str(row[0]) for row in queue.run("inspect_items").rows[1]}[item]


def scores(queue: Queue) -> dict[str, int]:
    """Return the next time of each entry, in ms from the start."""
    found: list[Any] = []
    for name in ("outbox", "outbox_replies"):
        found += queue.client.zrange(queue.key(name), 0, -1, withscores=True)
    return {text(entry): int(at) - T0 for entry, at in found}


def fill(queue: Queue) -> dict[str, list[Any]]:
    """Put an entry of each kind into the outbox; return what is to be read."""
    queue.publish("moved", "mine", hints=ASKED, key="k")
    was, mine = (place(queue, item) for item in ("moved", "mine"))
    assert queue.run("move_items", {"position": was, "item": "moved", "to": "other"}).outbox
    (token,) = {asked(queue, "mine", f"life/0/1-0/{number}/a b")[2] for number in range(2)}
    assert cancel(queue, "mine").outbox and die(queue, "dead").outbox
    leaves, stays = wait(queue, "leaves", "p"), wait(queue, "stays", "p")
    note(queue, leaves, 1, "awaited")
    (known,) = queue.client.hmget(queue.key("dependents"), [leaves])
    assert cancel(queue, "leaves").outbox and schedule(queue, "s", T0).outbox
    # A later version may have kinds that are not known.
    queue.client.zadd(queue.key("outbox"), {"later/x": 1, "Odd": 2})
    queue.now += 5_000
    return {
        f"item/{place(queue, 'moved')}": ["moved", "alice@x", "moved at 0", 0, ">other", "", "k", "other", ""],
        f"item/{place(queue, 'dead')}": ["dead", "alice@x", "dead at 0", 1, W1, "torn", "", "jobs/dead"],
        f"reply/{was}": [outcome("dead", "moved", "moved", f"{ALICE}/one")],
        f"reply/{mine}": [outcome("cancelled", "mine", "", f"{ALICE}/one")],
        f"child/{token}/life/0/1-0/0/a b": [outcome("cancelled", "mine")],
        # The same end is not repeated.
        f"child/{token}/life/0/1-0/1/a b": [""],
        f"left/{leaves}": [text(known)],
        f"parents/{stays}": [record("p")],
        "schedule/s": ["record s", "item"],
        "later/x": [],
        "Odd": [],
    }


def test_kinds(queue: Queue) -> None:
    """Each entry comes with what is needed to deliver it; one that is not known stays and hides nothing."""
    expected = fill(queue)
    found = queue.read_outbox(frontend="f2")
    (history,) = (each.pop() for each in found.values() if each[:1] == ["dead"])
    assert history.startswith(f"{T0} released {len(W1)} {W1} torn") and found == expected
    queue.now += 10_000
    assert queue.read_outbox().keys() == expected.keys()


def test_many_children(queue: Queue) -> None:
    """However many wait for an item, the script that ends it tells some, and each read lets the next ones be told."""
    queue.publish("a")
    names = {f"life/0/1-{number}/0/n" for number in range(120)}
    (token,) = {asked(queue, "a", name)[2] for name in names}
    answer = cancel(queue, "a")
    assert answer.outbox and len(scores(queue)) == 51
    seen: list[str] = []
    for expected in (50, 50, 20):
        page = queue.run("read_outbox")
        found = {entry: content for entry, _attempt, *content in page.rows[1:]}
        assert (len(found), page.more, page.outbox) == (expected, expected == 50, expected == 50)
        assert [content[0][:9] for content in found.values()] == ["cancelled", *[""] * (expected - 1)]
        seen += found
        if expected == 50:
            # Some know it before the rest is told.
            queue.end(*list(found)[:25])
    assert sorted(seen) == sorted(f"child/{token}/{name}" for name in names)
    assert queue.read_outbox() == {} and len(scores(queue)) == 70
    queue.end(*scores(queue))
    assert queue.kept() == {"meta"}


def test_exactly_a_page_of_children(queue: Queue) -> None:
    """Nothing is left of an end either when all that were told know it before there is known to be no other."""
    queue.publish("a")
    for number in range(50):
        asked(queue, "a", f"life/0/1-{number}/0/n")
    queue.end(*queue.told(cancel(queue, "a"), "child"))
    assert queue.read_outbox() == {} and queue.kept() == {"meta"}


def test_attempts(queue: Queue) -> None:
    """A read is an attempt: the next one is later each time, up to a minute, whoever reads; until then nobody is told."""
    answer = die(queue, "a")
    for attempt, pause in enumerate((5_000, 10_000, 20_000, 40_000, 60_000, 60_000), 1):
        assert answer.outbox and queue.run("read_outbox").rows[1][1:3] == [attempt, "a"]
        assert queue.read_outbox() == {}
        queue.now += pause - 1
        answer = queue.expire()
        assert (answer.outbox, answer.due) == (False, queue.now + 1)
        queue.now += 1
        queue.frontend += "x"
        answer = queue.expire()
        assert answer.due == queue.now + 5_000, "whoever is told may die"


def test_after_progress(queue: Queue) -> None:
    """A schedule that gets a next time begins to count anew; one that is still due stays with who has read it."""
    expected, attempts = "", []
    for number, after in enumerate((0, 0, 9_000, 9_000)):
        row = {"id": "s", "expected": expected, "record": f"{number}", "item": "i", "at": T0 + after}
        assert queue.run("store_schedule", row).outbox == (number == 0)
        queue.now = max(queue.now, T0 + scores(queue)["schedule/s"])
        attempts += [row[1:] for row in queue.run("read_outbox").rows[1:]]
        expected = f"{number}"
    assert attempts == [[1, "0", "i"], [2, "1", "i"], [1, "2", "i"], [2, "3", "i"]]


def test_limits(queue: Queue) -> None:
    """Guarantee 6: a page is cut by count and by bytes, with at least one entry, and those longest due come first."""
    for item in "abcde":
        die(queue, item, body="x" * 1_000)
        queue.now += 1
    for fixed, items, more in (
        ({"max_bytes": 1}, "a", 1), ({"limit": 2}, "bc", 1), ({"max_bytes": 1_001}, "de", 0),
    ):  # fmt: skip
        page = queue.run("read_outbox", **fixed)
        assert ("".join(row[2] for row in page.rows[1:]), page.more) == (items, more)
    queue.now += 10_000
    page = queue.run("read_outbox", limit=5, max_bytes=5_001)
    assert (len(page.rows), page.more) == (6, 0)


def test_who_cannot_send(queue: Queue) -> None:
    """A process without a stream leaves replies, and is not told of them: a frontend is to come at once."""
    items = [f"i{number}" for number in range(450)]
    queue.publish(*items, hints=ASKED)
    queue.publish("dead")
    queue.subscribe(W1, 451)
    while queue.expire().more:
        pass
    queue.frontend = ""
    for first in range(0, 450, 150):
        asked_for = (queue.asked(W1, item) | {"result": ""} for item in items[first : first + 150])
        answer = queue.run("complete", *asked_for)
        assert (answer.outbox, answer.due) == (False, queue.now)
    queue.now += 1
    assert not queue.expire().outbox
    # However many replies there are, they hide nothing, and stay as they are.
    assert queue.unlock(W1, "dead", dead_letter="1").outbox and queue.expire().outbox
    page = queue.run("read_outbox")
    assert [row[2] for row in page.rows[1:]] == ["dead"] and not page.more
    assert list(scores(queue).values()) == [queue.now - T0 + 5_000, *[queue.now - T0 - 1] * 450]
    queue.frontend = "f1"
    assert queue.expire().outbox
    assert [len(queue.read_outbox(limit=300)) for _ in range(3)] == [300, 150, 0]


def test_held(queue: Queue) -> None:
    """Nothing is read of items whose target takes none now: they come again later, each time later."""
    die(queue, "a")
    for pause in (5_000, 10_000):
        assert queue.run("read_outbox", {"held": "other"}, {"held": "jobs/dead"}).rows == [queue.now]
        assert list(scores(queue).values()) == [queue.now - T0 + pause]
        queue.now += pause
    ((item, *_),) = queue.read_outbox().values()
    assert item == "a"


def test_of_what_is_gone(queue: Queue) -> None:
    """An entry of something that was removed by hand is removed, with what is left of it."""
    die(queue, "a", "b")
    first, second = (entry.partition("/")[2] for entry in scores(queue))
    queue.client.xdel(queue.key("log"), first)
    queue.publish("c", hints=ASKED)
    cancel(queue, "c")
    schedule(queue, "s", T0)
    for name in ("outbox_records", "schedules", "schedule_items"):
        queue.client.delete(queue.key(name))
    queue.client.zadd(queue.key("outbox"), dict.fromkeys(("parents/1-1", "child/1-1/r", "end/1-1", "left/1-1"), 1))
    assert list(queue.read_outbox()) == [f"item/{second}"]
    queue.end(f"item/{second}")
    assert queue.read_outbox() == {}
    assert (
        not {"outbox", "outbox_replies", "outbox_attempts", "outbox_items", "outbox_records", "history", "log"}
        & queue.kept()
    )


def test_targets(queue: Queue) -> None:
    """A7: where an item may have arrived first is noted, and stays until it is aimed elsewhere."""
    (first,) = queue.letters(die(queue, "a"))
    targets = [first.target]
    for attempt, aimed in enumerate(("", "a b", ""), 1):
        if aimed:
            assert queue.end(first.entry, target=aimed, attempt=attempt).words == ["ok"]
        queue.now += 60_000
        targets += [each[-2] for each in queue.read_outbox(dead_letters=f"later{attempt}").values()]
    assert targets == ["jobs/dead", "jobs/dead", "a b", "a b"]


def test_nothing_is_due(queue: Queue) -> None:
    """Where nothing is due the answer says when something is, and where nothing leaves it says nothing."""
    assert queue.run("read_outbox") == Answer("ok", [T0], token=queue.expire().token)
    assert schedule(queue, "s", T0 + 90_000).due == T0 + 90_000
    assert schedule(queue, "t", T0 + 70_000).due == T0 + 70_000
    answer = queue.run("read_outbox")
    assert (answer.rows, answer.outbox, answer.due, answer.more) == ([T0], False, T0 + 70_000, 0)
    assert queue.publish("a").due == T0 + 70_000
