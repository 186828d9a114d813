"""cancel: an item ends by the order of its publisher or an owner, in whatever state."""

from tests.lua.driver import Answer, Queue
from tests.lua.worded import ALICE, BOB, W1

REQUEST = "cancel"


def cancel(queue: Queue, *items: str, by: str = f"{ALICE}/1", owner: str = "") -> Answer:
    """Cancel items."""
    return queue.run("cancel", *({"sender": by, "owner": owner, "item": item, "request": REQUEST} for item in items))


def test_waiting(queue: Queue) -> None:
    """The publisher cancels what waits; another publisher may not, an owner may. Nothing is left."""
    queue.publish("a", "b", hints="0 4 0")
    queue.publish("rests", "urgent", hints="60000 9 90000")
    assert cancel(queue, "a", by=f"{BOB}/1").words == ["forbidden"]
    assert cancel(queue, "a", "rests", "urgent").words == ["ok"] * 3
    assert cancel(queue, "b", by=f"{BOB}/1", owner="1").words == ["ok"]
    queue.now += 60_000
    queue.expire()
    assert queue.kept() <= {"meta", "replays", "replays_old"} and queue.journal() == []


def test_held(queue: Queue) -> None:
    """The holder is told, its token is void, the credit takes the next item, and the journal has one record."""
    queue.publish("a", "b")
    token = queue.subscribe(W1, 1).deliveries[0].token
    queue.now += 250
    answer = cancel(queue, "a")
    assert (answer.words, answer.notices, answer.given) == (["ok"], [["cancelled", W1, "a", token]], [(W1, "b")])
    assert queue.retract(W1, "a", token).words == ["item-not-found"]
    assert queue.unlock(W1, "a", token).words == ["item-not-found"]
    assert [(each["type"], each["item"], each["subscriber"]) for each in queue.journal()] == [("cancelled", "a", W1)]


def test_own_lock_gives_no_right(queue: Queue) -> None:
    """A holder that is no publisher of the item cannot cancel it."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    assert cancel(queue, "a", by=W1).words == ["forbidden"]
    assert len(queue.locks(W1)) == 1


def test_again(queue: Queue) -> None:
    """Q27: a repeat gets the first answer for a minute, its sender's only; an id that is used again names the new item."""
    queue.publish("a")
    assert cancel(queue, "a", "a").words == ["ok", "replayed"]
    assert cancel(queue, "a", by=f"{BOB}/1").words == ["item-not-found"]
    queue.publish("a")
    assert cancel(queue, "a").words == ["ok"]
    queue.now += 121_000
    cancel(queue, "none")
    queue.now += 61_000
    assert cancel(queue, "a").words == ["item-not-found"]


def test_later_version(queue: Queue) -> None:
    """X1: the version that waits for the lock to end goes with the item: nothing of this id is left."""
    queue.publish("a", body="old")
    queue.subscribe(W1, 1)
    queue.publish("a", body="new")
    assert cancel(queue, "a").words == ["ok"]
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "replays", "journal"}


def test_in_a_group(queue: Queue) -> None:
    """Q-ordered: a cancelled item lets the next one of its group go, whether it was ahead, blocked or held."""
    queue.open(revision=2, ordered="1")
    queue.publish("a", "b", "c", "d", key="g", revision=2)
    queue.subscribe(W1, 1, revision=2)
    fixed = {"revision": 2}

    def ended(item: str) -> Answer:
        row = {"sender": f"{ALICE}/1", "owner": "", "item": item, "request": REQUEST}
        return queue.run("cancel", row, **fixed)

    assert ended("b").given == [], "b was blocked"
    assert ended("a").given == [(W1, "c")], "a was held"
    queue.run("unlock", queue.given_back(W1, "c", delay_ms=60_000), **fixed)
    assert ended("c").given == [(W1, "d")], "c was ahead and rests"
    assert queue.run("retract", queue.asked(W1, "d"), **fixed).words == ["ok"]


def test_came_back(queue: Queue) -> None:
    """An item that was tried before goes with its history; a former holder has no say."""
    queue.publish("a", by=ALICE)
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a", delay_ms=60_000)
    assert cancel(queue, "a", by=W1).words == ["forbidden"]
    assert cancel(queue, "a").words == ["ok"]
    assert "history" not in queue.kept() and "delayed" not in queue.kept()


def test_received(queue: Queue) -> None:
    """An item that a pull subscription has received was an attempt; one that waits for it was none."""
    queue.subscribe(W1, 1, qos="pulled", lease="+60000")
    queue.publish("a", "b")
    (held,) = queue.receive(W1)[2]
    answer = cancel(queue, "a", "b")
    assert (answer.words, answer.notices) == (["ok", "ok"], [["cancelled", W1, "a", held[1]]])
    assert [(each["type"], each["item"], each["subscriber"]) for each in queue.journal()] == [("cancelled", "a", W1)]
    assert queue.receive(W1)[2] == [] and queue.stats()["in_flight"] == 0


def test_on_its_way(queue: Queue) -> None:
    """A dead letter on its way has left the queue: it is no item here any more."""
    queue.publish("", by=ALICE)
    (item,) = queue.browse()
    queue.subscribe(W1, 1)
    assert len(queue.letters(queue.unlock(W1, item, dead_letter="1"))) == 1
    assert cancel(queue, item).words == ["item-not-found"]


def test_confirmed_deliveries(queue: Queue) -> None:
    """Guarantee 2: nothing sends the delivery of a cancelled item again."""
    queue.subscribe(W1, 1, qos="assured")
    queue.publish("a")
    assert cancel(queue, "a").words == ["ok"]
    queue.now += 10_000
    assert queue.expire().deliveries == [] and not {"confirmations", "retries"} & queue.kept()
