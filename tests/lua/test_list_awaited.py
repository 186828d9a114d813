"""Who waits for items of a partition is listed to check whether they still wait: early enough that `awaited` stays in bounds."""

from tests.lua.dependencies import asked
from tests.lua.driver import Answer, Queue
from tests.lua.worded import ALICE

HOUR = 3_600_000


def announced(answer: Answer) -> list[str]:
    """Return the marks of checks and of ends."""
    return [each[1] for each in answer.notices if each[0] == "dependency"]


def listed(queue: Queue, after: str = "", limit: int = 100) -> Answer:
    """List a page."""
    return queue.run("list_awaited", after=after, limit=limit)


def wait(queue: Queue, item: str, *names: str) -> list[str]:
    """Let others wait for an item; return the checks that were announced meanwhile."""
    rows = [{"item": item, "reference": name, "token": "", "register": "1"} for name in names]
    return announced(queue.run("await_end", *rows))


def checked(queue: Queue, *gone: str) -> int:
    """Check all, and remove those that are gone; return when the partition is next due."""
    after = ""
    while page := listed(queue, after).rows:
        for each in page:
            reference, token = each.split("\0")
            if reference in gone:
                queue.run("end_awaited", {"reference": reference}, token=token)
        after = page[-1]
    return listed(queue, after).due - queue.now


def test_pages(queue: Queue) -> None:
    """Each that waits is named once with its token, in whichever order they came."""
    queue.publish("a", "b")
    names = [f"life/0/1-{number}/0/a b" for number in range(25)]
    wait(queue, "a", *names[::2])
    wait(queue, "b", *names[::3])
    tokens = [asked(queue, item, "-", register=False)[2] for item in "ab"]
    expected = {f"{name}\0{tokens[0]}" for name in names[::2]}
    # One reference waits for one item.
    expected |= {f"{name}\0{tokens[1]}" for name in names[::3] if name not in names[::2]}
    seen: list[str] = []
    while page := listed(queue, seen[-1] if seen else "", 4).rows:
        seen += page
    assert (seen, len(expected)) == (sorted(expected), len(seen))


def test_bound(queue: Queue) -> None:
    """A check is announced once there are 200 members, or twice those that the last one has left; so `awaited` is bounded."""
    queue.publish("a")
    names = [f"r{number}" for number in range(1_000)]
    assert wait(queue, "a", *names[:99]) == []
    assert wait(queue, "a", names[99]) == ["?"] and wait(queue, "a", *names[100:199]) == []
    assert wait(queue, "a", names[199]) == ["?"], "twice as many, and nobody has checked"
    checked(queue, *names[:50])
    assert wait(queue, "a", *names[200:349]) == [] and wait(queue, "a", names[349]) == ["?"]
    checked(queue, *names)
    assert wait(queue, "a", *names[400:499]) == [] and wait(queue, "a", names[499]) == ["?"]


def test_time(queue: Queue) -> None:
    """A check is announced after an hour, then every five seconds unless it goes on; after the last page again in an hour."""
    queue.publish("a")
    row = {"item": "a", "reference": "r", "token": "", "register": "1"}
    assert queue.run("await_end", row).due == queue.now + HOUR
    queue.now += HOUR - 1
    assert announced(queue.expire()) == []
    queue.now += 1
    for _ in range(2):
        assert announced(queue.expire()) == ["?"]
        queue.now += 5_000
    assert len(listed(queue, "", 1).rows) == 1
    assert announced(queue.expire()) == [], "it goes on"
    queue.now += 5_000
    assert announced(queue.expire()) == ["?"], "its frontend has died"
    assert checked(queue) == HOUR
    queue.now += HOUR - 1
    assert announced(queue.expire()) == []
    queue.now += 1
    assert announced(queue.expire()) == ["?"]
    checked(queue, "r")
    assert queue.kept() == {"meta", "log", "index", "replies"}
    (mark,) = announced(queue.retract(ALICE, "a", owner="1"))
    queue.run("end_awaited", token=mark[1:])
    assert queue.kept() == {"meta"}, "nobody waited for its end"


def test_nobody(queue: Queue) -> None:
    """A check of nobody ends it: Redis may have lost who waited."""
    queue.publish("a")
    wait(queue, "a", "r")
    queue.client.delete(queue.key("awaited"))
    assert listed(queue).rows == [] and "handovers_told" not in queue.kept()
