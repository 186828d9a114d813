"""receive: items are locked for a pull subscription until it holds its limit, and shown."""

import pytest

from broker.redis_core.operations.operation import subid
from broker.redis_core.operations.subscriptions import encode_selector
from tests.lua.driver import T0, TOP, Queue
from tests.lua.test_selection import packed
from tests.lua.worded import W1, W2

LEASE = "alice@x/lease-1"


def items(queue: Queue, limit: object = "", **more: object) -> list[str]:
    """Return the items that the lease holds after a receive."""
    return [row[0] for row in queue.receive(LEASE, limit, **more)[2]]


def test_held(queue: Queue) -> None:
    """R15, R17: up to the credit, with body, lock, attempt and wait, the oldest lock first; an end makes room."""
    queue.publish("a", "b", "c", key="k")
    queue.subscribe(LEASE, 2, "pulled", lease="+9000")
    queue.now += 500
    first = queue.now * 1000
    code, until, found, more, held, credit, selector, waits, owned, now, unused = queue.receive(LEASE)
    assert (code, until, more, held, credit, selector, waits, owned) == ("ok", T0 + 9_000, 0, 2, 2, "", 0, 0)
    assert (now, unused) == (queue.now, "")
    assert found == [
        ["a", first, 1, queue.now + 60_000, "alice@x", "a at 0", "k", T0, 0, 0, 500],
        ["b", first + 1, 1, queue.now + 60_000, "alice@x", "b at 0", "k", T0, 0, 0, 500],
    ]
    # What was shown before is shown again, and waits no more: a lost answer loses nothing (RX5).
    assert queue.receive(LEASE)[2] == [row[:-1] for row in found]
    queue.retract(LEASE, "a", first)
    assert items(queue) == ["b", "c"]
    assert items(queue, after=first + 1) == ["c"]


def test_published_later(queue: Queue) -> None:
    """A publish locks nothing for a pull subscription, whoever runs it."""
    queue.subscribe(LEASE, 5, "pulled")
    for frontend in ("f1", "", "-"):
        queue.frontend = frontend
        answer = queue.publish(f"a{frontend}")
        assert answer.deliveries == [] and answer.due == 0
    assert queue.stats()["in_flight"] == 0 and queue.stats()["credit_free"] == 5
    assert items(queue) == ["af1", "a", "a-"]


def test_looks(queue: Queue) -> None:
    """RX5: who only looks locks nothing, and changes nothing."""
    queue.subscribe(LEASE, 5, "pulled")
    queue.publish("a", "b")
    assert items(queue, most=1) == ["a"]
    before = {name: queue.client.dump(queue.key(name)) for name in queue.kept()}
    queue.now += 1_000
    assert [row[0] for row in queue.run("receive", queue.looking(LEASE), most=200, max_bytes=9).rows[0][2]] == ["a"]
    assert {name: queue.client.dump(queue.key(name)) for name in queue.kept()} == before


def test_owned(queue: Queue) -> None:
    """E28: a partition with an owner says so to a pull subscription, whose locks there have ended."""
    queue.subscribe(LEASE, 1, "pulled")
    queue.publish("a", "b")
    assert items(queue) == ["a"]
    queue.attach(W1)
    assert (items(queue), queue.receive(LEASE)[8]) == ([], 1)


def test_limit_and_lock_time(queue: Queue) -> None:
    """A link names its limit, its credit, which is shown, and how long it locks."""
    queue.subscribe(LEASE, 0, "pulled")
    queue.publish(*"abcde")
    assert items(queue, 2, lease="0", lock_ms=10_000) == ["a", "b"]
    assert [row[3] for row in queue.locks(LEASE)] == [queue.now + 10_000] * 2
    assert items(queue, 3) == ["a", "b", "c"]
    assert [row[3] for row in queue.locks(LEASE)] == [queue.now + 10_000] * 2 + [queue.now + 60_000]
    assert items(queue, 1) == ["a", "b", "c"]
    queue.receive(LEASE, 0, lease="0", credit=7)
    assert queue.receive(LEASE)[5] == 7
    queue.now += 10_000
    assert sorted(notice[2] for notice in queue.expire().notices if notice[0] == "unlocked") == ["a", "b"]


def test_replaced(queue: Queue) -> None:
    """X1: the locked version is returned, and the later one follows it."""
    queue.publish("a", body="old")
    queue.subscribe(LEASE, 1, "pulled")
    queue.receive(LEASE)
    queue.publish("a", body="new")
    assert [row[5] for row in queue.receive(LEASE)[2]] == ["old"]
    queue.retract(LEASE, "a")
    assert [row[5] for row in queue.receive(LEASE)[2]] == ["new"]


def test_bounded(queue: Queue) -> None:
    """X7: cut by count and by bytes, with a word that there are more, and at least one item while there are bytes left."""
    queue.subscribe(LEASE, 260, "pulled")
    for first in range(0, 300, 100):
        queue.publish(*(f"i{number:03}" for number in range(first, first + 100)))
    assert (len(items(queue)), queue.stats()["in_flight"]) == (200, 200)
    assert (len(items(queue, after=queue.locks(LEASE)[199][1])), queue.stats()["in_flight"]) == (60, 260)
    assert len(items(queue, most=3)) == 3 and queue.receive(LEASE, most=3)[3] == 1
    assert [len(queue.receive(LEASE, max_bytes=most)[2]) for most in (1, 9, 10, 100)] == [1, 1, 2, 12]


def test_lease(queue: Queue) -> None:
    """R11: a receive by its owner renews it; an expired or unknown one is refused."""
    queue.subscribe(LEASE, 1, "pulled", lease="+1000")
    queue.now += 900
    assert queue.receive(LEASE, lease=1_000)[1] == T0 + 1_900
    queue.now += 900
    assert queue.receive(LEASE)[:2] == ["ok", T0 + 1_900]
    queue.now += 100
    assert queue.receive(LEASE) == ["lease-over"]
    assert queue.receive(LEASE, lease=1_000) == ["lease-over"]
    assert queue.expire().notices == [["lapsed", LEASE, subid(LEASE)]]
    queue.unsubscribe(LEASE, release="1", lapsed="1")
    queue.subscribe(LEASE, 1)
    assert queue.receive(LEASE) == ["lease-over"]


def test_gives_back_as_it_ends(queue: Queue) -> None:
    """R14: what a subscription holds goes back at once when it ends, also where only its locks are known."""
    queue.publish("a", "b")
    assert items(queue, 2) == ["a", "b"]
    queue.unsubscribe(LEASE, release="1")
    queue.subscribe(W1, 9)
    assert sorted(row[0] for row in queue.locks(W1)) == ["a", "b"]


def test_pushed_credit_comes_first(queue: Queue) -> None:
    """A worker whose credit was there first gets the items, in the very script of a receive; pulls take no turns."""
    queue.frontend = ""
    queue.publish(*"abc")
    queue.frontend = "f1"
    queue.subscribe(LEASE, 5, "pulled")
    queue.frontend = ""
    queue.publish(*"def")
    queue.frontend = "f1"
    answer = queue.subscribe(W1, 2)
    assert answer.given == [(W1, "a"), (W1, "b")]
    queue.retract(W1, "a")
    queue.retract(W1, "b")
    assert [row[0] for row in queue.locks(W1)] == ["c", "d"] and items(queue) == ["e", "f"]


@pytest.mark.parametrize(("frontend", "owed"), [("", True), ("-", False)])
def test_left_to_a_frontend(queue: Queue, frontend: str, *, owed: bool) -> None:
    """A caller that cannot send leaves items to subscribers with credit, and says that a sweep is due, while a frontend lives."""
    queue.subscribe(W1, 5)
    queue.frontend = frontend
    answer = queue.publish("a")
    assert answer.deliveries == [] and answer.due == (queue.now if owed else 0)
    queue.frontend = "f1"
    assert queue.expire().given == [(W1, "a")]


def test_nothing_goes_out(unopened: Queue) -> None:
    """A paused node, and an owned partition, hand nothing to pulls (E28)."""
    unopened.open(paused="1")
    unopened.publish("a")
    assert items(unopened, 5) == []
    unopened.open(revision=2)
    assert items(unopened, 1) == ["a"]
    unopened.unsubscribe(LEASE, release="1")
    unopened.attach(W2)
    assert items(unopened, 5) == []


def test_rate_and_bound(unopened: Queue) -> None:
    """stanzaq#rate and max_in_flight hold for pulls; what they hold back is due at its time."""
    unopened.open(limits="3 0 0 0")
    unopened.publish(*"abcde")
    assert items(unopened, 9) == ["a", "b", "c"]
    unopened.retract(LEASE, "a")
    assert items(unopened, 9) == ["b", "c", "d"]


def test_selector(queue: Queue) -> None:
    """A selector chooses, of what was there before and of what comes later, and ends with the subscription."""
    red = packed(color="red")
    queue.publish("a", body=packed(color="blue"))
    queue.publish("b", "c", body=red)
    queue.subscribe(LEASE, 5, "pulled", selector="color = 'red'")
    assert items(queue) == ["b", "c"]
    queue.publish("d", body=packed(color="blue"))
    queue.publish("e", body=red)
    assert items(queue) == ["b", "c", "e"]
    queue.subscribe(W1, 5)
    assert [row[0] for row in queue.locks(W1)] == ["a", "d"]
    queue.unsubscribe(LEASE, release="1")
    assert sorted(row[0] for row in queue.locks(W1)) == ["a", "b", "c", "d", "e"]
    assert "selectors" not in queue.kept()


def test_selector_elsewhere(queue: Queue) -> None:
    """A partition that does not know the subscription is told its selector; with none, everything is for it."""
    queue.publish("a", body=packed(color="blue"))
    queue.publish("b", body=packed(color="red"))
    assert items(queue, 5, selector=encode_selector("color = 'red'")) == ["b"]
    assert items(queue, 5, selector="") == ["b", "a"]


@pytest.mark.parametrize("option", [{"by_key": "1 0 0 0"}, {"ordered": "1"}])
def test_one_of_a_group(unopened: Queue, option: dict[str, str]) -> None:
    """stanzaq#max_in_flight_by_key and stanzaq#ordered hold for pulls: of each group one item is locked at a time."""
    unopened.open(**option)
    unopened.publish("a", "b", key="k")
    unopened.publish("c", key="l")
    assert items(unopened, 9) == ["a", "c"]
    unopened.retract(LEASE, "a")
    assert items(unopened, 9) == ["c", "b"]


def test_under_references(unopened: Queue) -> None:
    """R17: below a collection each reference locks one item, once; late ones and those without an item come back."""
    unopened.open(above="1")
    unopened.publish("a", "b", "c")
    lent = {"references": "r1 r2", "selector": ""}
    assert queue_receives(unopened, **lent) == (["a", "b"], "")
    assert queue_receives(unopened, **lent) == (["a", "b"], "")
    late = {"references": "r3 r4"}
    assert queue_receives(unopened, deadline=unopened.now, **late) == (["a", "b"], "r4 r3")
    assert queue_receives(unopened, deadline=unopened.now + 3_001, **late) == (["a", "b"], "r4 r3")
    assert queue_receives(unopened, **late) == (["a", "b", "c"], "r4")
    answer = unopened.retract(LEASE, "b")
    assert [notice[1:] for notice in answer.notices if notice[0] == "freed"] == [[TOP, "r2 reached"]]
    # Who may not take any more says so.
    unopened.open(revision=2, above="1", paused="1")
    assert queue_receives(unopened, references="r5") == (["a", "c"], "r5")


def queue_receives(queue: Queue, **more: object) -> tuple[list[str], str]:
    """Return what the lease holds after a receive under references, and those that are unused."""
    row = queue.receive(LEASE, 9, **more)
    return [item[0] for item in row[2]], row[-1]


def test_next(queue: Queue) -> None:
    """One row acknowledges, and then locks up to so many more within the credit, renews the lease, and shows what it locked."""
    queue.publish(*"abcdef", body="12")
    queue.subscribe(LEASE, 2, "pulled", lease="+9000")
    queue.receive(LEASE)
    queue.now += 500
    (word, code, answer), *_ = queue.retract(LEASE, "a", next="5 9000").rows
    assert (word, code) == ("received", LEASE)
    code, until, found, more, held, credit, *_ = answer
    assert (code, until, more, held, credit) == ("ok", queue.now + 9_000, 0, 2, 2)
    assert [(row[0], row[10]) for row in found] == [("c", 500)]
    # Rows of one call free credit before any of them receives, and each shows its own.
    first, second = queue.run(
        "retract", queue.asked(LEASE, "b") | {"next": "1 0"}, queue.asked(LEASE, "c") | {"next": "5 0"}
    ).rows
    assert [row[0] for row in first[2][2]] == ["d"] and [row[0] for row in second[2][2]] == ["e"]
    assert (first[2][1], second[2][4]) == (until, 2)
    row = queue.asked(LEASE, "d") | {"next": "0 0", "result": "r"}
    ((word, outcome, answer),) = queue.run("complete", row).rows
    assert (word, outcome, answer[2], answer[4]) == ("received", ["ok", LEASE], [], 1)
    assert [row[0] for row in queue.locks(LEASE)] == ["e"]


def test_next_of_a_refused_one(queue: Queue) -> None:
    """A refused acknowledgement receives as well; nothing does once the lease is over, nor while the queue is paused."""
    queue.publish("a", "b")
    queue.subscribe(LEASE, 1, "pulled", lease="+9000")
    (word, outcome, answer), *_ = queue.retract(LEASE, "x", next="1 9000").rows
    assert (word, outcome, [row[0] for row in answer[2]]) == ("received", ["item-not-found"], ["a"])
    queue.unsubscribe(LEASE, kept="1")
    assert queue.retract(LEASE, "a", next="1 0").rows == [["received", LEASE, ["lease-over"]]]
