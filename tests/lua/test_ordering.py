"""lua/lib/order/group_order.lua: of a group one item is in flight at a time, in the order of the log (E14, stanzaq#ordered)."""

import pytest

from tests.lua.dependencies import note, wait
from tests.lua.driver import Queue

W1, W2 = "w1@x/a", "w2@x/b"


@pytest.fixture
def ordered(unopened: Queue) -> Queue:
    """Return an open partition that keeps order within groups."""
    unopened.open(ordered="1")
    return unopened


def publish(queue: Queue, *pairs: tuple[str, str]) -> list[tuple[str, str]]:
    """Publish items with their group keys; return what is handed out."""
    plain = {"by": "alice@x", "once": "", "hints": "", "refused": ""}
    rows = [{"item": item, "key": key, "body": item, **plain} for item, key in pairs]
    return queue.run("publish", *rows).given


def clean(queue: Queue) -> None:
    """Check that nothing is left of any group."""
    assert not queue.kept() & {"group_heads", "group_of", "group_blocked"}


def test_one_of_a_group_at_a_time(ordered: Queue) -> None:
    """The next of a group follows when its head is acknowledged; other groups and items without one are not blocked."""
    publish(ordered, ("a1", "a"), ("a2", "a"), ("b1", "b"), ("free", ""), ("a3", "a"))
    assert ordered.subscribe(W1, 10).given == [(W1, "a1"), (W1, "b1"), (W1, "free")]
    assert ordered.stats()["waiting"] == 2 and ordered.stats()["eligible"] == 0
    assert ordered.retract(W1, "b1").given == []
    assert ordered.retract(W1, "a1").given == [(W1, "a2")]
    assert publish(ordered, ("a4", "a")) == []
    assert ordered.retract(W1, "a2").given == [(W1, "a3")]
    assert ordered.retract(W1, "a3").given == [(W1, "a4")]
    ordered.retract(W1, "a4")
    ordered.retract(W1, "free")
    clean(ordered)


@pytest.mark.parametrize("way", ["released", "expired", "delayed"])
def test_who_comes_back_stays_ahead(ordered: Queue, way: str) -> None:
    """An item that comes back goes before later ones of its group, whoever gets it, and also while it is delayed."""
    publish(ordered, ("a1", "a"), ("a2", "a"))
    ordered.subscribe(W1, 2)
    ordered.subscribe(W2, 2)
    if way == "expired":
        ordered.now += 60_000
        assert ordered.expire().given == [(W2, "a1")]
        return
    delay = 5_000 if way == "delayed" else 0
    answer = ordered.unlock(W1, "a1", delay_ms=delay)
    assert answer.given == ([] if delay else [(W2, "a1")])
    ordered.now += delay
    if delay:
        assert [item for _, item in ordered.expire().given] == ["a1"]


def test_a_dead_letter_lets_the_next_pass(ordered: Queue) -> None:
    """Q32: a dead letter does not block its group."""
    publish(ordered, ("a1", "a"), ("a2", "a"))
    ordered.subscribe(W1, 1)
    answer = ordered.unlock(W1, "a1", dead_letter="1")
    assert answer.given == [(W1, "a2")] and ordered.letters(answer)[0].key == "a"
    ordered.retract(W1, "a2")
    clean(ordered)


def test_deleted_by_its_publisher(ordered: Queue) -> None:
    """A blocked item may be deleted, and so may a head that came back: the order of the rest stays."""
    publish(ordered, ("a1", "a"), ("a2", "a"), ("a3", "a"))
    ordered.subscribe(W1, 1)
    assert ordered.retract("alice@x/1", "a2").words == ["ok"]
    ordered.unlock(W1, "a1", delay_ms=60_000)
    assert ordered.retract("alice@x/1", "a1").given == [(W1, "a3")]
    ordered.retract(W1, "a3")
    clean(ordered)


def test_replaced(ordered: Queue) -> None:
    """X1: a blocked item that is published again keeps its place, though its new version names another group."""
    publish(ordered, ("a1", "a"), ("a2", "a"))
    ordered.subscribe(W1, 5)
    assert publish(ordered, ("a2", "b"), ("a1", "a")) == []
    (delivery,) = ordered.retract(W1, "a1").deliveries
    assert delivery.item == "a2" and delivery.key == "b"
    assert ordered.retract(W1, "a2").given == [(W1, "a1")]
    ordered.retract(W1, "a1")
    clean(ordered)


def test_purge(ordered: Queue) -> None:
    """P25: blocked items are purged with the rest; an item in flight stays, and nothing is blocked by it any more."""
    publish(ordered, *((f"a{number}", "a") for number in range(200)), *((f"b{number}", "b") for number in range(200)))
    ordered.subscribe(W1, 1)
    dropped = 0
    while True:
        answer = ordered.run("purge")
        dropped += answer.rows[0]
        if not answer.more:
            break
    assert dropped == 399 and ordered.stats()["waiting"] == 0
    ordered.retract(W1, "a0")
    clean(ordered)


def test_bounded(ordered: Queue) -> None:
    """Guarantee 6: one script skips some hundreds of a group, and says that there are more."""
    for first in range(0, 800, 200):
        publish(ordered, *((f"a{number}", "a") for number in range(first, first + 200)))
    publish(ordered, ("b", "b"))
    answer = ordered.subscribe(W1, 2)
    given = list(answer.given)
    calls = 0
    while answer.more:
        answer = ordered.expire()
        given += answer.given
        calls += 1
    assert given == [(W1, "a0"), (W1, "b")] and calls == 1


def test_order_of_the_log(ordered: Queue) -> None:
    """E14: within a group items go in the order of the log, across every length of position and with any key."""
    key = "zero\u00ff and {braces}"
    for number in range(12):
        ordered.now += 7
        publish(ordered, (f"a{number}", key), (f"b{number}", key))
    given = list(ordered.subscribe(W1, 1).given)
    while len(given) < 24:
        given += ordered.retract(W1, given[-1][1]).given
    assert [item for _, item in given] == [f"{letter}{number}" for number in range(12) for letter in "ab"]


def test_not_asked_for(queue: Queue) -> None:
    """A node without the option keeps no order, and pays nothing."""
    publish(queue, ("a1", "a"), ("a2", "a"))
    assert queue.subscribe(W1, 2).given == [(W1, "a1"), (W1, "a2")]
    clean(queue)


def test_a_parked_version_may_be_blocked(ordered: Queue) -> None:
    """X1: an item that was parked behind a lock may be blocked by another of its group."""
    publish(ordered, ("a", "g"), ("b", "g"))
    ordered.subscribe(W1, 2)
    publish(ordered, ("a", "g"))
    assert ordered.retract(W1, "a").given == [(W1, "b")]
    assert ordered.browse()["a"] == "waiting"
    assert ordered.retract("alice@x/1", "a").words == ["ok"]
    ordered.retract(W1, "b")
    clean(ordered)


def test_a_head_that_expires_as_it_is_taken(ordered: Queue) -> None:
    """Nothing lost: an item that was taken together with its head follows it, when the head expires at that moment."""
    position = wait(ordered, "first", "parent", key="k")
    ordered.publish("head", key="k", hints="0 4 10000")
    assert ordered.subscribe(W1, 5).given == [(W1, "head")]
    ordered.unsubscribe(W1, release="1")
    # More than one call may expire.
    ordered.publish(*(f"filler {number}" for number in range(200)), hints="0 4 9000")
    note(ordered, position, 1, "acknowledged")
    ordered.now += 10_000
    assert ordered.subscribe(W1, 5).given + ordered.expire().given == [(W1, "first")]
    ordered.retract(W1, "first")
    clean(ordered)


def test_switched_off(ordered: Queue) -> None:
    """What waits behind the heads of many groups goes out with the sweeps that follow, and nothing is left of the groups."""
    pairs = [(f"{key}{number}", f"group {key}") for key in range(60) for number in range(9)]
    publish(ordered, *pairs[:200])
    publish(ordered, *pairs[200:400])
    publish(ordered, *pairs[400:])
    given = list(ordered.subscribe(W1, 1_000).given)
    assert len(given) == 60
    ordered.open(revision=2, ordered="0")
    answer = ordered.expire()
    given += answer.given
    while answer.more:
        answer = ordered.expire()
        given += answer.given
    assert sorted(item for _, item in given) == sorted(item for item, _ in pairs)
    for _, item in given:
        ordered.retract(W1, item)
    clean(ordered)
    assert b"unordered" not in ordered.client.hgetall(ordered.key("meta"))


def test_switched_on_and_off_again(ordered: Queue) -> None:
    """Whatever was done of the change, no item waits for ever: the first of each group leads it again."""
    publish(ordered, *((f"a{number}", "a") for number in range(3)))
    ordered.subscribe(W1, 9)
    ordered.open(revision=2, ordered="0", by_key="1 0 0 0")
    # Locks from before a bound do not count.
    assert ordered.expire().given == [(W1, "a1")]
    ordered.open(revision=3, ordered="1", by_key="1 0 0 0")
    assert ordered.expire().given + ordered.retract(W1, "a0").given == []
    assert ordered.retract(W1, "a1").given == [(W1, "a2")]
    ordered.retract(W1, "a2")
    clean(ordered)


def test_ordered_in_place_of_a_bound(unopened: Queue) -> None:
    """What a bound of its key blocked goes on in order when the node is ordered now."""
    unopened.open(by_key="1 0 0 0")
    publish(unopened, *((f"a{number}", "a") for number in range(3)))
    assert unopened.subscribe(W1, 9).given == [(W1, "a0")]
    unopened.open(revision=2, ordered="1")
    given = unopened.expire().given
    for number in range(3):
        given += unopened.retract(W1, f"a{number}").given
    assert given == [(W1, "a1"), (W1, "a2")]
    clean(unopened)


def test_a_version_that_waited_for_its_lock(ordered: Queue) -> None:
    """A later version of a locked item follows in the order of its publish, before what was published after it."""
    publish(ordered, ("a1", "a"))
    ordered.subscribe(W1, 10)
    assert publish(ordered, ("a1", "a"), ("a2", "a")) == []
    assert ordered.retract(W1, "a1").given == [(W1, "a1")]
    assert publish(ordered, ("a3", "a"), ("a1", "a")) == []
    assert ordered.unlock(W1, "a1").given == [(W1, "a2")]
    assert ordered.retract(W1, "a2").given == [(W1, "a3")]
    assert ordered.retract(W1, "a3").given == [(W1, "a1")]
    ordered.retract(W1, "a1")
    clean(ordered)


def test_a_version_of_another_group(ordered: Queue) -> None:
    """A later version with another key leaves its group, and stands in the new one as any item that comes back."""
    publish(ordered, ("a1", "a"))
    ordered.subscribe(W1, 10)
    publish(ordered, ("a1", "b"), ("a2", "a"))
    assert ordered.retract(W1, "a1").given == [(W1, "a1"), (W1, "a2")]
    ordered.retract(W1, "a1")
    ordered.retract(W1, "a2")
    clean(ordered)
