"""lua/items/meter_publish.lua: how much each publisher publishes (stanzaq#publish_rate)."""

from typing import Any

from tests.lua.driver import T0, Queue
from tests.lua.worded import ALICE, BOB


def metered(queue: Queue, *publishers: str, rate: str = "2 1000 2") -> list[Any]:
    """Ask for publishers, one after another; return `ok` or how many ms each has to wait."""
    answer = queue.run("meter_publish", *({"by": by} for by in publishers), rate=rate)
    return [row[0] if row[0] == "ok" else row[1] for row in answer.rows]


def test_each_has_its_own(queue: Queue) -> None:
    """A burst passes, then one item in each interval; others are not affected, and nothing is kept of an idle one."""
    assert metered(queue, ALICE, ALICE, ALICE, BOB) == ["ok", "ok", 500, "ok"]
    queue.now += 499
    assert metered(queue, ALICE) == [1]
    queue.now += 1
    assert metered(queue, ALICE, ALICE) == ["ok", 500]
    queue.now += 1_000
    assert metered(queue, BOB) == ["ok"]
    assert queue.client.zcard(queue.key("publish_rates")) == 1


def test_ten_minutes(queue: Queue) -> None:
    """Who waits as told publishes exactly what the rate allows in ten minutes."""
    published = 0
    while queue.now < T0 + 600_000:
        (answer,) = metered(queue, ALICE, rate="20 60000 1")
        if answer == "ok":
            published += 1
        else:
            queue.now += answer
    assert published == 200


def test_the_clock_steps_back(queue: Queue) -> None:
    """After a step back a publisher waits for one interval, not for the old time."""
    assert metered(queue, ALICE, ALICE) == ["ok", "ok"]
    queue.now -= 3_600_000
    assert metered(queue, ALICE) == [500]
    queue.now += 500
    assert metered(queue, ALICE, ALICE) == ["ok", 500]


def test_no_rate_any_more(queue: Queue) -> None:
    """A caller with an older record asks once more: everybody may publish."""
    assert metered(queue, *[ALICE] * 5, rate="") == ["ok"] * 5
