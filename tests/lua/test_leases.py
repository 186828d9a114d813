"""Subscriptions that expire: subscribe, subscribe_log, sweep and unsubscribe together."""

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Queue
from tests.lua.worded import W1, W2

DAY = 86_400_000


def lapsed(queue: Queue) -> list[str]:
    """Sweep; return the subscriptions reported as expired."""
    return [notice[1] for notice in queue.expire().notices if notice[0] == "lapsed"]


def test_granted(queue: Queue) -> None:
    """P31: the expiry is returned, stored, and no later than in thirty days."""
    answer = queue.subscribe(W1, 1, lease=T0 + 5_000)
    assert (answer.rows[0][4], answer.due) == (T0 + 5_000, T0 + 5_000)
    assert queue.subscribe(W2, 1, lease=T0 + 31 * DAY).rows[0][4] == T0 + 30 * DAY
    assert queue.subscribe(W2, 1, lease=10**18).rows[0][4] == T0 + 30 * DAY
    assert queue.expire().due == T0 + 5_000


@pytest.mark.parametrize("lease", [1, T0 - 1, T0])
def test_over_before_it_begins(queue: Queue, lease: int) -> None:
    """A lease in the past is refused, and nothing is changed."""
    assert queue.subscribe(W1, 1, lease=lease).words == ["lease-over"] == queue.follow(W1, 1, lease=lease).words
    assert not {"subscribers", "subscription_expiry"} & queue.kept()


def test_renewed(queue: Queue) -> None:
    """P31: setting the options renews it, unless they do not name it; subscribing again begins anew."""
    queue.subscribe(W1, 1, lease=T0 + 5_000)
    assert queue.subscribe(W1, 2, must="1", lease="").rows[0][4] == T0 + 5_000
    assert queue.subscribe(W1, 2, must="1", lease=T0 + 9_000).rows[0][4] == T0 + 9_000
    assert queue.subscribe(W1, 2, must="1", lease=0).rows[0][4] == 0
    queue.subscribe(W1, 1, lease=T0 + 5_000)
    assert queue.subscribe(W1, 1).rows[0][4] == 0
    queue.now += DAY
    assert lapsed(queue) == []


def test_it_ends(queue: Queue) -> None:
    """P31: each sweep reports an expired subscription until it has been ended, and its items go to others."""
    queue.publish("a")
    queue.subscribe(W1, 1, lease=T0 + 5_000)
    queue.subscribe(W2, 1)
    queue.now += 4_999
    assert lapsed(queue) == []
    queue.now += 1
    assert lapsed(queue) == [W1] == lapsed(queue)
    assert queue.expire().due == queue.now + 1_000
    answer = queue.unsubscribe(W1, release="1", lapsed="1")
    assert (answer.rows, answer.given) == ([["ok", 0, 0, [subid(W1)]]], [(W2, "a")])
    assert queue.journal()[-1]["reason"] == "lapsed"
    assert lapsed(queue) == [] and "subscription_expiry" not in queue.kept()


def test_renewed_at_the_last_moment(queue: Queue) -> None:
    """Two frontends at once: ending a lease that has been renewed meanwhile ends nothing."""
    queue.subscribe(W1, 1, lease=T0 + 5_000)
    queue.now += 5_000
    assert lapsed(queue) == [W1]
    queue.subscribe(W1, 1, must="1", lease=T0 + 60_000)
    assert queue.unsubscribe(W1, release="1", lapsed="1").words == ["superseded"]
    queue.subscribe(W1, 1)
    assert queue.unsubscribe(W1, release="1", lapsed="1").words == ["superseded"]
    queue.unsubscribe(W1)
    # It had unsubscribed by itself: its locks are given back all the same.
    assert queue.unsubscribe(W1, release="1", lapsed="1").words == ["not-subscribed"]


def test_readers(unopened: Queue) -> None:
    """A stream expires like any other subscription."""
    unopened.open(queueing="0", keep_items=10)
    answer = unopened.follow(W1, 5, lease=T0 + 5_000)
    assert (answer.rows[0][3], answer.due) == (T0 + 5_000, T0 + 5_000)
    assert unopened.subscribe(W1, 7, must="1", lease=T0 + 6_000).rows[0][4] == T0 + 6_000
    unopened.now += 6_000
    assert lapsed(unopened) == [W1]
    unopened.unsubscribe(W1, release="1", lapsed="1")
    assert not {"readers", "readers_ready", "subscribers", "subscription_expiry"} & unopened.kept()


def test_the_first_partition_knows(parts: tuple[Queue, Queue, Queue]) -> None:
    """In a node of several partitions the first one has all leases."""
    first, one, _two = parts
    assert one.follow(W1, 5, lease=T0 + 5_000).rows[0][3] == 0
    assert first.follow(W1, 5, lease=T0 + 5_000).rows[0][3] == T0 + 5_000


def test_bounded(queue: Queue) -> None:
    """However many expire at once, a sweep reports two hundred, and the next one comes soon."""
    for number in range(203):
        queue.subscribe(f"w{number}@x/a", 1, lease=T0 + 5_000)
    queue.now += 5_000
    over = lapsed(queue)
    assert len(over) == 200
    for jid in over:
        queue.unsubscribe(jid, release="1", lapsed="1")
    assert len(lapsed(queue)) == 3


def test_nothing_is_left(queue: Queue) -> None:
    """A subscription takes its lease along, however it ends (guarantee 6)."""
    queue.publish("a")
    (delivery,) = queue.subscribe(W1, 1, lease=T0 + 5_000).deliveries
    queue.bounce(W1, delivery, gone="1")
    queue.subscribe(W2, 0, lease=T0 + 5_000)
    queue.unsubscribe(W2)
    assert "subscription_expiry" not in queue.kept()
