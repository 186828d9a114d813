"""Deliveries of several items in one stanza: the option, and answers that name several locks."""

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Delivered, Queue
from tests.lua.worded import W1, W2


def taken(queue: Queue, qos: str, *items: str) -> list[Delivered]:
    """Publish items to a worker that takes up to 20 in a stanza."""
    queue.subscribe(W1, len(items), qos, batch=20)
    return queue.publish(*items).deliveries


def begun(queue: Queue) -> list[str]:
    """Return the records of deliveries that wait for the confirmation of `deliver`."""
    records = [line.decode() for line in queue.client.hvals(queue.key("confirmations")) if isinstance(line, bytes)]
    return sorted(record for record in records if record.startswith("deliver"))


def test_the_option(queue: Queue) -> None:
    """It is stored with the level unless it is one, kept by a change that does not name it, and told with each new item."""
    assert queue.subscribe(W1, 2, batch=20).rows[0][:3] == ["ok", 2, "unacknowledged20"]
    assert queue.client.hvals(queue.key("subscribers")) == [b"2 0 unacknowledged20 w1@x/a"]
    assert queue.subscribe(W1, 3, "acknowledged", must="1").rows[0][:3] == ["ok", 3, "acknowledged20"]
    assert [each.stage for each in queue.publish("a", "b").deliveries] == ["acknowledged20"] * 2
    assert queue.subscribe(W1, 3, "", must="1", batch=1).rows[0][:3] == ["ok", 3, "acknowledged"]
    assert queue.client.hvals(queue.key("subscribers")) == [b"3 0 acknowledged w1@x/a"]
    assert [each.stage for each in queue.publish("c").deliveries] == ["acknowledged"]


def test_an_assured_message_as_a_whole(queue: Queue) -> None:
    """S9, S14: all its items are confirmed together, and the notice to start names the message however often it is repeated."""
    batch = taken(queue, "assured", "a", "b", "c")
    answer = queue.confirm(W1, *batch, message="5.x")
    assert answer.words == ["ok"]
    assert [(each.item, each.stage, each.body) for each in answer.deliveries] == [
        (item, "deliver", "5.x") for item in "abc"
    ]
    assert begun(queue) == ["deliver 1 5.x"] * 3
    queue.now += 5_000
    again = queue.expire().deliveries
    assert sorted((each.item, each.stage, each.body) for each in again) == [(item, "deliver", "5.x") for item in "abc"]
    assert begun(queue) == ["deliver 2 5.x"] * 3
    # The notice of two of them is confirmed, the third one's is repeated.
    go = [each._replace(stage="deliver") for each in batch]
    assert queue.confirm(W1, *go[:2]).words == ["ok"]
    assert begun(queue) == ["deliver 2 5.x"]
    assert queue.confirm(W1, *go).words == ["ok"]
    assert begun(queue) == []


@pytest.mark.parametrize("ended", [False, True])
def test_no_item_starts_in_two_messages(queue: Queue, ended: bool) -> None:  # noqa: FBT001
    """S14: where one item came again alone and was begun, or its lock has ended, the first message is not confirmed."""
    batch = taken(queue, "assured", "a", "b", "c")
    queue.now += 5_000
    assert [each.stage for each in queue.expire().deliveries] == ["assured"] * 3
    if ended:
        queue.retract(W1, "b", batch[1].token)
    else:
        assert queue.confirm(W1, batch[1]).words == ["ok"]
    answer = queue.confirm(W1, *batch, message="5.x")
    assert (answer.words, answer.deliveries) == (["replayed"], [])
    assert begun(queue) == ([] if ended else ["deliver 1"])
    # Each of the others is confirmed by itself.
    assert queue.confirm(W1, batch[0]).words == ["ok"]
    assert queue.confirm(W2, batch[2]).words == ["lock-lost"]


def test_acknowledged_one_by_one(queue: Queue) -> None:
    """S4: what an answer names is confirmed as far as it is still held."""
    batch = taken(queue, "acknowledged", "a", "b", "c")
    queue.retract(W1, "a", batch[0].token)
    forged = batch[1]._replace(token=batch[1].token + 1)
    assert queue.confirm(W1, batch[0], forged, batch[2]).words == ["ok"]
    assert queue.client.hkeys(queue.key("confirmations")) == [batch[1].position.encode()]


def test_a_bounce_counts_once(queue: Queue) -> None:
    """Q18, P30: a bounce ends the locks of all items of a message and is one failed delivery."""
    batch = taken(queue, "unacknowledged", "a", "b", "c")
    queue.subscribe(W2, 5, batch=5)
    answer = queue.bounce(W1, *batch)
    assert answer.words == ["ok"]
    assert sorted((each.jid, each.item, each.attempt) for each in answer.deliveries) == [
        (W2, item, 2) for item in "abc"
    ]
    assert queue.client.hget(queue.key("subscribers"), subid(W1)) == b"3 1 unacknowledged20 w1@x/a"
    assert queue.bounce(W1, *batch).words == ["lock-lost"]
    forged = queue.bounce(W2, *answer.deliveries[:1] * 3)
    assert forged.words == ["ok"] and len(queue.locks(W2)) == 2
    assert [record["type"] for record in queue.journal()].count("bounced") == 4
    gone = queue.bounce(W2, *answer.deliveries, gone="1")
    assert gone.words == ["ok"] and not queue.client.hexists(queue.key("subscribers"), subid(W2))
    assert queue.locks(W2) == []
