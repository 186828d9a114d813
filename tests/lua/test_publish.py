"""publish: an item is appended, replaces an earlier version, or is refused."""

import pytest

from tests.lua.driver import T0, Queue
from tests.lua.worded import ALICE, HARD, W1, W2, W3


def test_waits(queue: Queue) -> None:
    """Q13: with no subscriber the item waits; an id is made when none is given, and only the others are indexed."""
    answer = queue.publish("a", "")
    assert answer.rows == [["ok", "a"], ["ok", f"0-{T0}-1"]]
    assert queue.browse() == {"a": "waiting", f"0-{T0}-1": "waiting"}
    assert queue.client.hkeys(queue.key("index")) == [b"a"]


def test_one_of_the_subscribers(queue: Queue) -> None:
    """Q14, Q15, Q17: one subscriber gets the item with its payload, under a lock that exists before the reply."""
    queue.subscribe(W1, 5)
    queue.subscribe(W2, 5)
    (delivery,) = queue.publish("a", body="<x/>").deliveries
    assert (delivery.body, delivery.attempt, delivery.deadline, delivery.by) == ("<x/>", 1, T0 + 60_000, ALICE)
    assert queue.locks(delivery.jid) == [["a", delivery.token, 1, T0 + 60_000]]
    assert queue.stats()["in_flight"] == 1


def test_least_recently_served(queue: Queue) -> None:
    """The least recently served is next, a newcomer first; subscribers without credit are skipped."""
    queue.subscribe(W1, 2)
    queue.subscribe(W2, 1)
    given = [queue.publish(name).given[0][0] for name in "ab"]
    assert sorted(given) == [W1, W2]
    queue.subscribe(W3, 2)
    assert [queue.publish(name).given for name in "cdef"] == [[(W3, "c")], [(W1, "d")], [(W3, "e")], []]


def test_a_batch_takes_turns(queue: Queue) -> None:
    """A batch is distributed as single items are, each in order."""
    for name in (W1, W2, W3):
        queue.subscribe(name, 2)
    answer = queue.publish(*"abcdefg")
    assert [d.item for d in answer.deliveries] == list("abcdef")
    receivers = [d.jid for d in answer.deliveries]
    assert receivers[:3] == receivers[3:] and sorted(receivers[:3]) == [W1, W2, W3]


def test_credit_is_a_limit(queue: Queue) -> None:
    """Q12: no subscriber holds more than its credit."""
    queue.subscribe(W1, 3)
    assert len(queue.publish(*"abcde").deliveries) == 3
    assert queue.stats() == {
        "waiting": 2, "eligible": 2, "delayed": 0, "in_flight": 3, "dying": 0, "oldest_ms": 0, "subscribers": 1,
        "credit_free": 0,
    }  # fmt: skip


def test_ids_to_come(queue: Queue) -> None:
    """P33: no two items have one id: one that the service may still make is refused, one that it has made is accepted."""
    made = queue.publish("").rows[0][1]
    assert queue.publish(f"0-{T0}-1", f"0-{T0 + 60_000}-0").words == ["item-id-invalid"] * 2
    queue.subscribe(W1, 1)
    queue.retract(W1, made)
    assert queue.publish(made).rows == [["ok", made]]


def test_hard_ids(queue: Queue) -> None:
    """P14, P33: any text is an id; one that only looks like the service's own is an id like others."""
    assert queue.publish(*HARD).words == ["ok"] * len(HARD)
    assert list(queue.browse()) == list(HARD)


def test_overwrite_in_order(queue: Queue) -> None:
    """P15, X1: a waiting item is replaced in place."""
    queue.publish("a", "b", body="one")
    assert queue.publish("a", body="two").rows == [["ok", "a"]]
    assert queue.stats()["waiting"] == 2
    given = queue.subscribe(W1, 2).deliveries
    assert [(d.item, d.body, d.attempt) for d in given] == [("a", "two", 1), ("b", "one", 1)]
    assert queue.publish().given == []
    queue.retract(W1, "a")
    queue.retract(W1, "b")
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_overwrite_twice_in_one_batch(queue: Queue) -> None:
    """X1: the last version of a batch stays, once."""
    answer = queue.run("publish", *(
        {"item": "a", "by": ALICE, "body": body, "key": "", "once": "", "hints": "", "refused": ""}
        for body in ("one", "two", "three")
    ), dedupe="overwrite")  # fmt: skip
    assert answer.words == ["ok"] * 3
    assert [d.body for d in queue.subscribe(W1, 5).deliveries] == ["three"]


def test_overwrite_of_what_came_back(queue: Queue) -> None:
    """X1: an item that came back is replaced in place and starts anew."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    queue.unsubscribe(W1, release="1")
    queue.publish("a", body="two")
    given = queue.subscribe(W1, 2).deliveries
    assert [(d.item, d.attempt) for d in given] == [("a", 1), ("b", 1)] and given[0].body == "two"


def test_overwrite_of_what_is_delayed(queue: Queue) -> None:
    """X1: a delayed item is replaced in place and stays delayed."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a", delay_ms=5_000)
    queue.publish("a", body="two")
    assert queue.browse() == {"a": "delayed"}
    queue.now += 5_000
    assert [(d.body, d.attempt) for d in queue.expire().deliveries] == [("two", 1)]


def test_overwrite_of_what_is_locked(queue: Queue) -> None:
    """X1: the version behind a lock waits; only the last one counts."""
    queue.publish("a", body="one")
    queue.subscribe(W1, 2)
    assert queue.publish("a", body="two").deliveries == []
    assert queue.publish("a", body="three").deliveries == []
    assert queue.stats()["waiting"] == 0
    assert [d.body for d in queue.retract(W1, "a").deliveries] == ["three"]


def test_overwrite_of_what_is_dying(queue: Queue) -> None:
    """A dead letter's id is free: the republished item is a new one, and the dead letter stays as it was."""
    queue.publish("a", "", body="one")
    queue.subscribe(W1, 2)
    made = queue.locks(W1)[1][0]
    queue.unlock(W1, "a", dead_letter="1")
    queue.unlock(W1, made, dead_letter="1")
    answer = queue.publish("a", made, body="two")
    assert answer.words == ["ok", "ok"] and [d.body for d in answer.deliveries] == ["two", "two"]
    queue.now += 5_000
    assert sorted((h.item, h.body) for h in queue.letters(queue.expire())) == sorted([("a", "one"), (made, "one")])


def test_overwrite_of_an_id_of_the_service(queue: Queue) -> None:
    """P15: an id that the service made names its item like any other."""
    made = queue.publish("", body="one").rows[0][1]
    queue.publish(made, body="two")
    assert queue.bodies() == {made: "two"}
    queue.subscribe(W1, 1)
    queue.publish(made, body="three")
    assert [(d.item, d.body) for d in queue.retract(W1, made).deliveries] == [(made, "three")]
    queue.retract(W1, made)
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_ignore(queue: Queue) -> None:
    """X1: with `ignore` a repeat is a success that changes nothing, also after the acknowledgement, inside the window."""
    assert queue.publish("a", body="one", dedupe="ignore", dedupe_ms=1_000).rows == [["ok", "a"]]
    assert queue.publish("a", "a", dedupe="ignore", dedupe_ms=1_000).rows == [["duplicate", "a"]] * 2
    assert queue.bodies() == {"a": "one"}
    queue.subscribe(W1, 1)
    queue.retract(W1, "a")
    queue.now += 999
    assert queue.publish("a", dedupe="ignore", dedupe_ms=1_000).words == ["duplicate"]
    queue.now += 1
    assert queue.publish("a", dedupe="ignore", dedupe_ms=1_000).words == ["ok"]


def test_ignore_within_one_batch(queue: Queue) -> None:
    """X1: the first of a batch counts."""
    assert queue.publish("a", "a", "", "", dedupe="ignore").words == ["ok", "duplicate", "ok", "ok"]


def test_window_is_bounded(queue: Queue) -> None:
    """Guarantee 6: remembered ids are bounded by the window."""
    for _ in range(20):
        queue.now += 100
        queue.publish(f"i{queue.now}", dedupe="ignore", dedupe_ms=500)
    assert queue.client.zcard(queue.key("dedupe")) <= 7


def test_full_rejects(queue: Queue) -> None:
    """PX4: a full node refuses, whole items only: versions do not count, a replacement is always accepted."""
    assert queue.publish(*"abc", max_items=2).words == ["ok", "ok", "node-full"]
    assert queue.publish("a", "a", max_items=2).words == ["ok", "ok"]
    queue.subscribe(W1, 1)
    assert queue.publish("a", "c", max_items=2).words == ["ok", "node-full"]
    queue.retract(W1, "a")
    assert queue.stats()["waiting"] + queue.stats()["in_flight"] == 2


@pytest.mark.parametrize("mode", ["retract-oldest", "dead-letter-oldest"])
def test_full_gives_up_the_oldest(queue: Queue, mode: str) -> None:
    """P17, PX4: the oldest waiting item is dropped, or becomes a dead letter; locked ones stay."""
    queue.subscribe(W1, 1)
    queue.publish(*"abc", max_items=3)
    answer = queue.publish("d", max_items=3, node_full=mode)
    assert answer.words == ["ok"]
    expected = [("b", 0, "", "node-full")] if mode == "dead-letter-oldest" else []
    assert [(h.item, h.attempts, h.jid, h.reason) for h in queue.letters(answer)] == expected
    states = {name: state for name, state in queue.browse().items() if state != "dying"}
    assert states == {"a": "locked", "c": "waiting", "d": "waiting"}


def test_full_of_locked(queue: Queue) -> None:
    """PX4: when nothing waits nothing can be dropped."""
    queue.subscribe(W1, 2)
    queue.publish(*"ab", max_items=2)
    assert queue.publish("c", max_items=2, node_full="retract-oldest").words == ["node-full"]


def test_full_gives_up_what_the_batch_names_again(queue: Queue) -> None:
    """P15: an item that was dropped for another row of its batch and is named after it is published anew, not lost."""
    queue.publish("old", max_items=1)
    answer = queue.publish("new", "old", body="two", max_items=1, node_full="retract-oldest")
    assert answer.words == ["ok", "ok"]
    assert queue.bodies() == {"old": "two"}
    assert queue.subscribe(W1, 5).given == [(W1, "old")]


def test_clock_steps_back(queue: Queue) -> None:
    """Guarantee 5: a clock that steps back stops no queue and changes no order."""
    queue.publish("a")
    queue.now -= 10_000
    queue.publish("b", "c")
    assert [item for _, item in queue.subscribe(W1, 3).given] == ["a", "b", "c"]


@pytest.mark.parametrize(("revision", "code"), [("", "ok"), ("1", "ok"), ("2", "stale"), ("0", "stale")])
def test_revision(queue: Queue, revision: str, code: str) -> None:
    """A caller with another revision is refused, and nothing happens."""
    answer = queue.publish("a", revision=revision)
    assert answer.code == code
    if code == "stale":
        assert answer.rows == [] and queue.kept() == {"meta"}


def test_unopened(unopened: Queue) -> None:
    """A partition that is not opened says so and stays empty."""
    assert unopened.publish("a").code == "gone"
    assert unopened.kept() == set()


def test_more_than_one_script_hands_out(queue: Queue) -> None:
    """X7: a script hands out 200 items at most and says that more could go."""
    for first in range(0, 400, 200):
        queue.publish(*(f"i{n}" for n in range(first, first + 200)))
    queue.publish("last")
    answer = queue.subscribe(W1, 1000)
    assert (len(answer.deliveries), answer.more) == (200, 1)
    answer = queue.expire()
    assert (len(answer.deliveries), answer.more) == (200, 1)
    answer = queue.expire()
    assert (answer.given, answer.more) == ([(W1, "last")], 0)


@pytest.mark.parametrize("item", ["", "a"])
def test_ticket(queue: Queue, item: str) -> None:
    """SX9: a second publish with a ticket has no effect, in the same batch or when the item is long gone."""
    row = {"item": item, "by": ALICE, "body": "b", "key": "", "once": "\0n1", "hints": "", "refused": ""}
    answer = queue.run("publish", row, row)
    assert answer.words == ["ok", "duplicate"]
    queue.subscribe(W1, 1)
    (locked,) = queue.locks(W1)
    queue.retract(W1, locked[0])
    queue.now += 7_199_999
    assert queue.run("publish", row).words == ["duplicate"]
    assert queue.stats()["waiting"] == 0
    queue.now += 1
    assert queue.run("publish", row).words == ["ok"]


def test_ticket_with_a_digest(queue: Queue) -> None:
    """R10: with a digest in the ticket, a repeat with other content is reported; without one it is not."""
    row = {"item": "a", "by": ALICE, "body": "b", "key": "", "once": "t\0one", "hints": "", "refused": ""}
    answer = queue.run("publish", row, row, row | {"once": "t\0two"}, row | {"once": "t"})
    assert answer.rows == [["ok", "a"], ["duplicate", "a"], ["duplicate", "a", 1], ["duplicate", "a"]]
    queue.now += 7_199_999
    assert queue.run("publish", row | {"once": "t\0two"}).rows == [["duplicate", "a", 1]]
    queue.now += 1
    assert queue.run("publish", row | {"once": "t\0two"}).words == ["ok"]


def test_ticket_of_a_replacement(queue: Queue) -> None:
    """X1: a publish that replaces a waiting item counts once as well: its repeat does not bring an old version back."""
    row = {"item": "a", "by": ALICE, "body": "first", "key": "", "once": "\0n1", "hints": "", "refused": ""}
    queue.publish("a", body="zeroth")
    assert queue.run("publish", row).words == ["ok"]
    queue.publish("a", body="second")
    assert queue.run("publish", row).words == ["duplicate"]
    assert queue.bodies() == {"a": "second"}
