"""Pull subscribers and subscribers that are sent their items: all share the same turns, whoever runs the script."""

import pytest

from tests.lua.driver import T0, Answer, Queue
from tests.lua.worded import W1, W2

LEASE, OTHER = "alice@x/lease-1", "bob@x/lease-2"


def filled(answer: Answer) -> list[str]:
    """Return the pull subscribers that got items."""
    return sorted(notice[1] for notice in answer.notices if notice[0] == "filled")


def items(queue: Queue, jid: str) -> list[str]:
    """Return the items of a subscription."""
    return [row[0] for row in queue.fetch(jid)[2]]


def test_by_a_frontend(queue: Queue) -> None:
    """RX5, Q14: the least recently served is next, pull or push; a pulled item is never sent."""
    for jid, qos in ((W1, "unacknowledged"), (LEASE, "pulled"), (W2, "unacknowledged"), (OTHER, "pulled")):
        queue.now += 1
        queue.subscribe(jid, 2, qos)
    answer = queue.publish(*"abcdefghi")
    assert [len(queue.locks(jid)) for jid in (W1, LEASE, W2, OTHER)] == [2, 2, 2, 2]
    assert sorted(jid for jid, _item in answer.given) == [W1, W1, W2, W2]
    assert filled(answer) == [LEASE, OTHER]
    assert set(items(queue, LEASE) + items(queue, OTHER)).isdisjoint(item for _jid, item in answer.given)
    again = queue.run("take_over", frontend="f2", previous="f1").deliveries
    assert sorted(each.item for each in again) == sorted(item for _jid, item in answer.given)


def test_without_a_name(queue: Queue) -> None:
    """RX5: a caller that cannot send serves pull subscribers, stops at the first other one, and reports that as due."""
    queue.subscribe(LEASE, 5, "pulled")
    queue.subscribe(OTHER, 5, "pulled")
    queue.frontend = ""
    first = queue.publish("a")
    assert len(filled(first)) == 1 and first.deliveries == []
    # Nothing is due but the deadlines.
    assert first.due == queue.now + 5_000
    queue.frontend = "f1"
    queue.subscribe(W1, 5)
    queue.frontend = ""
    answer = queue.publish(*"bcdef")
    # The one that has never been served, and W1 after it.
    assert len(items(queue, LEASE)) + len(items(queue, OTHER)) + len(queue.locks(W1)) <= 2
    assert answer.deliveries == [] and answer.due == queue.now
    queue.frontend = "f1"
    assert queue.expire().given
    held = [len(items(queue, LEASE)), len(items(queue, OTHER)), len(queue.locks(W1))]
    assert sum(held) == 6 and max(held) - min(held) <= 1


def test_given_back(queue: Queue) -> None:
    """Q30: a released item goes to another subscriber that can take it, sent by the next frontend if need be."""
    queue.publish("a")
    queue.subscribe(LEASE, 5, "pulled")
    queue.subscribe(W1, 5)
    queue.frontend = ""
    answer = queue.unlock(LEASE, "a")
    assert answer.words == ["ok"] and answer.due == queue.now and items(queue, LEASE) == []
    queue.frontend = "f1"
    assert queue.expire().given == [(W1, "a")]


def test_alone(queue: Queue) -> None:
    """R2: where no frontend lives, nobody waits for subscribers that would have to be sent their items."""
    for number in range(70):
        queue.subscribe(f"w{number}@x/1", 1)
    queue.subscribe(LEASE, 2, "pulled")
    queue.frontend = "-"
    answer = queue.publish("a", "b", "c")
    assert answer.deliveries == [] and filled(answer) == [LEASE] and answer.due == queue.now + 5_000
    assert items(queue, LEASE) == ["a", "b"]
    assert queue.retract(LEASE, "a").words == ["ok"]
    assert items(queue, LEASE) == ["b", "c"]


@pytest.mark.parametrize("frontend", ["f1", "", "-"])
def test_bounded(queue: Queue, frontend: str) -> None:
    """Guarantee 3, X7: the credit holds, and no script hands out more than so many, whoever runs it."""
    queue.subscribe(LEASE, 260, "pulled")
    queue.frontend = frontend
    for first in range(0, 300, 100):
        queue.publish(*(f"i{number}" for number in range(first, first + 100)))
    assert queue.expire().more == 0
    assert queue.stats()["in_flight"] == 260
    queue.unsubscribe(LEASE, release="1")
    queue.subscribe(OTHER, 260, "pulled")
    assert (queue.stats()["in_flight"], queue.expire().more) == (200, 0)
    assert queue.stats()["in_flight"] == 260
    # Its locks end like all others.
    assert len(queue.fetch(OTHER, limit=260)[2]) == 260
    queue.now += 60_001
    assert len(queue.expire().notices) >= 200


def test_unfetched(unopened: Queue) -> None:
    """A6: an item that was reserved and never fetched goes to others as if it had not been: no try, no attempt, no record."""
    unopened.open(max_deliveries=1, lock_ms=60_000)
    unopened.subscribe(LEASE, 5, "pulled")
    unopened.publish(*"abcde")
    assert unopened.stats()["in_flight"] == 5
    # A subscriber that does not fetch does not have it for a whole lock time.
    unopened.now += 5_000
    answer = unopened.expire()
    assert (answer.handovers, answer.notices, unopened.journal()) == ([], [], [])
    # It gets nothing until it fetches: the released items are for others.
    assert unopened.stats()["in_flight"] == 0
    answer = unopened.subscribe(W1, 9)
    assert [(each.jid, each.item, each.attempt) for each in answer.deliveries] == [(W1, each, 1) for each in "abcde"]
    assert unopened.retract(W1, "a").words == ["ok"] and "history" not in unopened.kept()


def test_lock_begins_with_fetch(unopened: Queue) -> None:
    """A6: a lock's time begins with the first fetch, and from then on its expiry is a try."""
    unopened.open(max_deliveries=2, lock_ms=60_000)
    unopened.subscribe(LEASE, 1, "pulled")
    unopened.publish("a", "b")
    unopened.now += 4_999
    # A caller that only looks does not get it.
    assert [row[3] for row in unopened.fetch(LEASE, comes="")[2]] == [T0 + 5_000]
    given = unopened.now
    first = unopened.run("pull_items", unopened.fetching(LEASE))
    assert [row[3] for row in first.rows[0][2]] == [given + 60_000] and first.notices == [["fetched", 1, [4_999]]]
    unopened.now += 30_000
    assert [row[3] for row in unopened.fetch(LEASE)[2]] == [given + 60_000]
    assert unopened.expire().notices == []
    unopened.now = given + 60_000
    assert [notice[2] for notice in unopened.expire().notices if notice[0] == "unlocked"] == ["a"]
    (record,) = unopened.journal()
    assert (record["type"], record["delivered"], record["attempt"]) == ("expired", given, 1)
    assert [row[2] for row in unopened.fetch(LEASE)[2]] == [2]


def test_comes_again(unopened: Queue) -> None:
    """A6: a subscriber that let items expire is in turn again as soon as it fetches, and not by any other command."""
    unopened.open(lock_ms=1_000)
    unopened.subscribe(LEASE, 3, "pulled")
    unopened.publish("a", "b")
    unopened.fetch(LEASE)
    unopened.publish("c", "d")
    unopened.renew(LEASE, "a", lock_ms=90_000)
    unopened.renew(LEASE, "b", lock_ms=90_000)
    unopened.now += 1_000
    assert unopened.expire().more == 0
    unopened.retract(LEASE, "a")
    unopened.expire()
    assert [row[0] for row in unopened.locks(LEASE)] == ["b"]
    # With nothing new to see, it does not count as a fetch.
    assert unopened.run("pull_items", unopened.fetching(LEASE, after=2**53)).more == 0
    assert unopened.stats()["credit_free"] == 0
    assert unopened.run("pull_items", unopened.fetching(LEASE)).more == 1
    assert unopened.run("pull_items", unopened.fetching(LEASE)).more == 0
    unopened.expire()
    assert items(unopened, LEASE) == ["b", "c", "d"]


def test_nothing_new_writes_nothing(queue: Queue) -> None:
    """A6, B: a look that finds nothing new changes nothing."""
    queue.subscribe(LEASE, 5, "pulled")
    queue.publish("a")
    queue.fetch(LEASE)
    before = {name: queue.client.dump(queue.key(name)) for name in queue.kept()}
    queue.now += 1_000
    queue.fetch(LEASE)
    assert {name: queue.client.dump(queue.key(name)) for name in queue.kept()} == before


def test_dead_letter_counts_what_was_given(unopened: Queue) -> None:
    """A6: an item that is released, or made a dead letter, before it was fetched keeps its number of attempts."""
    unopened.open(max_deliveries=1)
    unopened.subscribe(LEASE, 2, "pulled")
    unopened.publish("a", "b")
    assert unopened.unlock(LEASE, "a").handovers == []
    answer = unopened.unsubscribe(LEASE, release="1")
    assert answer.handovers == [] and unopened.journal() == []
    unopened.subscribe(LEASE, 2, "pulled")
    (letter,) = unopened.letters(unopened.unlock(LEASE, "b", dead_letter="1"))
    assert letter.attempts == 0
