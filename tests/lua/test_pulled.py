"""Who is handed what when some come for their items and others are sent them: the turns are one, whoever runs the script."""

import pytest

from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1, W2

LEASE, OTHER = "alice@x/lease-1", "bob@x/lease-2"


def filled(answer: Answer) -> list[str]:
    """Name those who come for what they got."""
    return sorted(notice[1] for notice in answer.notices if notice[0] == "filled" and notice[2])


def items(queue: Queue, jid: str) -> list[str]:
    """Name what one holds."""
    return [row[0] for row in queue.fetch(jid)[2]]


def test_by_a_frontend(queue: Queue) -> None:
    """RX5, Q14: the least recently served is next, sent to or not; what is pulled is nobody's to send, now or again."""
    for jid, qos in ((W1, "unacknowledged"), (LEASE, "pulled"), (W2, "unacknowledged"), (OTHER, "pulled")):
        queue.now += 1
        queue.subscribe(jid, 2, qos)
    answer = queue.publish(*"abcdefghi")
    assert [len(queue.locks(jid)) for jid in (W1, LEASE, W2, OTHER)] == [2, 2, 2, 2]
    assert sorted(jid for jid, _item in answer.given) == [W1, W1, W2, W2]
    assert filled(answer) == [LEASE, OTHER]
    assert set(items(queue, LEASE) + items(queue, OTHER)).isdisjoint(item for _jid, item in answer.given)
    rescued = queue.run("resend", frontend="f2", lapsed="f1").deliveries
    assert sorted(each.item for each in rescued) == sorted(item for _jid, item in answer.given)


def test_without_a_name(queue: Queue) -> None:
    """RX5: who can send nothing serves those who come, stops at the first who has to be sent to, and says that this is due."""
    queue.subscribe(LEASE, 5, "pulled")
    queue.subscribe(OTHER, 5, "pulled")
    queue.frontend = ""
    first = queue.publish("a")
    assert len(filled(first)) == 1 and first.deliveries == []
    # Nothing is due but the deadlines.
    assert first.due == queue.now + 60_000
    queue.frontend = "f1"
    queue.subscribe(W1, 5)
    queue.frontend = ""
    answer = queue.publish(*"bcdef")
    # The one that has never been served, and W1 behind it.
    assert len(items(queue, LEASE)) + len(items(queue, OTHER)) + len(queue.locks(W1)) <= 2
    assert answer.deliveries == [] and answer.due == queue.now
    queue.frontend = "f1"
    assert queue.expire().given
    held = [len(items(queue, LEASE)), len(items(queue, OTHER)), len(queue.locks(W1))]
    assert sum(held) == 6 and max(held) - min(held) <= 1


def test_given_back(queue: Queue) -> None:
    """Q30: what is given back goes to another who can take it, if that one has to be sent to by the next frontend."""
    queue.publish("a")
    queue.subscribe(LEASE, 5, "pulled")
    queue.subscribe(W1, 5)
    queue.frontend = ""
    answer = queue.unlock(LEASE, "a")
    assert answer.words == ["ok"] and answer.due == queue.now and items(queue, LEASE) == []
    queue.frontend = "f1"
    assert queue.expire().given == [(W1, "a")]


def test_alone(queue: Queue) -> None:
    """R2: where no frontend lives, nobody waits for those who would have to be sent to."""
    for number in range(70):
        queue.subscribe(f"w{number}@x/1", 1)
    queue.subscribe(LEASE, 2, "pulled")
    queue.frontend = "-"
    answer = queue.publish("a", "b", "c")
    assert answer.deliveries == [] and filled(answer) == [LEASE] and answer.due == queue.now + 60_000
    assert items(queue, LEASE) == ["a", "b"]
    assert queue.retract(LEASE, "a").words == ["ok"]
    assert items(queue, LEASE) == ["b", "c"]


@pytest.mark.parametrize("frontend", ["f1", "", "-"])
def test_bounded(queue: Queue, frontend: str) -> None:
    """Guarantee 3, X7: credit is kept, and no script hands out more than so many, whoever runs it."""
    queue.subscribe(LEASE, 260, "pulled")
    queue.frontend = frontend
    for first in range(0, 300, 100):
        queue.publish(*(f"i{number}" for number in range(first, first + 100)))
    assert queue.expire().more == 0
    assert queue.stats()["in_flight"] == 260
    queue.unsubscribe(LEASE, release="1")
    queue.subscribe(OTHER, 260, "pulled")
    assert (queue.stats()["in_flight"], queue.expire().more) == (200, 0)
    assert queue.stats()["in_flight"] == 260
    # Its locks end like all others.
    queue.now += 60_001
    assert len(queue.expire().notices) >= 200
