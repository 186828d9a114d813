"""One call has a budget of work and of bytes, whatever its rows ask for (guarantee 6)."""

from collections.abc import Mapping

import pytest

from broker.redis_core.calls.call import subids
from tests.lua.driver import DEFAULTS, SCRIPTS, Queue

WORKERS = [f"w{number}@x/1" for number in range(4)]
LARGE = 262_144


@pytest.fixture
def busy(queue: Queue) -> Queue:
    """Give a partition in which four workers hold 500 items each."""
    for jid in WORKERS:
        queue.subscribe(jid, 500)
    for _ in range(10):
        queue.publish(*[""] * 200, max_items=10_000)
    return queue


def answered(queue: Queue, name: str, *rows: Mapping[str, object]) -> int:
    """Run a script once; gives how many of its rows it has answered."""
    found = SCRIPTS[name]
    known = {**DEFAULTS, "number": 0, "now": queue.now}
    reply = queue.runner.run(
        name, [queue.key(key) for key in found.keys], {each: known[each] for each in found.arguments}, rows
    )
    return len(reply[1])


def test_rows_left_over(busy: Queue) -> None:
    """A script stops at a row when its budget is spent; what has no answer comes again."""
    rows = [{"subids": subids(jid)} for jid in WORKERS * 5]
    assert 0 < answered(busy, "locks", *rows) < len(rows)
    assert sum(len(row[1]) for row in busy.run("locks", *rows).rows) == 20 * 500


def test_progress(busy: Queue) -> None:
    """The first row is always carried out: who asks again comes to an end."""
    rows = [{"subids": subids(jid)} for jid in WORKERS]
    while rows:
        done = answered(busy, "locks", *rows)
        assert done
        rows = rows[done:]


def test_payloads_count(queue: Queue) -> None:
    """Bytes are work: a purge of large items drops fewer of them in one call, and says that there is more."""
    queue.publish(*[""] * 40, body=b"x" * LARGE)
    answer = queue.run("purge")
    assert (0 < answer.rows[0] < 40, answer.more) == (True, 1)
    dropped = answer.rows[0]
    while answer.more:
        answer = queue.run("purge")
        dropped += answer.rows[0]
    assert dropped == 40


def test_dead_letters_count(queue: Queue) -> None:
    """What becomes a dead letter is read with its payload: of locks that run out together a part ends in each call."""
    queue.open(revision=2, max_deliveries=1)
    queue.subscribe(WORKERS[0], 100)
    answer = queue.publish(*[""] * 40, body=b"x" * LARGE)
    while answer.more:
        answer = queue.expire()
    queue.now += 60_001
    answer = queue.expire()
    made = len(answer.handovers)
    assert (0 < made < 40, answer.more) == (True, 1)
    while answer.more:
        answer = queue.expire()
        made += len(answer.handovers)
    assert made == 40


@pytest.mark.parametrize("way", ["after", "before"])
def test_pages_of_large_items(queue: Queue, way: str) -> None:
    """A page is cut by bytes while it is read, and the next one goes on there: none is passed over in either direction."""
    names = [f"i{number}" for number in range(12)]
    queue.publish(*names, body=b"x" * 120_000)
    backwards = "1" if way == "before" else ""
    seen: list[str] = []
    reached = ""
    while True:
        rows, reached = queue.page(limit=100, backwards=backwards, **{way: reached})
        found = [row[0] for row in rows]
        seen = found + seen if backwards else seen + found
        if not reached:
            break
    assert seen == names
