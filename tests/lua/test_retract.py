"""retract: acknowledge, delete, replay."""

from tests.lua.driver import Queue
from tests.lua.worded import ALICE, W1, W2


def test_acknowledgement(queue: Queue) -> None:
    """Q19, Q20: the holder's retract deletes the item, returns whom to notify, and leaves only a journal record."""
    queue.publish("a", body="12345")
    token = queue.subscribe(W1, 1).deliveries[0].token
    queue.now += 250
    answer = queue.retract(W1, "a", token)
    assert answer.rows == [["ok", W1]]
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}
    (record,) = queue.journal()
    assert record == {
        "type": "acknowledged", "item": "a", "published": queue.now - 250, "delivered": queue.now - 250,
        "closed": queue.now, "attempt": 1, "subscriber": W1, "frontend": "f1", "bytes": 5, "token": token, "reason": "",
    }  # fmt: skip


def test_credit_goes_on(queue: Queue) -> None:
    """Guarantee 3: the freed credit takes the next item in the same script."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    assert queue.retract(W1, "a").given == [(W1, "b")]


def test_replay(queue: Queue) -> None:
    """Q27: the same request again gets the first answer; another request finds nothing."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    assert queue.retract(W1, "a", request="r1").rows == [["ok", W1]]
    assert queue.retract(W1, "a", request="r1").rows == [["replayed", W1]]
    assert queue.retract(W1, "a", request="r2").words == ["item-not-found"]
    assert queue.retract(W2, "a", request="r1").words == ["item-not-found"]


def test_replay_of_a_deletion(queue: Queue) -> None:
    """Q27: an owner's deletion is replayed too, and has no holder."""
    queue.publish("a")
    assert queue.retract("boss@x/1", "a", owner="1", request="r").rows == [["ok", ""]]
    assert queue.retract("boss@x/1", "a", owner="1", request="r").rows == [["replayed", ""]]


def test_replays_are_forgotten(queue: Queue) -> None:
    """Q27, guarantee 6: answers are kept for one to two minutes."""
    queue.publish("a", "b", "c")
    queue.subscribe(W1, 3)
    queue.retract(W1, "a", request="r")
    queue.now += 60_000
    assert queue.retract(W1, "a", request="r").words == ["replayed"]
    queue.now += 60_000
    assert queue.retract(W1, "a", request="r").words == ["item-not-found"]
    queue.retract(W1, "b")
    queue.now += 60_000
    queue.retract(W1, "c")
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_replay_does_not_end_a_new_lock(queue: Queue) -> None:
    """Q27: a replayed request whose answer was lost does not end its sender's newer lock."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    token = queue.unlock(W1, "a", request="r").deliveries[0].token
    assert queue.retract(W1, "a", request="r").words == ["replayed"]
    assert queue.locks(W1)[0][:2] == ["a", token]


def test_twice_in_one_batch(queue: Queue) -> None:
    """Each row of a batch sees the changes of the rows before it: one acknowledgement, one journal record."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    rows = [queue.asked(W1, "a", request="r"), queue.asked(W1, "a", request="r"), queue.asked(W1, "a", request="s")]
    assert queue.run("retract", *rows).words == ["ok", "replayed", "item-not-found"]
    assert len(queue.journal()) == 1


def test_together(queue: Queue) -> None:
    """XEP-0060 §12: held and waiting items go in one call, the freed credit hands out others, and a repeat is replayed (Q27)."""
    queue.publish("a", "b", "c", by=ALICE)
    queue.subscribe(ALICE, 1)
    rows = [queue.asked(ALICE, name, request="r") for name in ("a", "b")]
    answer = queue.run("retract", *rows, together="1")
    assert (answer.rows, answer.given) == ([["ok", ALICE], ["ok", ""]], [(ALICE, "c")])
    assert queue.run("retract", *rows, together="1").words == ["replayed", "replayed"]
    assert queue.browse() == {"c": "locked"}


def test_together_or_not_at_all(queue: Queue) -> None:
    """XEP-0060 §12: one refused row leaves all items as they were; the answer says which row, and why."""
    queue.publish("a", "b", "c", by=ALICE)
    token = queue.subscribe(W1, 2).deliveries[0].token
    before = queue.browse()
    rows = [queue.asked(W1, "a", token, request="r"), queue.asked(W1, "b", token, request="r"), queue.asked(W1, "c")]
    assert queue.run("retract", *rows, together="1").rows == [["refused", 2, "lock-lost"]]
    assert queue.run("retract", rows[0], rows[2], together="1").rows == [["refused", 2, "forbidden"]]
    assert queue.browse() == before and "replays" not in queue.kept()
    assert queue.retract(W1, "a", token, request="r").words == ["ok"]


def test_together_has_an_end(queue: Queue) -> None:
    """Guarantee 6: items whose entries are too large to be read in one call are not deleted together."""
    names = [f"i{number}" for number in range(60)]
    for name in names:
        queue.publish(name, body="x" * 200_000)
    rows = [queue.asked("boss@x/1", name, owner="1") for name in names]
    ((word, number, problem),) = queue.run("retract", *rows, together="1").rows
    assert (word, problem) == ("refused", "not-acceptable") and 30 < number < 60
    assert queue.journal() == []
    assert len(queue.run("retract", *rows[:30], together="1").rows) == 30


def test_owner_deletes_wherever_it_waits(queue: Queue) -> None:
    """P3: any waiting item is deleted, new, released, replaced or delayed, and nothing of it stays."""
    queue.publish("came back", "later")
    queue.subscribe(W1, 2)
    queue.unlock(W1, "later", delay_ms=5_000)
    queue.unsubscribe(W1, release="1")
    queue.publish("in order", "replaced", "")
    queue.publish("replaced")
    for item in list(queue.browse()):
        assert queue.retract("boss@x/1", item, owner="1").words == ["ok"]
    assert queue.kept() <= {"meta", "journal"}


def test_ack_deletes_only_the_version_it_locked(queue: Queue) -> None:
    """X1: the version parked behind the lock becomes an item of its own, at its first attempt."""
    queue.publish("a", body="one", by=ALICE)
    queue.subscribe(W1, 1)
    queue.publish("a", body="two", by=ALICE)
    assert queue.browse() == {"a": "locked"} and queue.bodies() == {"a": "one"}
    (next_one,) = queue.retract(W1, "a").deliveries
    assert (next_one.item, next_one.body, next_one.attempt) == ("a", "two", 1)
    queue.retract(W1, "a")
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_former_subscriber(queue: Queue) -> None:
    """Q34: an unsubscribed JID may still acknowledge its locks."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unsubscribe(W1)
    assert queue.retract(W1, "a").rows == [["ok", W1]]
    assert queue.kept() == {"meta", "journal"}


def test_large_batch(queue: Queue) -> None:
    """A full batch of 200 rows ends 200 locks and hands 200 items on."""
    names = [f"i{n}" for n in range(400)]
    queue.publish(*names[:200])
    queue.publish(*names[200:])
    assert len(queue.subscribe(W1, 200).deliveries) == 200
    answer = queue.run("retract", *(queue.asked(W1, name, request=name) for name in names[:200]))
    assert set(answer.words) == {"ok"}
    assert [d.item for d in answer.deliveries] == names[200:]


def test_after_it_came_back(queue: Queue) -> None:
    """Guarantee 6: the history of an item that came back goes with it."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a")
    assert "history" in queue.kept()
    queue.retract(W1, "a")
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_a_token_speaks_of_a_lock(queue: Queue) -> None:
    """RX6: a token deletes only the item locked under it, by no other right."""
    queue.publish("a", by="alice@x")
    for sender, owner in (("alice@x/1", ""), ("boss@x/1", "1")):
        assert queue.retract(sender, "a", 7, owner=owner).words == ["lock-lost"]
    assert queue.retract("alice@x/1", "a").words == ["ok"]
