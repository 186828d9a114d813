"""Pull subscriptions that wait: whom a script names when items may go out."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Answer, Queue
from tests.lua.test_hand_out_limits import limits
from tests.lua.test_selection import packed
from tests.lua.worded import W1

A, B, C = "a@x/lease-1", "b@x/lease-2", "c@x/lease-3"


def wait(queue: Queue, jid: str, limit: object = 5, **more: object) -> list[str]:
    """Receive as one that waits; return the items that it holds."""
    return [row[0] for row in queue.receive(jid, limit, **{"process": f"p-{jid[0]}", **more})[2]]


def told(answer: Answer) -> list[tuple[str, str]]:
    """Return whom a script named: the process, and the subscription."""
    names = {subid(jid): jid for jid in (A, B, C)}
    return [(notice[1], names[notice[2]]) for notice in answer.notices if notice[0] == "waiting"]


def test_longest(queue: Queue) -> None:
    """As many as there are items, those who have waited longest; one that was told comes, and waits again behind the others."""
    for jid in (A, B, C):
        queue.now += 1
        assert wait(queue, jid) == []
    assert told(queue.publish("a")) == [("p-a", A)]
    assert told(queue.publish("b")) == [("p-b", B)]
    assert wait(queue, A) == ["a", "b"]
    # What was there has been taken: it keeps its place.
    assert wait(queue, B) == []
    assert told(queue.publish("c", "d")) == [("p-b", B), ("p-c", C)]
    assert wait(queue, B) == ["c", "d"] and wait(queue, C) == []
    assert told(queue.publish("e")) == [("p-c", C)]
    assert told(queue.publish("f")) == [("p-a", A)]


def test_who_has_enough(queue: Queue) -> None:
    """Who holds its limit, looks without waiting, or has left, is not told."""
    queue.publish("a")
    assert wait(queue, A, 1) == ["a"]
    wait(queue, B)
    wait(queue, B, process="")
    wait(queue, C)
    queue.unsubscribe(C, release="1")
    assert told(queue.publish("b")) == []
    assert "waiting" not in queue.kept()


def test_without_room(queue: Queue) -> None:
    """One that held its limit when it looked is told by the script that ends one of its locks, if items wait then."""
    queue.publish("a", "b", "c")
    assert wait(queue, A, 2) == ["a", "b"]
    assert "waiting" not in queue.kept()
    queue.now += 1
    wait(queue, B, 1)
    queue.publish("d")
    assert told(queue.retract(A, "a")) == [("p-a", A)]
    assert wait(queue, A, 2) == ["b", "d"]
    assert told(queue.retract(A, "b")) == []
    # It waits behind those who have waited longer.
    assert told(queue.retract(B, "c")) == [] and told(queue.publish("e")) == [("p-a", A)]
    queue.unsubscribe(A, release="1")
    queue.unsubscribe(B, release="1")
    assert {"waiting", "waiters"}.isdisjoint(queue.kept())


def test_served_with_an_acknowledgement(queue: Queue) -> None:
    """One that had no room and takes all that it has room for with an acknowledgement is not woken; one that has room left is."""
    queue.publish(*"abcde")
    queue.subscribe(A, 2, "pulled", lease="+9000")
    assert wait(queue, A, "") == ["a", "b"]
    assert wait(queue, A, "", after=queue.now * 1_000 + 1) == []
    assert told(queue.retract(A, "a", next="1 9000")) == []
    assert told(queue.retract(A, "b", next="0 9000")) == [("p-a", A)]
    assert wait(queue, A, "") == ["c", "d"]
    assert told(queue.retract(A, "c", next="1 9000")) == []
    assert told(queue.retract(A, "d", next="5 9000")) == [] and told(queue.publish("f")) == [("p-a", A)]


def test_left_over(queue: Queue) -> None:
    """Who leaves items lets the next one know; a look at nothing tells nobody."""
    wait(queue, A, 1)
    queue.now += 1
    wait(queue, B, 9)
    assert told(queue.publish("a")) == [("p-a", A)]
    queue.frontend = ""
    assert told(queue.publish("b", "c")) == [("p-b", B)]
    answer = queue.run("receive", queue.receiving(A, 1, process="p-a"), most=200, max_bytes=999)
    assert [row[0] for row in answer.rows[0][2]] == ["a"] and told(answer) == []
    assert wait(queue, B, 9) == ["b", "c"]
    queue.now += 1
    assert told(queue.run("receive", queue.receiving(C, 9, process="p-c"), most=200, max_bytes=999)) == []


def test_given_back(queue: Queue) -> None:
    """Q30: what a consumer gave back goes to another that waits, also if the first one is quicker; alone, it has it again."""
    queue.publish("a")
    assert wait(queue, A, 2) == ["a"]
    queue.now += 1
    wait(queue, B)
    assert told(queue.unlock(A, "a")) == [("p-b", B)]
    assert wait(queue, A, 2) == []
    assert wait(queue, B) == ["a"]
    queue.unlock(B, "a")
    assert wait(queue, A) == ["a"]
    queue.unsubscribe(B, release="1")
    assert told(queue.unlock(A, "a")) == [("p-a", A)] and wait(queue, A) == ["a"]


def test_does_not_come(queue: Queue) -> None:
    """One that was told and does not come holds nobody up for long; one that has not looked for long is gone."""
    queue.publish("a")
    assert wait(queue, A, 2) == ["a"]
    wait(queue, B)
    assert told(queue.unlock(A, "a")) == [("p-b", B)]
    queue.now += 2_001
    assert wait(queue, A, 2) == ["a"]
    queue.now += 15_000
    queue.expire()
    assert wait(queue, C) == []
    queue.now += 15_001
    assert told(queue.publish("b")) == []
    assert {"waiting", "waiters"}.isdisjoint(queue.kept())


def test_pushed_credit(queue: Queue) -> None:
    """A worker with credit gets the item, and nobody is told of it; also where a frontend has to send it."""
    wait(queue, A)
    queue.subscribe(W1, 1)
    queue.frontend = ""
    answer = queue.publish("a")
    assert told(answer) == [] and answer.due == queue.now
    queue.frontend = "f1"
    answer = queue.expire()
    assert answer.given == [(W1, "a")] and told(answer) == []
    assert told(queue.publish("b")) == [("p-a", A)]


def test_what_ends_a_wait(unopened: Queue) -> None:
    """Whatever lets an item go out wakes: the end of a delay, of a lock, of a pause, and of an ownership."""
    unopened.open()
    wait(unopened, A)
    # A publish looks at nothing, so one that waits may find that the item is delayed.
    unopened.publish("a", hints="5000 4 0")
    assert wait(unopened, A) == [] and told(unopened.expire()) == []
    unopened.now += 5_000
    assert told(unopened.expire()) == [("p-a", A)]
    assert wait(unopened, A) == ["a"]
    unopened.now += 50_000
    wait(unopened, B)
    unopened.now += 10_000
    assert told(unopened.expire()) == [("p-b", B)]
    assert wait(unopened, B) == ["a"]
    unopened.open(paused="1", revision=2)
    unopened.publish("b")
    assert wait(unopened, C) == [] and told(unopened.expire()) == []
    unopened.open(revision=3)
    assert told(unopened.expire()) == [("p-b", B), ("p-c", C)]
    assert wait(unopened, C) == ["b"] and wait(unopened, B, process="") == ["a"]
    unopened.attach(W1, credit=0)
    unopened.publish("c")
    wait(unopened, C)
    assert told(unopened.expire()) == []
    assert told(unopened.unsubscribe(W1, release="1")) == [("p-c", C)]


def check_held_back(queue: Queue) -> None:
    """Check that after the first item the next one wakes nobody before its second has come."""
    assert wait(queue, A) == ["a"]
    answer = queue.expire()
    assert told(answer) == [] and answer.due == T0 + 1_000
    queue.now += 1_000
    assert told(queue.expire()) == [("p-a", A)]
    assert wait(queue, A) == ["a", "b"]


def test_bounds(unopened: Queue) -> None:
    """What a rate or a bound holds back wakes nobody before it lets an item go out: at the sweep that is due then."""
    unopened.open(limits=limits("1/s", 1, 2))
    unopened.publish(*"abc")
    check_held_back(unopened)
    unopened.now += 1_000
    assert told(unopened.expire()) == []
    assert told(unopened.retract(A, "a")) == [("p-a", A)]


def test_bounds_of_a_key(unopened: Queue) -> None:
    """An item that its key holds back wakes nobody before its time."""
    unopened.open(by_key="0 1 1000 1")
    unopened.publish("a", "b", key="k")
    check_held_back(unopened)


def test_selecting(queue: Queue) -> None:
    """One that selects is told of what it selects only, and once."""
    queue.subscribe(A, 5, "pulled", selector="color = 'red'")
    assert wait(queue, A, lease="0") == []
    queue.now += 1
    wait(queue, B)
    assert told(queue.publish("a", body=packed(color="blue"))) == [("p-b", B)]
    assert wait(queue, B) == ["a"]
    assert set(told(queue.publish("b", body=packed(color="red")))) == {("p-a", A), ("p-b", B)}
    assert wait(queue, A, lease="0") == ["b"]
    assert wait(queue, B) == ["a"]
    queue.unsubscribe(B, release="1")
    for _ in range(3):
        assert told(queue.expire()) == []
    # It has examined the item that came back, and is not asked again for each script.
    assert told(queue.publish("c", body=packed(color="blue"))) == []


def test_each_has_given_back(queue: Queue) -> None:
    """Two that gave items back at once, each of which only the giver selects, have them again, without being told for ever."""
    queue.subscribe(A, 5, "pulled", selector="color = 'red'")
    queue.subscribe(B, 5, "pulled", selector="color = 'blue'")
    queue.publish("r", body=packed(color="red"))
    queue.publish("b", body=packed(color="blue"))
    assert wait(queue, A, 2, lease="0") == ["r"] and wait(queue, B, 2, lease="0") == ["b"]
    assert told(queue.unlock(A, "r")) == [("p-a", A)] and told(queue.unlock(B, "b")) == [("p-b", B)]
    assert wait(queue, A, 2, lease="0") == ["r"] and wait(queue, B, 2, lease="0") == ["b"]


def test_beyond_what_it_gave_back(queue: Queue) -> None:
    """One that leaves what it gave back to another takes what comes after that."""
    queue.publish("a", "b")
    assert wait(queue, A, 1) == ["a"]
    wait(queue, B, 1)
    assert wait(queue, B, 1) == ["b"]
    queue.now += 1
    wait(queue, C, 1)
    assert told(queue.unlock(A, "a")) == [("p-c", C)]
    queue.publish("c")
    assert wait(queue, A, 1) == ["c"] and wait(queue, C, 1) == ["a"]
