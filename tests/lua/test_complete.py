"""complete: holders acknowledge items with results, and publishers that asked are told, whatever becomes of the items."""

import pytest

from tests.lua.driver import Answer, Queue
from tests.lua.worded import ALICE, BOB, W1

ASKER = f"{ALICE}/one"
ASKED = f"0 4 0 {ASKER}"


def complete(
    queue: Queue, item: str, result: str = "done", *, by: str = W1, token: int | str = "", request: str = ""
) -> Answer:
    """Acknowledge with a result."""
    return queue.run("complete", {**queue.asked(by, item, token, request=request), "result": result})


def line(state: str, item: str, reason: str = "", result: str = "", jid: str = ASKER) -> str:
    """Write an outcome."""
    return f"{state} {len(jid)} {len(item)} {len(reason)} {jid} {item} {reason} {result}"


def lines(queue: Queue, answer: Answer) -> list[str]:
    """Return the outcomes that a script lets a frontend tell."""
    return [text for (text,) in queue.told(answer, "reply").values()]


def test_result(queue: Queue) -> None:
    """The publisher is told of the acknowledgement with the result, until that is reported; then only the kept end is left."""
    queue.publish("a", hints=ASKED)
    queue.publish("b")
    queue.subscribe(W1, 2)
    answer = complete(queue, "a", "a b\nc")
    ((entry, content),) = queue.told(answer, "reply").items()
    assert answer.rows == [["ok", W1]] and content == [line("acknowledged", "a", result="a b\nc")]
    assert lines(queue, complete(queue, "b")) == [], "nobody has asked"
    queue.end(entry)
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal", "results", "result_expiry"}


def test_plain_acknowledgement(queue: Queue) -> None:
    """A retract ends the item without a result; a queue where nobody asks has no trace of it."""
    queue.publish("a")
    queue.subscribe(W1, 5)
    assert queue.retract(W1, "a").notices == [] and not queue.client.hexists(queue.key("meta"), "replies")
    queue.publish("b", hints=ASKED)
    assert lines(queue, queue.retract(W1, "b")) == [line("acknowledged", "b")]
    # A reply alone does not make the item another one than usual.
    assert not queue.client.hexists(queue.key("meta"), "hinted")


def test_refusals(queue: Queue) -> None:
    """D5: a result gives no other right than a retract, and Q27: a repeat gets the first answer and tells nobody again."""
    queue.publish("a", hints=ASKED)
    token = queue.subscribe(W1, 1).deliveries[0].token
    assert complete(queue, "a", by=f"{ALICE}/1").words == ["locked-by-another"]
    assert complete(queue, "a", token=token + 1).words == ["lock-lost"]
    assert complete(queue, "none").words == ["item-not-found"]
    queue.unlock(W1, "a", delay_ms=60_000)
    assert complete(queue, "a", by=f"{ALICE}/1").words == ["lock-lost"], "a waiting item is not deleted"
    queue.now += 60_000
    queue.expire()
    assert len(lines(queue, complete(queue, "a", request="r"))) == 1
    again = complete(queue, "a", request="r")
    assert (again.rows, lines(queue, again)) == ([["replayed", W1]], [])


def test_told_again(queue: Queue) -> None:
    """Guarantee: an outcome is due until somebody reports that it was sent, whoever died meanwhile."""
    queue.publish("a", hints=ASKED)
    queue.subscribe(W1, 1)
    found = queue.told(complete(queue, "a"), "reply")
    assert len(found) == 1 and not queue.expire().outbox
    queue.now += 5_000
    queue.frontend = "f2"
    assert queue.told(queue.expire(), "reply") == found
    queue.end(*found)
    queue.now += 10_000
    assert not queue.expire().outbox and "outbox" not in queue.kept()


def test_a_caller_that_cannot_send(queue: Queue) -> None:
    """A process without a stream leaves the outcome to a frontend: the partition is due at once; alone, it looks again later."""
    queue.publish("a", hints=ASKED)
    queue.subscribe(W1, 1)
    queue.frontend = ""
    answer = complete(queue, "a")
    assert not answer.outbox and answer.due == queue.now
    queue.frontend = "-"
    assert queue.expire().due == queue.now + 5_000 and queue.read_outbox() == {}
    queue.frontend = "f1"
    assert lines(queue, queue.expire()) == [line("acknowledged", "a", result="done")]


def ended(queue: Queue, how: str) -> Answer:  # noqa: C901, PLR0911  (a table)
    """End the item `a` in some way."""
    row = {"sender": f"{ALICE}/1", "owner": "1", "item": "a", "request": "cancel"}
    match how:
        case "cancelled":
            return queue.run("cancel", row)
        case "held and cancelled":
            queue.subscribe(W1, 1)
            return queue.run("cancel", row)
        case "deleted":
            return queue.retract(f"{ALICE}/1", "a")
        case "purged":
            return queue.run("purge")
        case "dead":
            queue.subscribe(W1, 1)
            return queue.unlock(W1, "a", dead_letter="1", reason="torn: no disk")
        case "tried":
            queue.subscribe(W1, 1)
            for _ in range(19):
                queue.unlock(W1, "a")
            return queue.unlock(W1, "a")
        case "moved":
            (position,) = {row[5].partition("-")[2] for row in queue.page("a")[0]}
            return queue.run("move_items", {"position": position, "item": "a", "to": "other"})
        case "expired":
            queue.now += 90_000
            return queue.expire()
        case "full":
            return queue.publish("b", max_items=1, node_full="retract-oldest")
    return queue.publish("b", max_items=1, node_full="dead-letter-oldest")


@pytest.mark.parametrize(
    ("how", "state", "reason"),
    [
        ("cancelled", "cancelled", ""),
        ("held and cancelled", "cancelled", ""),
        ("deleted", "cancelled", "deleted"),
        ("purged", "cancelled", "purged"),
        ("dead", "dead", "torn: no disk"),
        ("tried", "dead", "max-deliveries"),
        ("moved", "dead", "moved"),
        ("expired", "expired", ""),
        ("full", "dead", "node-full"),
        ("full, and dead", "dead", "node-full"),
    ],
)
def test_other_ends(queue: Queue, how: str, state: str, reason: str) -> None:
    """However an item leaves its queue, its publisher is told once, and why."""
    queue.publish("a", hints=f"0 4 {90_000 if how == 'expired' else 0} {ASKER}")
    assert lines(queue, ended(queue, how)) == [line(state, "a", reason)]
    assert "replies" not in queue.kept()


def test_coming_back_is_no_end(queue: Queue) -> None:
    """An item that is released, expires or bounces goes on: its publisher is told at its end only."""
    queue.publish("a", hints=ASKED)
    held = queue.subscribe(W1, 1).deliveries[0]
    again = queue.bounce(W1, held).deliveries[0]
    assert lines(queue, queue.unlock(W1, "a", again.token)) == []
    queue.now += 60_001
    assert lines(queue, queue.expire()) == []
    assert lines(queue, complete(queue, "a")) == [line("acknowledged", "a", result="done")]


def test_versions(queue: Queue) -> None:
    """X1: whoever asked last about an id is told of its end; a version that takes the place of another keeps who asked."""
    queue.publish("a", hints=ASKED)
    queue.publish("a", body="two", by=BOB)
    queue.subscribe(W1, 1)
    queue.publish("a", body="three", hints=f"0 4 0 {BOB}/x", by=BOB)
    queue.publish("a", body="four", by=BOB)
    # Ends the version that the worker had, and makes the next one an item.
    assert lines(queue, queue.retract(W1, "a")) == [line("acknowledged", "a")]
    assert lines(queue, queue.retract(W1, "a")) == [line("acknowledged", "a", jid=f"{BOB}/x")]


def test_a_version_with_another_priority(queue: Queue) -> None:
    """A version that is stored anew keeps who asked about the earlier one; one behind a lock does when it takes its place."""
    queue.publish("a", hints=ASKED)
    queue.publish("a", body="urgent", hints="0 9 0")
    queue.subscribe(W1, 1)
    queue.publish("a", body="later")
    assert lines(queue, queue.unlock(W1, "a")) == [], "the later version has taken its place"
    assert lines(queue, queue.retract(W1, "a")) == [line("acknowledged", "a")]
    assert "replies" not in queue.kept()
