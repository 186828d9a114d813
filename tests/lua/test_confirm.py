"""confirm, and what happens to unconfirmed deliveries (urn:xmpp:qos)."""

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Answer, Delivered, Queue
from tests.lua.worded import W1, W2

QUALITIES = ("acknowledged", "assured")
each_quality = pytest.mark.parametrize("qos", QUALITIES)


def taken(queue: Queue, qos: str, *items: str) -> list[Delivered]:
    """Publish items to a worker of this quality of service."""
    queue.subscribe(W1, len(items), qos)
    return queue.publish(*items).deliveries


def sent(answer: Answer) -> list[tuple[str, str, int, str]]:
    """Return the deliveries: to whom, item, token, stage."""
    return [(d.jid, d.item, d.token, d.stage) for d in answer.deliveries]


def unconfirmed(queue: Queue) -> set[str]:
    """Return the keys about confirmations that exist."""
    return queue.kept() & {"confirmations", "retries"}


def test_plain_deliveries_leave_no_trace(queue: Queue) -> None:
    """The default costs nothing: no record, and no retry."""
    (delivery,) = taken(queue, "unacknowledged", "a")
    assert delivery.stage == "unacknowledged"
    assert unconfirmed(queue) == set()
    assert queue.confirm(W1, delivery).words == ["replayed"]


def test_acknowledged(queue: Queue) -> None:
    """S3, S4: an acknowledged delivery is confirmed once and for all; its lock stays."""
    (delivery,) = taken(queue, "acknowledged", "a")
    assert (delivery.stage, delivery.deadline) == ("acknowledged", T0 + 60_000)
    queue.now += 1_000
    answer = queue.confirm(W1, delivery)
    assert (answer.words, answer.deliveries, answer.due) == (["ok"], [], T0 + 60_000)
    assert unconfirmed(queue) == set()
    queue.now += 30_000
    assert queue.expire().deliveries == []
    assert queue.retract(W1, "a", delivery.token).words == ["ok"]


def test_assured(queue: Queue) -> None:
    """S9, S11: received asks for deliver, which starts the lock's time; the result ends the handshake."""
    (delivery,) = taken(queue, "assured", "a")
    assert (delivery.stage, delivery.deadline) == ("assured", T0 + 60_000)
    # Room for the first try and three more: 5, 10, 20 and 20 seconds.
    assert queue.locks(W1)[0][3] == T0 + 60_000 + 55_000
    queue.now += 4_000
    (go,) = queue.confirm(W1, delivery).deliveries
    assert (go.jid, go.item, go.token, go.stage, go.body) == (W1, "a", delivery.token, "deliver", "")
    assert go.deadline == queue.now + 60_000 == queue.locks(W1)[0][3]
    queue.now += 1_000
    assert queue.confirm(W1, go).words == ["ok"]
    assert unconfirmed(queue) == set()
    assert queue.expire().due == go.deadline


@each_quality
def test_tried_again(queue: Queue, qos: str) -> None:
    """S5, S12: the same again after 5, 10 and 20 seconds, by whoever sweeps, with the same token."""
    (delivery,) = taken(queue, qos, "a")
    queue.frontend = "f2"
    for pause in (5_000, 10_000, 20_000):
        queue.now += pause - 1
        assert queue.expire().deliveries == []
        queue.now += 1
        again = queue.expire()
        assert sent(again) == [(W1, "a", delivery.token, qos)]
        assert (again.deliveries[0].body, again.due) == (delivery.body, queue.now + min(2 * pause, 20_000))


@each_quality
def test_silence(queue: Queue, qos: str) -> None:
    """S6: silence after the last try ends the lock at once, counts as a bounce, and the next worker gets the item."""
    taken(queue, qos, "a")
    queue.subscribe(W2, 1)
    for pause in (5_000, 10_000, 20_000):
        queue.now += pause
        queue.expire()
    queue.now += 20_000
    (delivery,) = queue.expire().deliveries
    assert (delivery.jid, delivery.item, delivery.attempt, delivery.stage) == (W2, "a", 2, "unacknowledged")
    assert [(r["type"], r["reason"]) for r in queue.journal()] == [("bounced", "silent")]
    assert queue.client.hget(queue.key("subscribers"), subid(W1)) == f"1 1 {qos} {W1}".encode()
    assert unconfirmed(queue) == set()


def test_silence_to_the_end(queue: Queue) -> None:
    """P30: a worker that is silent three times in a row is unsubscribed, and its items go to others."""
    taken(queue, "acknowledged", *"abcd")
    queue.subscribe(W2, 4)
    queue.now += 5_000
    answer = queue.expire(retry="5000 5000 0")
    assert sorted(answer.given) == [(W2, name) for name in "abcd"]
    assert queue.stats()["subscribers"] == 1
    assert unconfirmed(queue) == set()


def test_deliver_is_tried_again(queue: Queue) -> None:
    """S12: after received only deliver is repeated, by any frontend: the item itself would be worked on twice (SX9)."""
    (delivery,) = taken(queue, "assured", "a")
    (go,) = queue.confirm(W1, delivery).deliveries
    queue.now += 5_000
    assert sent(queue.expire()) == [(W1, "a", go.token, "deliver")]
    again = queue.run("take_over", frontend="f2", previous="f1")
    assert sent(again) == [(W1, "a", go.token, "deliver")]
    assert again.deliveries[0].body == ""


@each_quality
def test_taken_over(queue: Queue, qos: str) -> None:
    """X8: a dead frontend's unsent deliveries are sent at their stage; confirmed ones are not sent again."""
    first, second = taken(queue, qos, "a", "b")
    again = queue.run("take_over", frontend="f2", previous="f1")
    assert sorted(sent(again)) == [(W1, d.item, d.token, qos) for d in (first, second)]
    (go,) = queue.confirm(W1, first).deliveries or [first]
    queue.confirm(W1, go)
    assert sent(queue.run("take_over", frontend="f3", previous="f2")) == [(W1, "b", second.token, qos)]
    assert queue.run("take_over", frontend="f4", previous="f1").deliveries == []


def test_repeated(queue: Queue) -> None:
    """Received twice, or late, changes nothing: one deliver follows one confirmation (SX13)."""
    (delivery,) = taken(queue, "assured", "a")
    row = queue.confirmed(W1, delivery) | {"message": ""}
    answer = queue.run("confirm", row, row)
    assert (answer.words, len(answer.deliveries)) == (["ok", "replayed"], 1)
    assert queue.confirm(W1, delivery).words == ["replayed"]
    queue.confirm(W1, answer.deliveries[0])
    for late in (delivery, answer.deliveries[0]):
        answer = queue.confirm(W1, late)
        assert (answer.words, answer.deliveries) == (["replayed"], [])
    queue.retract(W1, "a")
    assert queue.confirm(W1, delivery).words == ["lock-lost"]


@each_quality
def test_forged(queue: Queue, qos: str) -> None:
    """Bad input: only the lock's holder confirms, by its full JID, and only what was sent."""
    (delivery,) = taken(queue, qos, "a")
    before = queue.client.hgetall(queue.key("confirmations"))
    for sender in (W2, "w1@x", "w1@x/b", ""):
        assert queue.confirm(sender, delivery).words == ["lock-lost"]
    assert queue.confirm(W1, delivery, token=delivery.token + 1).words == ["lock-lost"]
    assert queue.confirm(W1, delivery._replace(position="no position at all")).words == ["lock-lost"]
    for stage in {"acknowledged", "assured", "deliver", "unacknowledged", "banana"} - {qos}:
        assert queue.confirm(W1, delivery._replace(stage=stage)).words == ["replayed"]
    assert queue.client.hgetall(queue.key("confirmations")) == before


def test_what_has_arrived_does_not_bounce(queue: Queue) -> None:
    """A late error, or one of another stage, ends no lock that its holder has confirmed."""
    (delivery,) = taken(queue, "assured", "a")
    assert queue.bounce(W1, delivery._replace(stage="unacknowledged")).words == ["lock-lost"]
    (go,) = queue.confirm(W1, delivery).deliveries
    assert queue.bounce(W1, delivery, gone="1").words == ["lock-lost"]
    queue.confirm(W1, go)
    assert queue.bounce(W1, go, gone="1").words == ["lock-lost"]
    assert len(queue.locks(W1)) == 1 and queue.stats()["subscribers"] == 1


@each_quality
def test_error(queue: Queue, qos: str) -> None:
    """An error ends the lock at once and counts; a delivery that arrives resets the count (P30)."""
    (delivery,) = taken(queue, qos, "a")
    for _ in range(2):
        (delivery,) = queue.bounce(W1, delivery).deliveries
    assert delivery.attempt == 3 and delivery.stage == qos
    (go,) = queue.confirm(W1, delivery).deliveries or [delivery]
    queue.confirm(W1, go)
    assert queue.client.hvals(queue.key("subscribers")) == [f"1 0 {qos} {W1}".encode()]


@pytest.mark.parametrize("how", ["retract", "unlock", "unsubscribe", "expire", "bounce", "delete"])
@each_quality
def test_ends_with_the_lock(queue: Queue, qos: str, how: str) -> None:
    """Guarantee 6: however a lock ends, no confirmation and no retry is left."""
    (delivery,) = taken(queue, qos, "a")
    if how == "retract":
        queue.retract(W1, "a")
    elif how == "unlock":
        queue.unlock(W1, "a", delay_ms=1_000_000)
    elif how == "unsubscribe":
        queue.unsubscribe(W1, release="1")
    elif how == "bounce":
        queue.bounce(W1, delivery, gone="1")
    elif how == "delete":
        queue.run("delete_partition")
    else:
        queue.subscribe(W1, 0, "unacknowledged")
        queue.now += 60_000 + 55_000
        # Past both its last try and its deadline, the reason is the silence.
        queue.expire(retry="200000 200000 3")
    assert unconfirmed(queue) == set()


def test_past_the_deadline(queue: Queue) -> None:
    """A delivery past its deadline is not sent again: its lock ends in the same sweep (Q35)."""
    (delivery,) = taken(queue, "acknowledged", "a")
    queue.subscribe(W1, 0, "acknowledged")
    queue.now += 60_000
    answer = queue.expire()
    assert answer.notices == [["unlocked", W1, "a", delivery.token]] and answer.deliveries == []


def test_level_of_the_delivery(queue: Queue) -> None:
    """A changed level is for later deliveries; an empty one keeps the level (P13)."""
    (delivery,) = taken(queue, "acknowledged", "a")
    assert queue.subscribe(W1, 5, "", must="1").rows == [["ok", 5, "acknowledged", W1, 0, subid(W1)]]
    assert queue.subscribe(W1, 5, "unacknowledged", must="1").rows == [["ok", 5, "unacknowledged", W1, 0, subid(W1)]]
    assert queue.publish("b").deliveries[0].stage == "unacknowledged"
    assert queue.confirm(W1, delivery).words == ["ok"]


def test_bounded(queue: Queue) -> None:
    """X7: due deliveries go out in parts of 200, and of about a megabyte; the answer says that there are more."""
    queue.subscribe(W1, 1_000, "acknowledged")
    queue.publish(*(f"i{n}" for n in range(200)))
    queue.publish(*(f"i{n}" for n in range(200, 250)))
    queue.now += 5_000
    answer = queue.expire()
    assert (len(answer.deliveries), answer.more) == (200, 1)
    answer = queue.expire()
    assert (len(answer.deliveries), answer.more) == (50, 0)
    queue.unsubscribe(W1, release="1")
    queue.run("purge")
    queue.subscribe(W2, 100, "acknowledged")
    queue.publish(*(f"j{n}" for n in range(20)), body="x" * 100_000)
    while queue.expire().more:
        pass
    queue.now += 5_000
    answer = queue.expire()
    assert (0 < len(answer.deliveries) < 20, answer.more) == (True, 1)
    assert len(answer.deliveries) + len(queue.expire().deliveries) == 20


def test_silence_is_bounded(queue: Queue) -> None:
    """X7: ending subscriptions give back a bounded number in one call, and the rest follows."""
    for n in range(4):
        queue.subscribe(f"w{n}@x/a", 100, "acknowledged")
    queue.publish(*(f"i{n}" for n in range(200)))
    queue.publish(*(f"i{n}" for n in range(200, 400)))
    while queue.expire().more:
        pass
    queue.now += 5_000
    assert queue.expire(retry="5000 5000 0").more == 1
    assert queue.stats()["in_flight"] == 200
    while queue.expire(retry="5000 5000 0").more:
        pass
    assert queue.stats()["in_flight"] == 0 and queue.stats()["subscribers"] == 0
    assert unconfirmed(queue) == set()


def test_lost_by_hand(queue: Queue) -> None:
    """An item that somebody removed with redis-cli is tried as often as any other, and no oftener."""
    (delivery,) = taken(queue, "acknowledged", "a")
    queue.client.xdel(queue.key("log"), delivery.position)
    queue.now += 5_000
    answer = queue.expire()
    assert (answer.deliveries, answer.due) == ([], queue.now + 10_000)
