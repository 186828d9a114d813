"""What somebody has removed or written with redis-cli stops nothing else in its partition."""

from typing import Any

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import T0, Answer, Delivered, Queue

W1, W2 = "w1@x/a", "w2@x/a"


def removed(queue: Queue, delivery: Delivered) -> Answer:
    """Remove the entry of a locked item, and let the lock end."""
    assert queue.client.xdel(queue.key("log"), delivery.position) == 1
    queue.subscribe(W2, 5)
    queue.now += 60_000
    return queue.expire()


def unused(queue: Queue) -> bool:
    """Whether nothing is left of any item."""
    held = {"inflight", "lock_deadlines", "ready", "delayed", "index", "expirations", "history", "outbox_items"}
    return not (held | {"group_of", "group_heads", "group_blocked"}) & queue.kept()


@pytest.mark.parametrize("hints", ["", f"0 0 {T0 + 600_000}"])
def test_a_locked_item_is_removed(unopened: Queue, hints: str) -> None:
    """Its lock ends as a cancelled one, at the last delivery too, and the others end in the same sweep."""
    queue = unopened
    queue.open(max_deliveries=1 if not hints else 20)
    queue.subscribe(W1, 2)
    poison, other = queue.publish("poison", "other", hints=hints).deliveries
    for item in ("poison", "other"):
        assert queue.renew(W1, item, begun="1").words == ["ok"]
    answer = removed(queue, poison)
    assert [notice[2] for notice in answer.notices if notice[0] == "unlocked"] == ["poison", "other"]
    ended = queue.journal()[0]
    assert (ended["item"], ended["type"], ended["reason"]) == ("poison", "cancelled", "removed")
    if hints:
        assert answer.given == [(W2, "other")]
        queue.retract(W2, "other")
    else:
        assert [letter.entry for letter in queue.letters(answer)] == [f"item/{other.position}"]
        queue.end(f"item/{other.position}")
    assert unused(queue)


def test_a_locked_item_of_a_group_is_removed(unopened: Queue) -> None:
    """The next item of its group follows."""
    queue = unopened
    queue.open(ordered="1")
    queue.subscribe(W1, 1)
    (poison,) = queue.publish("poison", "next", key="k").deliveries
    assert removed(queue, poison).given == [(W2, "next")]
    queue.retract(W2, "next")
    assert "group_heads" not in queue.kept()


def test_who_waits_for_a_removed_item_is_told(queue: Queue) -> None:
    """Its publisher learns that the item was cancelled."""
    queue.subscribe(W1, 1)
    (poison,) = queue.publish("poison", hints=f"0 0 {T0 + 600_000}").deliveries
    queue.client.hset(queue.key("replies"), poison.position, "alice@x")
    queue.client.hset(queue.key("meta"), "replies", "1")
    assert list(queue.told(removed(queue, poison), "reply")) == [f"reply/{poison.position}"]


def forgotten(queue: Queue, jid: str) -> None:
    """Remove a subscriber's line."""
    assert queue.client.hdel(queue.key("subscribers"), subid(jid)) == 1


def test_a_ready_subscriber_is_removed(queue: Queue) -> None:
    """The next ones in turn get the items, and it has no turn any more."""
    for jid in ("w3@x/a", "w4@x/a", W1, W2):
        queue.subscribe(jid, 1)
    for jid in ("w3@x/a", "w4@x/a", W1):
        forgotten(queue, jid)
    assert queue.stats()["credit_free"] == 1
    assert queue.publish("a").given == [(W2, "a")]
    assert "ready_subscribers" not in queue.kept()


def test_an_expiring_subscriber_is_removed(queue: Queue) -> None:
    """There is nobody to tell, and the sweep goes on."""
    queue.subscribe(W1, 1, lease=T0 + 5_000)
    queue.subscribe(W2, 1, lease=T0 + 5_000)
    forgotten(queue, W1)
    queue.now += 5_000
    assert [notice[1] for notice in queue.expire().notices] == [W2]
    queue.unsubscribe(W2, lapsed="1")
    assert "subscription_expiry" not in queue.kept()


def test_an_owner_is_removed(queue: Queue) -> None:
    """Its lease ends without a notice, and the partition is free."""
    queue.attach(W1)
    forgotten(queue, W1)
    assert queue.keep(W1).words == ["not-subscribed"]
    queue.now += 60_000
    assert queue.expire().notices == []
    assert queue.client.hget(queue.key("meta"), "owner") is None


@pytest.mark.parametrize(
    "fields", [{"note": "1"}, {"note": "1", "more": "2"}, {"by": "alice@x", "body": "b", "trace": "1"}]
)
def test_a_foreign_entry(queue: Queue, fields: dict[Any, Any]) -> None:
    """An entry without a payload is passed over, a field that is not known is ignored."""
    queue.publish("before")
    queue.client.xadd(queue.key("log"), fields, id=f"{T0}-500")
    queue.now += 1
    queue.publish("after")
    whole = [f"0-{T0}-500"] if "body" in fields else []
    assert list(queue.browse()) == ["before", *whole, "after"]
    assert queue.stats()["waiting"] == 3
    assert [item for _jid, item in queue.subscribe(W1, 5).given] == ["before", *whole, "after"]
    for item in ("before", *whole, "after"):
        assert queue.retract(W1, item).words == ["ok"]


def test_a_foreign_entry_of_a_log(unopened: Queue) -> None:
    """Readers pass over it, and retention removes it as any other."""
    unopened.open(queueing="0", keep_items=2)
    unopened.publish("before")
    unopened.client.xadd(unopened.key("log"), {"note": "1"}, id=f"{T0}-500")
    unopened.now += 1
    unopened.publish("after")
    assert unopened.read()[0] == "before" and unopened.read()[-1] == "after"
    assert unopened.follow(W1, 5, "@earliest").deliveries[-1].item == "after"
    for number in range(4):
        unopened.publish(f"i{number}")
    assert "before" not in unopened.read() and unopened.read()[-1] == "i3"
    assert unopened.run("purge").code == "ok" and unopened.read() == []
