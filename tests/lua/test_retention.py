"""Finished items that stay in the log, and how they are trimmed (E22, EX7)."""

import pytest

from tests.lua.dependencies import asked, note, record, wait
from tests.lua.driver import T0, Queue
from tests.lua.worded import W1, W2


@pytest.fixture
def keeping(unopened: Queue) -> Queue:
    """Return a queue that keeps three entries, with a worker of credit 1."""
    unopened.open(keep_items=3)
    unopened.subscribe(W1, 1)
    return unopened


def work(queue: Queue, *items: str) -> None:
    """Publish and acknowledge."""
    for item in items:
        queue.publish(item)
        assert queue.retract(W1, item).words == ["ok"]


def test_nothing_is_kept_unless_asked_for(queue: Queue) -> None:
    """Without retention an acknowledgement leaves nothing behind."""
    queue.subscribe(W1, 1)
    work(queue, "a")
    assert (queue.read(), queue.retained()) == ([], (0, 0))


def test_keeps_the_newest(keeping: Queue) -> None:
    """The oldest are removed when there are more than allowed, and their bytes are counted."""
    work(keeping, *"abcde")
    assert (keeping.read(), keeping.retained()) == (list("cde"), (3, 18))


def test_by_bytes(unopened: Queue) -> None:
    """So many bytes of payload are kept, whole entries only."""
    unopened.open(keep_bytes=20)
    unopened.subscribe(W1, 1)
    work(unopened, *"abcde")
    assert (unopened.read(), unopened.retained()) == (list("cde"), (3, 18))


def test_by_age(unopened: Queue) -> None:
    """Entries older than so many seconds are removed by the due sweep, which does not come at once for each."""
    unopened.open(keep_ms=32_000)
    unopened.subscribe(W1, 1)
    work(unopened, "a")
    unopened.now += 1_000
    unopened.publish("b")
    answer = unopened.retract(W1, "b")
    assert answer.due == T0 + 32_000
    unopened.now = T0 + 32_001
    answer = unopened.expire()
    assert (unopened.read(), unopened.retained()) == (["b"], (1, 9))
    assert answer.due == unopened.now + 2_000
    unopened.now += 60_000
    assert unopened.expire().due == 0
    assert (unopened.read(), unopened.retained()) == ([], (0, 0))


@pytest.mark.parametrize("keep_items", [1, 100])
def test_what_waits_for_others_is_not_finished(unopened: Queue, keep_items: int) -> None:
    """An item that waits for others stays when later ones are finished and trimmed; it can be found, and goes out."""
    unopened.open(keep_items=keep_items)
    unopened.subscribe(W1, 1)
    position = wait(unopened, "c", "x")
    note(unopened, position, 1, "awaited")
    work(unopened, *"defg")
    assert unopened.browse() == {"c": "dependent"}
    assert asked(unopened, "c", "life/0/9-9/0/jobs", register=False)[0] == "awaited"
    assert note(unopened, position, 1, "acknowledged").given == [(W1, "c")]


def test_what_waits_is_not_trimmed(unopened: Queue) -> None:
    """A waiting item stays however old it is and does not count; when it is finished it is older than all kept ones."""
    unopened.open(keep_items=1, max_deliveries=0)
    unopened.publish("locked", "delayed", "back", "fresh")
    unopened.subscribe(W1, 3)
    unopened.unlock(W1, "delayed", delay_ms=50_000)
    unopened.subscribe(W1, 1)
    unopened.unlock(W1, "back")
    unopened.subscribe(W2, 9)
    unopened.unsubscribe(W2, release="1")
    unopened.subscribe(W1, 9)
    work(unopened, *"abcd")
    assert unopened.read() == ["locked", "delayed", "back", "fresh", "d"]
    assert unopened.retained() == (1, 6)
    for item in ("locked", "back", "fresh"):
        assert unopened.retract(W1, item).words == ["ok"]
    assert unopened.read() == ["delayed", "d"]
    unopened.now += 50_000
    assert unopened.expire().given == [(W1, "delayed")]
    unopened.retract(W1, "delayed")
    assert unopened.read() == ["d"]
    assert unopened.retained() == (1, 6)


def test_done_is_no_item_any_more(keeping: Queue) -> None:
    """A kept entry does not wait: it is not to be retracted, unlocked, shown or counted, and its id is free."""
    keeping.publish("a", "")
    keeping.retract(W1, "a")
    made = f"0-{T0}-1"
    keeping.retract(W1, made)
    for item in ("a", made):
        for how in (keeping.retract, keeping.unlock, keeping.renew):
            assert how("alice@x/1", item).words == ["item-not-found"]
            assert how("alice@x/1", item, owner="1").words == ["item-not-found"]
    assert keeping.browse() == {}
    assert keeping.browse("a", made) == {}
    assert (keeping.stats()["waiting"], keeping.stats()["oldest_ms"]) == (0, 0)
    assert keeping.publish("a", made).given == [(W1, "a")]
    assert keeping.browse() == {"a": "locked", made: "waiting"}
    assert keeping.read() == ["a", made, "a", made]


def test_blocked_is_not_done(unopened: Queue) -> None:
    """An item that is blocked in an ordered group is before the cursor and not finished."""
    unopened.open(keep_items=1, ordered="1")
    unopened.subscribe(W1, 9)
    unopened.publish("a", "b", "c", key="g")
    work(unopened, "x", "y", "z")
    assert unopened.browse() == {"a": "locked", "b": "waiting", "c": "waiting"}
    assert unopened.browse("b") == {"b": "waiting"}
    assert unopened.read() == ["a", "b", "c", "z"]
    assert unopened.retract(W1, "a").given == [(W1, "b")]
    assert (unopened.read(), unopened.retained()[0]) == (["b", "c", "z"], 1)


def test_takes_no_room(unopened: Queue) -> None:
    """Kept entries do not fill the node (P17)."""
    unopened.open(keep_items=10)
    unopened.subscribe(W1, 1)
    work(unopened, *"abcd")
    assert unopened.publish("e", "f", "g", max_items=2).words == ["ok", "ok", "node-full"]


def test_browse_among_many(unopened: Queue) -> None:
    """Items are shown in order even with more kept entries than a page before and between them."""
    unopened.open(keep_items=100, max_deliveries=0)
    unopened.subscribe(W1, 1)
    unopened.publish("locked")
    unopened.subscribe(W2, 9)
    unopened.publish("back")
    unopened.unlock(W2, "back", delay_ms=9_000)
    for number in range(20):
        unopened.publish(f"i{number}")
        unopened.retract(W2, f"i{number}")
    unopened.unsubscribe(W2)
    unopened.publish("x", "y")
    assert unopened.browse() == {"locked": "locked", "back": "delayed", "x": "waiting", "y": "waiting"}
    assert unopened.browse(limit=3) == {"locked": "locked", "back": "delayed", "x": "waiting"}


def test_versions(unopened: Queue) -> None:
    """X1: both versions of a republished item are kept when it is finished.

    One that a parked one supersedes is not acknowledged.
    """
    unopened.open(keep_items=10)
    unopened.publish("a", body="one")
    unopened.publish("a", body="two!")
    unopened.subscribe(W1, 1)
    unopened.publish("a", body="three")
    assert unopened.retract(W1, "a").given == [(W1, "a")]
    assert unopened.retained() == (2, 7)
    unopened.publish("a", body="four")
    unopened.unlock(W1, "a")
    assert unopened.retained() == (2, 7)
    unopened.retract(W1, "a")
    assert [row[4] for row in unopened.log_page()[5]] == ["one", "two!", "four"]
    assert unopened.retained() == (3, 11)
    unopened.open(revision=2, keep_items=1)
    unopened.expire()
    assert unopened.retained() == (1, 4)


def test_deleting_is_for_good(keeping: Queue) -> None:
    """An owner's or publisher's retract, a purge and an arrived dead letter leave nothing."""
    keeping.publish("a", "b", "c")
    keeping.retract("alice@x/1", "b")
    keeping.run("purge")
    assert keeping.read() == ["a"]
    keeping.end(*keeping.told(keeping.unlock(W1, "a", dead_letter="1"), "item"))
    assert (keeping.read(), keeping.retained()) == ([], (0, 0))
    work(keeping, "d")
    keeping.run("purge")
    assert keeping.read() == ["d"]


def test_less_and_nothing(keeping: Queue) -> None:
    """A lower limit takes effect with the next script, and none at all removes all kept entries."""
    work(keeping, *"abc")
    keeping.open(revision=2, keep_items=1)
    keeping.expire()
    assert keeping.read() == ["c"]
    keeping.open(revision=3)
    keeping.expire()
    assert (keeping.read(), keeping.retained()) == ([], (0, 0))
    work(keeping, "d")
    assert keeping.read() == []


def test_bounded(unopened: Queue) -> None:
    """A script removes 200 at most and says that there are more."""
    unopened.open(queueing="0", keep_items=1000)
    for _ in range(5):
        unopened.publish(*[""] * 100)
    unopened.open(revision=2, queueing="0", keep_items=10)
    assert unopened.expire().more == 1
    assert unopened.retained()[0] == 300
    assert unopened.expire().more == 1
    assert unopened.expire().more == 0
    assert unopened.retained()[0] == 10


class TestLog:
    """A node without queueing."""

    @pytest.fixture
    def log(self, unopened: Queue) -> Queue:
        """Return a log of three entries."""
        unopened.open(queueing="0", keep_items=3)
        return unopened

    def test_never_waits(self, log: Queue) -> None:
        """A worker gets no entries, and nothing waits."""
        log.publish("a", "b")
        assert log.subscribe(W1, 5).given == []
        assert log.publish("c").given == []
        assert (log.stats()["waiting"], log.retained()) == (0, (3, 18))

    def test_the_oldest_goes(self, log: Queue) -> None:
        """XEP-0060 §7.1.2: it is never full, and removed ids leave nothing."""
        assert log.publish(*"abcde", max_items=3).words == ["ok"] * 5
        assert log.read() == list("cde")
        assert log.client.hlen(log.key("index")) == 3

    def test_an_id_again(self, log: Queue) -> None:
        """Each publish is an event; the id names the latest, also when the first is gone."""
        log.publish("a", "b")
        log.publish("a")
        assert log.read() == ["a", "b", "a"]
        log.publish("c")
        assert log.read() == ["b", "a", "c"]
        assert log.retract("alice@x/1", "a").words == ["ok"]
        assert log.read() == ["b", "c"]

    def test_retract(self, log: Queue) -> None:
        """Its publisher and owners delete an entry; nobody else, and it cannot be unlocked or renewed."""
        log.publish("a", "")
        assert log.retract("mallory@x/1", "a").words == ["forbidden"]
        assert log.unlock("alice@x/1", "a").words == ["lock-lost"]
        assert log.renew("alice@x/1", "a").words == ["lock-lost"]
        assert log.retract("alice@x/1", "a").words == ["ok"]
        assert log.retract("owner@x/1", f"0-{T0}-1", owner="1").words == ["ok"]
        assert (log.read(), log.retained()) == ([], (0, 0))
        assert "index" not in log.kept()

    def test_browse(self, log: Queue) -> None:
        """XEP-0060 §6.5: its entries are its items."""
        log.publish("a", "b")
        assert log.browse() == {"a": "kept", "b": "kept"}
        assert log.browse("b") == {"b": "kept"}

    def test_purge(self, log: Queue) -> None:
        """A purge empties it."""
        log.publish("a", "b")
        assert log.run("purge").rows == [2]
        assert (log.read(), log.retained(), "index" in log.kept()) == ([], (0, 0), False)

    def test_ignores_repeats(self, log: Queue) -> None:
        """X1: with dedupe `ignore` a repeat within the window is none."""
        assert log.publish("a", "a", dedupe="ignore").words == ["ok", "duplicate"]


def test_versions_are_passed_over_a_part_at_a_time(unopened: Queue) -> None:
    """X7: versions of finished items may be any number in the log; no script skips all of them."""
    unopened.open(keep_items=5000)
    names = [f"i{number}" for number in range(700)]
    for _version in range(2):
        unopened.publish(*names)
    unopened.subscribe(W1, 700)
    while unopened.expire().more:
        pass
    answer = unopened.run("retract", *(unopened.asked(W1, name) for name in names))
    assert (answer.given, answer.more) == ([], 1)
    assert unopened.expire().more == 0
    assert unopened.publish("last").given == [(W1, "last")]


def test_one_that_waited_and_is_done_before_the_cursor_comes(unopened: Queue) -> None:
    """An item that waited for others goes out before the backlog: acknowledged and kept, it waits no more."""
    unopened.open(keep_items=9)
    unopened.publish("a", "b")
    made = unopened.publish("", hints=f"0 4 0 \0{record('p')}").rows[0][1]
    position = made.removeprefix("0-")
    note(unopened, position, 1, "acknowledged")
    assert unopened.subscribe(W1, 1).given == [(W1, made)]
    unopened.unsubscribe(W1)
    assert unopened.retract(W1, made).words == ["ok"]
    assert unopened.browse() == {"a": "waiting", "b": "waiting"}
    assert [row[1] for row in unopened.run("inspect_items").rows[1]] == ["a", "b"]
    row = {"position": position, "item": made, "to": "other"}
    assert unopened.run("move_items", row).words == ["item-not-found"]
    assert asked(unopened, made, "later") == ["unknown"]
