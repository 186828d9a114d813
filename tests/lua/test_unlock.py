"""unlock: release, with and without hints."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Queue
from tests.lua.worded import W1, W2, W3


def test_goes_to_another(queue: Queue) -> None:
    """Q29, Q30: the holder is returned and the item goes to another, though the releaser is next in turn."""
    queue.subscribe(W1, 2)
    queue.publish("a")
    queue.subscribe(W2, 2)
    assert queue.publish("b").given == [(W2, "b")]
    answer = queue.unlock(W1, "a")
    assert answer.rows == [["ok", W1]]
    assert answer.given == [(W2, "a")]
    assert answer.deliveries[0].attempt == 2


def test_comes_back_when_alone(queue: Queue) -> None:
    """Q30: the releaser gets it again when nobody else has credit, under a new token."""
    queue.subscribe(W1, 1)
    first = queue.publish("a").deliveries[0]
    second = queue.unlock(W1, "a").deliveries[0]
    assert (second.jid, second.attempt) == (W1, 2) and second.token > first.token


def test_keeps_its_place(queue: Queue) -> None:
    """Order holds inside a partition: a released item goes before later ones."""
    queue.publish("a", "b", "c")
    queue.subscribe(W1, 2)
    queue.unsubscribe(W1, release="1")
    assert [item for _, item in queue.subscribe(W2, 3).given] == ["a", "b", "c"]


def test_delay(queue: Queue) -> None:
    """Q32: a delayed item waits for its time, says when it is due, and then keeps its place."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    answer = queue.unlock(W1, "a", delay_ms=5_000)
    assert answer.given == [(W1, "b")] and answer.due == T0 + 5_000
    assert queue.browse()["a"] == "delayed"
    queue.subscribe(W2, 1)
    queue.now += 4_999
    assert queue.expire().given == []
    queue.now += 1
    assert queue.expire().given == [(W2, "a")]


def test_reason_is_journalled(queue: Queue) -> None:
    """Q32: the reason is journalled."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a", reason="disk full: /var 100 %")
    assert [(r["type"], r["reason"]) for r in queue.journal()] == [("released", "disk full: /var 100 %")]


def test_dead_letter_hint(queue: Queue) -> None:
    """Q32: the hint sends it to the dead letters at its first attempt, with reason, holder and attempts."""
    queue.publish("a", body="x")
    queue.subscribe(W1, 1)
    (letter,) = queue.letters(queue.unlock(W1, "a", reason="poison", dead_letter="1"))
    assert (letter.item, letter.body, letter.attempts, letter.jid, letter.reason) == ("a", "x", 1, W1, "poison")
    assert queue.browse() == {"a": "dying"}
    assert queue.journal()[-1]["type"] == "dead-lettered"


def test_dead_letter_hint_without_dead_letters(unopened: Queue) -> None:
    """Q32: where items are tried for ever, the hint is an ordinary release."""
    unopened.open(dead_letters="0")
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    assert unopened.unlock(W1, "a", dead_letter="1").given == [(W1, "a")]


def test_last_delivery(unopened: Queue) -> None:
    """The delivery after the most allowed is a dead letter instead; its id is free from then on."""
    unopened.open(max_deliveries=2)
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    assert unopened.unlock(W1, "a").deliveries[0].attempt == 2
    answer = unopened.unlock(W1, "a")
    assert [(letter.item, letter.attempts, letter.reason) for letter in unopened.letters(answer)] == [
        ("a", 2, "max-deliveries")
    ]
    assert answer.deliveries == [] and answer.due == unopened.now + 5_000
    assert unopened.retract(W1, "a").words == ["item-not-found"]
    assert unopened.publish("a").given == [(W1, "a")]
    assert unopened.stats()["dying"] == 1


def test_untried(unopened: Queue) -> None:
    """An untried release is no attempt: it may be repeated for ever, and the item goes to another first."""
    unopened.open(max_deliveries=2)
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    unopened.subscribe(W2, 1)
    for untried, (holder, other) in enumerate(((W1, W2), (W2, W1)) * 3, 1):
        (delivery,) = unopened.unlock(holder, "a", untried="1").deliveries
        assert (delivery.jid, delivery.attempt, delivery.untried) == (other, 1, str(untried))
        (held,) = unopened.run("receive", unopened.looking(other) | {"lease": ""}, most=9, max_bytes=999).rows[0][2]
        assert (held[2], held[8]) == (1, untried)
    assert unopened.unlock(W1, "a").deliveries[0].attempt == 2
    assert unopened.unlock(W2, "a", untried="1").deliveries[0].attempt == 2
    (letter,) = unopened.letters(unopened.unlock(W1, "a"))
    assert (letter.attempts, letter.reason) == (2, "max-deliveries")
    unopened.end(letter.entry)
    assert "history" not in unopened.kept()


def test_parked_version_supersedes(unopened: Queue) -> None:
    """X1: a released item is replaced by the version that waited behind it, which starts anew."""
    unopened.open(max_deliveries=1)
    unopened.publish("a", body="one")
    unopened.subscribe(W1, 1)
    unopened.publish("a", body="two")
    unopened.publish("a", body="three")
    (again,) = unopened.unlock(W1, "a").deliveries
    assert (again.body, again.attempt) == ("three", 1)
    unopened.retract(W1, "a")
    assert unopened.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_history_is_bounded(queue: Queue) -> None:
    """Guarantee 6: the last eight different holders are remembered, so Q25 still holds for them and Q23 for the first."""
    names = [f"w{n}@x/a" for n in range(10)]
    queue.publish("a")
    for name in names:
        queue.subscribe(name, 1)
        assert queue.run("get_subscription", {"subid": subid(name), "named": ""}).words == ["ok"]
        queue.unsubscribe(name, release="1")
    assert queue.unlock(names[-8], "a").words == ["lock-lost"]
    assert queue.unlock(names[0], "a").words == ["forbidden"]


def test_replay(queue: Queue) -> None:
    """Q27: a replayed release gets the first answer and releases nothing."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a", request="r")
    answer = queue.unlock(W1, "a", request="r")
    assert answer.rows == [["replayed", W1]] and answer.deliveries == []


def test_never_received(queue: Queue) -> None:
    """Q23: nothing changes for a stranger's unlock."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    assert queue.unlock(W3, "a").words == ["forbidden"]
    assert len(queue.locks(W1)) == 1
