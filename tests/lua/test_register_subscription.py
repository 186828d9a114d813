"""lua/credit/register_subscription.lua: a partition knows a subscription whose credit another coordinates."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.subscribed import carried, subscribed

W1, W2 = "w1@x/a", "w2@x/b"
Parts = tuple[Queue, Queue, Queue]


def test_known_and_without_credit(parts: Parts) -> None:
    """Guarantee 3: a registered subscriber has no credit here; items wait for a grant."""
    _, one, _ = parts
    assert one.register(W1, 10**15)[:2] == ["ok", 0]
    answer = one.publish("a")
    assert answer.given == [] and answer.report is not None and answer.report.wanted == 1
    assert one.stats()["subscribers"] == 1 and one.stats()["credit_free"] == 0


def test_voids_what_was_granted_before(parts: Parts) -> None:
    """Guarantee 3: a grant from before a registration is void; a late registration changes nothing."""
    _, one, _ = parts
    one.register(W1, 10**15 + 5)
    one.publish("a")
    assert one.hand_out(W1, 10**15 + 4, 1).words == ["superseded"]
    assert one.register(W1, 10**15 + 3) == ["superseded"]
    assert one.hand_out(W1, 10**15 + 6, 1).given == [(W1, "a")]


def test_tells_what_is_held_still(parts: Parts) -> None:
    """Q34: locks outlive a subscription, and count when it comes back."""
    coordinator, one, _ = parts
    subscribed(parts, W1, 2)
    assert carried(parts, one, one.publish("a")) == [(W1, "a")]
    for queue in parts:
        queue.unsubscribe(W1)
    registration = coordinator.subscribe(W1, 2).rows[0][3]
    assert one.register(W1, registration)[:2] == ["ok", 1]


def test_who_shares_owns_nothing(parts: Parts) -> None:
    """E28: an owner that is registered shares the partition, and a sweep has to hand out its waiting items."""
    _, one, _ = parts
    one.attach(W1, credit=5)
    one.publish("a")
    row = {
        "subid": subid(W1),
        "jid": W1,
        "sending": "unacknowledged",
        "registration": 10**16,
        "pool": "",
        "several": "",
    }
    answer = one.run("register_subscription", {**row, "selector": ""})
    assert (answer.rows[0][1], answer.more) == (1, 1)
    assert one.publish("b").given == []


def test_too_old_and_closed(parts: Parts) -> None:
    """A caller with another revision is refused."""
    _, one, _ = parts
    row = {"subid": subid(W2), "jid": W2, "sending": "unacknowledged", "registration": 7, "pool": "", "several": ""}
    assert one.run("register_subscription", {**row, "selector": ""}, revision=9).code == "stale"
