"""complete_and_publish: what is published with an acknowledgement is in the outbox if and only if the item is done, once."""

from typing import Any

import pytest

from tests.lua.driver import Answer, Queue
from tests.lua.worded import ALICE, W1, W2


def complete(queue: Queue, item: str, *bodies: str, by: str = W1, request: str = "", **more: Any) -> Answer:  # noqa: ANN401
    """Acknowledge an item, and publish others."""
    packed = " ".join(str(len(each.encode())) for each in bodies) + ";" + "".join(bodies)
    row = {**queue.asked(by, item, more.pop("token", ""), request=request), "result": "", "refused": "", **more}
    return queue.run("complete_and_publish", {**row, "publishes": packed})


def told(queue: Queue, answer: Answer) -> dict[str, str]:
    """Return what an operation lets the frontend publish, by the number of its entry."""
    found = queue.told(answer, "publish").items()
    return {entry.rpartition("/")[2]: content for entry, (content,) in found}


@pytest.fixture
def held(queue: Queue) -> Queue:
    """Return a queue with a locked item `a`."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    return queue


def test_together(held: Queue) -> None:
    """Each item has an entry with the time of the acknowledgement, until it has arrived; nothing else is left of any."""
    answer = complete(held, "a", "one ;\n", "", "zwölf")
    assert answer.words == ["ok"] and answer.outbox
    entries = held.told(answer, "publish")
    assert [content for (content,) in entries.values()] == [f"{held.now} one ;\n", f"{held.now} ", f"{held.now} zwölf"]
    assert len({entry.rpartition("/")[0] for entry in entries}) == 1
    assert [row["type"] for row in held.journal()] == ["acknowledged"]
    assert held.end(*entries).words == ["ok"] * 3
    assert held.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_only_an_acknowledgement_publishes(held: Queue) -> None:
    """Without the lock, or for an item that waits or is gone, nothing is published; a result is told beside it."""
    token = held.renew(W1, "a").rows[0][1]
    for answer, word in (
        (complete(held, "a", "x", by=W2), "forbidden"),
        (complete(held, "a", "x", token=token + 1), "lock-lost"),
        (complete(held, "none", "x"), "item-not-found"),
    ):
        assert answer.words == [word] and not answer.outbox
    held.unlock(W1, "a", delay_ms=60_000)
    late = complete(held, "a", "x", token=token)
    assert late.words == ["lock-lost"] and not late.outbox
    assert complete(held, "a", "x", by=f"{ALICE}/1").words == ["lock-lost"], "a waiting item is not deleted"
    assert "outbox" not in held.kept()


def test_a_refusal_changes_nothing(held: Queue) -> None:
    """What a node has refused neither ends the lock nor publishes: the holder may still acknowledge."""
    before = held.kept()
    answer = complete(held, "a", refused="1", request="r")
    assert answer.words == ["refused"] and not answer.outbox and held.kept() == before
    assert complete(held, "a", "x", request="r").words == ["ok"], "a refusal is no answer that is repeated"


def test_room(held: Queue) -> None:
    """Items that nobody takes are bounded: while too many wait, the lock stays, and nothing is published."""
    waiting = {f"publish/1-{number}/0": held.now + 60_000 for number in range(9_999)}
    held.client.zadd(held.key("outbox"), waiting)
    held.publish("b")
    held.subscribe(W1, 2)
    assert complete(held, "a", "x", "y").words == ["ok"]
    assert complete(held, "b", "x", request="r").words == ["outbox-full"]
    assert held.retract(W1, "b").words == ["ok"], "it is still held"


def test_once(held: Queue) -> None:
    """Q27: a repeat gets the first answer and publishes nothing again, also if it would be refused now."""
    first = complete(held, "a", "x", request="r")
    assert told(held, first) == {"0": f"{held.now} x"}
    for more in ({}, {"refused": "1"}):
        again = complete(held, "a", "x", request="r", **more)
        assert again.rows == [["replayed", W1]] and not again.outbox
    assert held.read_outbox() == {}


def test_again_until_it_has_arrived(held: Queue) -> None:
    """Whoever reads an entry may die: it is due again, each time later, under the same name."""
    found = held.told(complete(held, "a", "x"), "publish")
    for pause in (5_000, 10_000, 20_000):
        assert not held.expire().outbox
        held.now += pause
        held.frontend = f"f{pause}"
        assert held.told(held.expire(), "publish") == found
    held.end(*found)
    held.now += 60_000
    assert not held.expire().outbox


def test_several_items(queue: Queue) -> None:
    """Rows have entries of their own, however large; a call has a budget, and its caller sends what is left again."""
    queue.publish("a", "b", "c")
    queue.subscribe(W1, 3)
    large = "x" * 5_000_000
    rows = [
        {**queue.asked(W1, item), "result": "", "refused": "", "publishes": f"{len(body)};{body}"}
        for item, body in (("a", "1"), ("b", large), ("c", "3"))
    ]
    assert queue.run("complete_and_publish", *rows).words == ["ok"] * 3
    assert sorted(len(content) for (content,) in queue.read_outbox(max_bytes=10**7).values()) == [
        15,
        15,
        14 + len(large),
    ]


def test_with_a_receive(queue: Queue) -> None:
    """A pull subscription acknowledges, publishes and receives in one operation; a refusal receives as well."""
    pull = "alice@x/lease-1"
    queue.publish("a", "b", "c")
    queue.subscribe(pull, 2, "pulled", lease="+9000")
    queue.receive(pull, 1)
    refused = complete(queue, "a", "x", by=pull, refused="1", next="1 9000")
    done = complete(queue, "a", "x", by=pull, next="1 9000")
    for each, outcome, item in ((refused, ["refused"], "b"), (done, ["ok", pull], "c")):
        ((word, said, answer),) = each.rows
        assert (word, said, [row[0] for row in answer[2]]) == ("received", outcome, [item])
    assert not refused.outbox and told(queue, done) == {"0": f"{queue.now} x"}
