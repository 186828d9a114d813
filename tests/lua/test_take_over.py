"""take_over: deliveries that a frontend did not send."""

from broker.redis_core.maintenance.sweeper import CLOCK_SECONDS, LATE_SECONDS
from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1, W2


def resend(
    queue: Queue, frontend: str, previous: str, after: int | str = "", age_ms: int = 60_000
) -> list[tuple[str, str, int]]:
    """Run a whole search; return subscriber, item and token."""
    found, scan, upto, of = [], "0", "", {"frontend": frontend, "previous": previous, "after": after, "age_ms": age_ms}
    while True:
        answer = queue.run("take_over", upto=upto, scan=scan, **of)
        found += [(d.jid, d.item, d.token) for d in answer.deliveries]
        scan, upto = answer.rows
        if scan == "0":
            return sorted(found, key=lambda one: one[2])


def given(answer: Answer) -> list[tuple[str, str, int]]:
    """Return the deliveries of an answer."""
    return [(d.jid, d.item, d.token) for d in answer.deliveries]


def test_unsent_only(queue: Queue) -> None:
    """X8, guarantee 4: what a dead frontend was handed lately is sent again, with the same token, by one other."""
    queue.subscribe(W1, 2)
    queue.subscribe(W2, 2)
    queue.publish("a", "b")
    queue.now += 5_000
    unsent = queue.publish("c", "d")
    queue.now += 3_000
    assert resend(queue, "f2", "f1", age_ms=7_999) == given(unsent)
    assert resend(queue, "f3", "f1", age_ms=7_999) == []
    assert resend(queue, "f2", "f1", age_ms=7_999) == []


def test_all_is_sent(queue: Queue) -> None:
    """Of a frontend that has stopped in order nothing is sent again: all is sent until a time to come."""
    queue.subscribe(W1, 1)
    queue.publish("a")
    assert resend(queue, "f2", "f1", age_ms=-4_000_000_000_000_000) == []


def test_a_clock_that_was_ahead(queue: Queue) -> None:
    """Guarantee 4: after a failover to a master whose clock is behind, too much is sent again rather than too little."""
    queue.subscribe(W1, 2)
    queue.publish("sent")
    queue.now -= 2_000
    queue.publish("unsent")
    queue.now += 500
    assert [item for _jid, item, _token in resend(queue, "f2", "f1", age_ms=1_000)] == ["sent", "unsent"]


def test_of_others(queue: Queue) -> None:
    """Deliveries of other frontends are not touched."""
    queue.subscribe(W1, 5)
    first = given(queue.publish("a"))
    queue.frontend = "f2"
    second = given(queue.publish("b"))
    assert resend(queue, "f3", "f1") == first
    assert resend(queue, "f3", "f2") == second


def test_its_successor_dies_too(queue: Queue) -> None:
    """What was taken over is taken over again when that frontend dies too."""
    queue.subscribe(W1, 5)
    taken = given(queue.publish("a"))
    assert resend(queue, "f2", "f1") == resend(queue, "f3", "f2") == taken


def test_acknowledged_after_takeover(queue: Queue) -> None:
    """The token stays: the receiver of the first copy may acknowledge."""
    queue.subscribe(W1, 5)
    token = queue.publish("a").token
    resend(queue, "f2", "f1")
    assert queue.retract(W1, "a", token).words == ["ok"]


def test_lost_reply(queue: Queue) -> None:
    """X8: after a lost reply a frontend finds the deliveries that it never saw, once, however often it searches."""
    queue.subscribe(W1, 9)
    seen = queue.publish("a")
    lost = queue.publish("b", "c")
    assert resend(queue, "f1", "f1", after=seen.token) == given(lost)
    after = queue.run("stats").token
    assert resend(queue, "f1", "f1", after=after) == []


def test_late(queue: Queue) -> None:
    """X8: after a frontend has searched, nothing that it sent before runs any more, however late."""
    queue.subscribe(W1, 9)
    seen = queue.publish("a")
    lost = queue.publish("b")
    assert resend(queue, "f1/1", "f1", after=seen.token) == given(lost)
    for late in ("f1", "f1/0"):
        assert queue.publish("c", frontend=late).code == "stale"
        assert queue.run("retract", queue.asked(W1, "a"), frontend=late).code == "stale"
        assert queue.run("take_over", frontend=late, previous="f2").code == "stale"
    assert given(queue.publish("d", frontend="f1/1")) == [(W1, "d", queue.run("stats").token)]
    assert given(queue.publish("e", frontend="f1/2")) == [(W1, "e", queue.run("stats").token)]
    # Other frontends have lost nothing.
    assert given(queue.publish("f", frontend="f2")) == [(W1, "f", queue.run("stats").token)]
    # Others know a session by its frontend's name.
    assert {item for _jid, item, _token in resend(queue, "f2", "f1")} == {"a", "b", "d", "e"}


def test_session_goes_with_its_frontend(queue: Queue) -> None:
    """Guarantee 6: no session of a frontend that is gone is kept."""
    resend(queue, "f1/7", "f1", after=0)
    assert queue.client.hget(queue.key("meta"), "session/f1") == b"7"
    resend(queue, "f2", "f1")
    assert queue.client.hget(queue.key("meta"), "session/f1") is None


def test_expired(queue: Queue) -> None:
    """`sweep` handles deliveries past the deadline: a worker must not begin an item that another is about to get."""
    queue.subscribe(W1, 1)
    queue.publish("a")
    queue.now += 60_000
    assert resend(queue, "f2", "f1") == []


def test_in_bounded_parts(queue: Queue) -> None:
    """X7: hundreds are found in several calls, none twice."""
    for first in range(0, 600, 200):
        queue.publish(*(f"i{n}" for n in range(first, first + 200)))
    taken = given(queue.subscribe(W1, 1000))
    while True:
        answer = queue.expire()
        taken += given(answer)
        if not answer.more:
            break
    assert len(taken) == 600
    assert resend(queue, "f2", "f1") == taken


def test_a_clock_that_is_ahead(queue: Queue) -> None:
    """Guarantee 4: after a failover to a master whose clock is two seconds ahead, what is unsent looks older."""
    queue.subscribe(W1, 1)
    unsent = given(queue.publish("unsent"))
    queue.now += 1_500 + 2_000
    assert resend(queue, "f2", "f1", age_ms=1_500 + int(1_000 * (CLOCK_SECONDS + LATE_SECONDS))) == unsent
