"""How much each publisher publishes (stanzaq#publish_rate)."""

from typing import Any

from tests.lua.driver import T0, Queue
from tests.lua.worded import ALICE, BOB


def published(queue: Queue, *publishers: str, rate: str = "2 1000 2", **more: Any) -> list[Any]:  # noqa: ANN401
    """Publish for each, one after another; return `ok` or how many ms each has to wait."""
    rows = [queue.publish("", by=by, publish_rate=rate, **more).rows[0] for by in publishers]
    return [row[1] if row[0] == "too-fast" else "ok" for row in rows]


def test_each_has_its_own(queue: Queue) -> None:
    """A burst passes, then one item in each interval; others are not affected, and nothing is kept of an idle one."""
    assert published(queue, ALICE, ALICE, ALICE, BOB) == ["ok", "ok", 500, "ok"]
    queue.now += 499
    assert published(queue, ALICE) == [1]
    queue.now += 1
    assert published(queue, ALICE, ALICE) == ["ok", 500]
    queue.now += 1_000
    assert published(queue, BOB) == ["ok"]
    assert queue.client.zcard(queue.key("publish_rates")) == 1


def test_ten_minutes(queue: Queue) -> None:
    """Who waits as told publishes exactly what the rate allows in ten minutes."""
    count = 0
    while queue.now < T0 + 600_000:
        (answer,) = published(queue, ALICE, rate="20 60000 1")
        if answer == "ok":
            count += 1
        else:
            queue.now += answer
    assert count == 200


def test_the_clock_steps_back(queue: Queue) -> None:
    """After a step back a publisher waits for one interval, not for the old time."""
    assert published(queue, ALICE, ALICE) == ["ok", "ok"]
    queue.now -= 3_600_000
    assert published(queue, ALICE) == [500]
    queue.now += 500
    assert published(queue, ALICE, ALICE) == ["ok", 500]


def test_what_does_not_count(queue: Queue) -> None:
    """A repeat is told so, and neither it nor what its node refuses uses any of the rate."""
    rate = {"publish_rate": "1 3600000 1"}
    assert queue.publish("a", once="t", **rate).words == ["ok"]
    for more in ({}, {"refused": "1"}):
        assert queue.publish("a", once="t", **rate, **more).words == ["duplicate"]
    assert queue.publish("b", by=BOB, refused="1", **rate).words == ["refused"]
    assert queue.publish("b", by=BOB, **rate).words == ["ok"]
    assert queue.publish("c", by=BOB, refused="1", **rate).words == ["refused"]
    assert queue.publish("c", by=BOB, **rate).words == ["too-fast"]
    assert set(queue.browse()) == {"a", "b"}
