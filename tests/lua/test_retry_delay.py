"""lua/lib/locks/attempt_history.lua: an item that came back rests by its attempt (stanzaq#retry_delay and its siblings)."""

import pytest

from broker.model.nodes.options import NodeConfig
from tests.contract.model import Retry
from tests.lua.driver import T0, Delivered, Queue
from tests.lua.worded import W1, W2


def resting(unopened: Queue, **more: str) -> Delivered:
    """Open a queue whose items rest for 2, 6 and then 10 s; return the delivery of its only item."""
    unopened.open(**{"retry_delay": "2000 10000 3 0", **more})
    unopened.publish("a")
    return unopened.subscribe(W1, 1).deliveries[0]


def rest(queue: Queue) -> int:
    """Return how long the item rests from now, and sweep just before and at its end."""
    due = queue.expire().due
    assert queue.browse() == {"a": "delayed"}
    begun, queue.now = queue.now, due - 1
    assert queue.expire().given == []
    queue.now = due
    return due - begun


def test_each_rest_is_longer_up_to_the_limit(unopened: Queue) -> None:
    """An item rests for delay * backoff^(attempt - 1), at most the limit, whoever is free meanwhile."""
    resting(unopened)
    unopened.subscribe(W2, 1)
    found, holder = [], W1
    for attempt in range(2, 7):
        assert unopened.unlock(holder, "a").given == []
        found.append(rest(unopened))
        (delivery,) = unopened.expire().deliveries
        assert delivery.attempt == attempt
        holder = delivery.jid
    assert found == [2_000, 6_000, 10_000, 10_000, 10_000]


@pytest.mark.parametrize("way", ["released", "expired", "bounced", "unavailable"])
def test_whatever_ends_the_lock(unopened: Queue, way: str) -> None:
    """An item rests after a release, an expired lock, a bounce, and when its worker left."""
    delivery = resting(unopened)
    if way == "released":
        unopened.unlock(W1, "a")
    elif way == "expired":
        unopened.now = T0 + 60_000
        unopened.expire()
    elif way == "bounced":
        unopened.bounce(W1, delivery)
    else:
        unopened.unsubscribe(W1, release="1")
        unopened.subscribe(W2, 1)
    assert rest(unopened) == 2_000
    assert [item for _, item in unopened.expire().given] == ["a"]


@pytest.mark.parametrize(("delay", "rests"), [(0, 0), (500, 500), (90_000, 90_000)])
def test_a_delay_of_the_release_wins(unopened: Queue, delay: int, rests: int) -> None:
    """Q32: a release with a delay, also of 0, rests for that one; the next rest is by the attempt again."""
    resting(unopened)
    unopened.unlock(W1, "a", delay_ms=delay)
    if rests:
        assert rest(unopened) == rests
        unopened.expire()
    unopened.unlock(W1, "a")
    assert rest(unopened) == 6_000


def test_what_is_no_attempt_needs_no_rest(unopened: Queue) -> None:
    """An untried release returns the item at once, and the next rest is not longer for it."""
    resting(unopened)
    assert unopened.unlock(W1, "a", untried="1").given == [(W1, "a")]
    unopened.unlock(W1, "a")
    assert rest(unopened) == 2_000


def test_a_received_item(unopened: Queue) -> None:
    """An item that a pull subscriber received and gave back rests as any other, whoever would take it."""
    unopened.open(retry_delay="2000 10000 3 0")
    unopened.publish("a")
    assert len(unopened.receive(W1, 1)[2]) == 1
    unopened.subscribe(W2, 1)
    assert unopened.unlock(W1, "a").given == []
    unopened.now += 1_999
    assert unopened.receive(W1, 1)[2] == [] and unopened.expire().given == []
    unopened.now += 1
    assert unopened.expire().given == [(W2, "a")]


def test_released_by_force(unopened: Queue) -> None:
    """An owner who ends a lock wants the item handed out: it comes back at once."""
    resting(unopened)
    assert unopened.run("force_release", {"item": "a"}, subid="").given == [(W1, "a")]


def test_the_last_attempt_does_not_rest(unopened: Queue) -> None:
    """`max_deliveries` counts as before: after the last attempt the item is a dead letter at once."""
    resting(unopened, max_deliveries="2")
    unopened.unlock(W1, "a")
    rest(unopened)
    unopened.expire()
    (letter,) = unopened.letters(unopened.unlock(W1, "a", reason="torn"))
    assert (letter.attempts, letter.reason) == (2, "torn")


def test_its_group_waits(unopened: Queue) -> None:
    """E14: in an ordered queue a resting item stays ahead of its group; other groups go on."""
    unopened.open(ordered="1", retry_delay="2000 10000 3 0")
    for item, key in (("a1", "a"), ("a2", "a"), ("b1", "b")):
        unopened.publish(item, key=key)
    unopened.subscribe(W1, 1)
    assert unopened.unlock(W1, "a1").given == [(W1, "b1")]
    unopened.now += 1_999
    assert unopened.retract(W1, "b1").given == []
    unopened.now += 1
    assert unopened.expire().given == [(W1, "a1")]
    assert unopened.retract(W1, "a1").given == [(W1, "a2")]


def test_a_new_version_rests_too(unopened: Queue) -> None:
    """X1: an item that is replaced while it rests keeps its rest, as after a delay of a release."""
    resting(unopened)
    unopened.unlock(W1, "a")
    assert unopened.publish("a", body="new").given == []
    unopened.now += 2_000
    (delivery,) = unopened.expire().deliveries
    assert (delivery.body, delivery.attempt) == ("new", 1)


def test_the_time_to_live_goes_on(unopened: Queue) -> None:
    """An item whose time to live ends while it rests is not handed out any more."""
    unopened.open(retry_delay="2000 10000 3 0")
    unopened.publish("a", hints="0 4 1500")
    unopened.subscribe(W1, 1)
    assert unopened.unlock(W1, "a").due == T0 + 1_500
    unopened.now += 2_000
    assert unopened.expire().notices == [["perished", 1]] and unopened.browse() == {}


def test_a_takeover_is_no_return(unopened: Queue) -> None:
    """When a frontend dies, another sends its deliveries again with the same token: nothing rests."""
    delivery = resting(unopened)
    unopened.frontend = "f2"
    answer = unopened.run("take_over", previous="f1")
    assert [again.token for again in answer.deliveries] == [delivery.token] and answer.due == T0 + 60_000


def test_jitter_is_the_same_everywhere(unopened: Queue) -> None:
    """Jitter shortens a rest by up to its share, differently for each item, by arithmetic of item and attempt."""
    rule = Retry(10_000, backoff=2, longest=15_000, jitter=0.5)
    unopened.open(retry_delay=rule.rule, max_deliveries="0")
    unopened.publish(*(f"item-{number}" for number in range(20)))
    dues = set()
    for attempt, most in ((1, 10_000), (2, 15_000)):
        deliveries = unopened.subscribe(W1, 20).deliveries or unopened.expire().deliveries
        assert len(deliveries) == 20
        for each in deliveries:
            unopened.unlock(W1, each.item)
            due = int(unopened.client.zscore(unopened.key("delayed"), each.position)) - unopened.now  # type: ignore[arg-type]
            assert due == rule.after(each.position, attempt) and most / 2 <= due <= most
            dues.add((attempt, due))
        unopened.now += 15_000
    assert len(dues) > 30


def test_without_the_option_nothing_is_stored(unopened: Queue) -> None:
    """A partition without the option has no field for it, and loses the field when the option is unset."""
    unopened.open()
    assert not unopened.client.hexists(unopened.key("meta"), "retry_delay")
    unopened.open(revision=2, retry_delay="2000 10000 3 0")
    assert unopened.client.hget(unopened.key("meta"), "retry_delay") == b"2000 10000 3 0"
    unopened.open(revision=3)
    assert not unopened.client.hexists(unopened.key("meta"), "retry_delay")


@pytest.mark.parametrize(
    ("config", "rule"),
    [
        (NodeConfig(), ""),
        (NodeConfig(retry_backoff=2.0, retry_jitter=1.0), ""),
        (NodeConfig(retry_delay=0.5), "500 3600000 1 0"),
        (NodeConfig(retry_delay=5.0, retry_backoff=1.5, retry_limit=0.25, retry_jitter=0.125), "5000 250 1.5 0.125"),
    ],
)
def test_the_rule_of_a_node(config: NodeConfig, rule: str) -> None:
    """Scripts read times in ms; without a delay there is no rule."""
    assert config.retry_rule == rule
