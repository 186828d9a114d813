"""commit: readers commit their positions."""

import pytest

from tests.lua.driver import T0, Queue
from tests.lua.worded import W1, W2


@pytest.fixture
def log(unopened: Queue) -> Queue:
    """Return a log with a reader of credit 2 that has been sent two of four entries."""
    unopened.open(queueing="0", keep_items=100)
    unopened.follow(W1, 2)
    unopened.publish("a", "b", "c", "d")
    return unopened


def test_gives_credit_back(log: Queue) -> None:
    """Committed entries free their credit, and as many more come."""
    assert log.commit(W1, f"{T0}-0").given == [(W1, "c")]
    assert log.commit(W1, f"{T0}-2").given == [(W1, "d")]
    assert log.commit(W1, f"{T0}-3").given == []
    assert not log.client.exists(log.key("uncommitted"))


def test_is_cumulative(log: Queue) -> None:
    """One commit covers all entries up to it; an earlier or a repeated one changes nothing."""
    assert log.commit(W1, f"{T0}-1").given == [(W1, "c"), (W1, "d")]
    for earlier in (f"{T0}-0", f"{T0}-1", "0-0"):
        answer = log.commit(W1, earlier)
        assert (answer.words, answer.given) == (["ok"], [])


def test_of_what_was_not_sent(log: Queue) -> None:
    """A position that was not delivered cannot be committed: refused, and nothing changes."""
    before = log.client.hgetall(log.key("readers"))
    answer = log.commit(W1, f"{T0}-2")
    assert (answer.words, answer.given) == (["offset-not-found"], [])
    assert log.client.hgetall(log.key("readers")) == before


def test_of_nobody(log: Queue) -> None:
    """A JID without a stream here has nothing to commit, worker or stranger."""
    log.subscribe("v@x/1", 1)
    assert log.commit(W2, f"{T0}-0").words == ["not-subscribed"]
    assert log.commit("v@x/1", f"{T0}-0").words == ["not-subscribed"]


def test_a_bare_subscription(unopened: Queue) -> None:
    """Any resource of a bare subscription commits for it."""
    unopened.open(queueing="0", keep_items=9)
    unopened.follow("v@x", 1)
    unopened.publish("a", "b")
    assert unopened.commit("v@x/desk", f"{T0}-0").given == [("v@x", "b")]


def test_a_bounce_begins_anew(log: Queue) -> None:
    """Q18, P30: after a bounce all entries since the last commit come again; a commit resets the count of bounces."""
    log.commit(W1, f"{T0}-0")
    answer = log.commit(W1, f"{T0}-1")
    delivery = answer.deliveries[0]
    again = log.bounce(W1, delivery)
    assert again.words == ["ok"]
    assert again.given == [(W1, "c"), (W1, "d")]
    log.commit(W1, f"{T0}-2")
    assert log.client.hvals(log.key("subscribers")) == [b"2 0 stream w1@x/a"]


def test_bounces_end_the_stream(log: Queue) -> None:
    """P30: the third in a row ends the stream, a permanent error at once; a stranger's counts for nothing."""
    delivery = log.commit(W1, f"{T0}-0").deliveries[0]
    assert log.bounce(W2, delivery).words == ["lock-lost"]
    assert log.bounce(W1, delivery).given == [(W1, "b"), (W1, "c")]
    assert log.bounce(W1, delivery).given == [(W1, "b"), (W1, "c")]
    assert log.bounce(W1, delivery).given == []
    assert not {"readers", "readers_ready", "uncommitted", "subscribers"} & log.kept()
    given = log.follow(W1, 2, "@earliest").deliveries
    assert log.bounce(W1, given[0], gone="1").given == []
    assert "readers" not in log.kept()


def taken_over(log: Queue, previous: str, frontend: str, age_ms: int = 60_000) -> list[str]:
    """Take over from a frontend what it was handed lately; return the items."""
    log.frontend, scan, upto, found = frontend, "0", "", []
    while True:
        answer = log.run("take_over", previous=previous, age_ms=age_ms, upto=upto, scan=scan)
        found += [one.item for one in answer.deliveries]
        scan, upto = answer.rows
        if scan == "0":
            return found


def test_its_frontend_dies(log: Queue) -> None:
    """X8: entries that a dead frontend may not have sent come again, from the committed position on; once."""
    log.commit(W1, f"{T0}-0")
    assert taken_over(log, "f1", "f2") == ["b", "c"]
    assert taken_over(log, "f1", "f3") == []
    assert taken_over(log, "f2", "f3") == ["b", "c"]


def test_what_is_sent_does_not_come_again(log: Queue) -> None:
    """X8: of a frontend that has sent all nothing is taken over; one that has sent some repeats from the commit on."""
    log.now += 5_000
    assert taken_over(log, "f1", "f2", age_ms=4_999) == []
    log.frontend = "f1"
    log.commit(W1, f"{T0}-0")
    assert taken_over(log, "f1", "f2") == ["b", "c"]


def test_an_earlier_frontend_dies(log: Queue) -> None:
    """X8: a later part of another frontend does not hide an earlier unsent one."""
    log.frontend = "f2"
    log.commit(W1, f"{T0}-0")
    assert taken_over(log, "f1", "f3") == ["b", "c"]


def test_much_is_taken_over_in_parts(unopened: Queue) -> None:
    """X7, X8: a takeover hands out 200 entries at most, and the sweep that it requests continues at once."""
    unopened.open(queueing="0", keep_items=1000)
    unopened.follow(W1, 1000)
    for _ in range(3):
        unopened.publish(*[""] * 100)
    unopened.frontend = "f2"
    scan = unopened.run("take_over", previous="f1").rows[0]
    answer = unopened.run("take_over", previous="f1", scan=scan)
    assert (len(answer.deliveries), answer.due) == (200, unopened.now)
    assert len(unopened.expire().deliveries) == 100


@pytest.mark.parametrize("previous", ["f1", "f2"])
def test_served_while_its_entries_are_searched(unopened: Queue, previous: str) -> None:
    """X8: an entry that is handed out between two pages of a search does not hide an earlier one that was lost."""
    unopened.open(queueing="0", keep_items=100)
    unopened.follow(W1, 9)
    seen = unopened.publish("a", frontend=previous)
    unopened.publish("lost", frontend=previous)
    about = {"previous": previous, "after": seen.deliveries[-1].sequence}
    scan, upto = unopened.run("take_over", frontend="f1", scan="0", upto="", **about).rows
    assert scan == "r0"
    assert unopened.publish("next", frontend=previous).given == [(W1, "next")]
    again = unopened.run("take_over", frontend="f1", scan=scan, upto=upto, **about)
    assert "lost" in [item for _jid, item in again.given]
    # What it has handed out itself is not found once more.
    assert unopened.run("take_over", frontend="f1", scan=scan, upto=upto, **about).given == []
