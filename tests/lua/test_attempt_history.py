"""lua/lib/locks/attempt_history.lua: an item that came back, and a dead letter, tell their attempts."""

from broker.model.items.attempts import Attempt, from_header, read, to_header
from broker.model.names import Jid
from tests.lua.driver import T0, Letter, Queue
from tests.lua.worded import W1


def attempts(queue: Queue, item: str = "a") -> list[Attempt]:
    """Return the attempts of an item."""
    ((*_, lines, _awaited_by),) = queue.run("inspect_items", {"item": item}).rows[1]
    return list(read(lines.encode()))


def died(letter: Letter) -> list[Attempt]:
    """Return the attempts of a dead letter."""
    return list(read(letter.history.encode()))


def test_each_attempt_is_told(unopened: Queue) -> None:
    """Q32: whoever had the item, when that ended, how, and why; a dead letter has the last attempt as well."""
    unopened.open(max_deliveries=4)
    unopened.publish("a")
    spaced, wide = "u@x/two words", "ü@x/\N{SNOWMAN}"
    unopened.subscribe(spaced, 1)
    assert attempts(unopened) == []
    unopened.unlock(spaced, "a", reason="no disk: /var 100 %\nagain", untried="1")
    unopened.now += 60_000
    unopened.expire()
    unopened.unsubscribe(spaced, release="1")
    (delivery,) = unopened.subscribe(wide, 1).deliveries
    unopened.now += 1
    again = unopened.bounce(wide, delivery)
    found = [
        Attempt(T0, "released", Jid(spaced), "no disk: /var 100 % again"),
        Attempt(T0 + 60_000, "expired", Jid(spaced), ""),
        Attempt(T0 + 60_000, "released", Jid(spaced), "unavailable"),
        Attempt(T0 + 60_001, "bounced", Jid(wide), ""),
    ]
    assert attempts(unopened) == found
    assert (again.deliveries[0].attempt, again.deliveries[0].untried) == (4, "1")
    answer = unopened.unlock(wide, "a")
    found.append(Attempt(T0 + 60_001, "released", Jid(wide), ""))
    # However often it is read, until it has arrived.
    (letter,) = unopened.letters(answer)
    unopened.now += 5_000
    assert unopened.letters(unopened.expire()) == [letter] and died(letter) == found
    unopened.end(letter.entry)
    assert not {"history", "outbox_items"} & unopened.kept()


def test_the_first_attempt_of_a_dead_letter(queue: Queue) -> None:
    """Q32: a dead letter of one attempt has that one, and one that a full node made has none."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    (letter,) = queue.letters(queue.unlock(W1, "a", dead_letter="1", reason="torn"))
    assert died(letter) == [Attempt(T0, "released", Jid(W1), "torn")]
    queue.retract(W1, "b")
    queue.unsubscribe(W1)
    queue.publish("c")
    (full,) = queue.letters(queue.publish("d", max_items=1, node_full="dead-letter-oldest"))
    assert (full.reason, died(full)) == ("node-full", [])


def test_what_is_acknowledged_at_once_costs_nothing(queue: Queue) -> None:
    """A plain job has no history; that of an item that came back goes with its acknowledgement, move or deletion."""
    queue.subscribe(W1, 3)
    queue.publish("a")
    queue.retract(W1, "a")
    assert "history" not in queue.kept()
    places = {each.item: each.position for each in queue.publish("a", "b", "c").deliveries}
    for item in places:
        queue.unlock(W1, item, delay_ms=1_000)
        assert len(attempts(queue, item)) == 1
    queue.retract("alice@x/home", "b")
    queue.run("move_items", {"position": places["c"], "item": "c", "to": "other"})
    queue.now += 1_000
    queue.expire()
    assert queue.retract(W1, "a").words == ["ok"]
    assert "history" not in queue.kept()


def test_a_new_version_begins_anew(queue: Queue) -> None:
    """X1: a replaced item loses the history of its earlier version."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.unlock(W1, "a", delay_ms=1_000)
    queue.publish("a", body="new")
    assert attempts(queue) == []


def test_they_are_bounded(unopened: Queue) -> None:
    """The last twenty are kept, or those that take 2 KiB; the last one always."""
    unopened.open(max_deliveries=0)
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    for number in range(30):
        unopened.unlock(W1, "a", reason=f"{number}")
    assert [each.reason for each in attempts(unopened)] == [f"{number}" for number in range(10, 30)]
    for _ in range(4):
        unopened.unlock(W1, "a", reason="x" * 900)
    assert [len(each.reason) for each in attempts(unopened)] == [900, 900]
    unopened.unlock(W1, "a", reason="y" * 4_000)
    assert [len(each.reason) for each in attempts(unopened)] == [4_000]


def test_an_earlier_record_has_no_attempts(queue: Queue) -> None:
    """A rolling upgrade: the line of an earlier version is read, and goes on with attempts."""
    queue.publish("a")
    (delivery,) = queue.subscribe(W1, 1).deliveries
    queue.unlock(W1, "a", delay_ms=1_000)
    line = queue.client.hget(queue.key("history"), delivery.position)
    assert isinstance(line, bytes)
    queue.client.hset(queue.key("history"), delivery.position, line.partition(b"\n")[0])
    assert attempts(queue) == []
    queue.now += 1_000
    assert queue.expire().deliveries[0].attempt == 2
    queue.unlock(W1, "a", delay_ms=1_000)
    assert [each.ended_ms for each in attempts(queue)] == [T0 + 1_000]


def test_a_corrupt_record() -> None:
    """A line that somebody wrote with redis-cli does not hold up a dead letter."""
    lines = f"x\n{T0} expired 5 w@x/a \n\n{T0} expired w@x/a\n{10**40} expired 1 a \n{T0} bounced 1 ".encode()
    assert [each.outcome for each in read(lines + b"\xff")] == ["expired", "bounced"]


def test_a_header() -> None:
    """The header is ASCII; whatever else somebody wrote into it is no history."""
    one = Attempt(1_795_296_953_485, "expired", Jid("ü@x/1"), "")
    assert to_header([one]).isascii()
    shown = [{"ended": "2026-11-21T21:35:53.485Z", "outcome": "expired", "holder": "ü@x/1", "reason": ""}]
    assert from_header(to_header([one])) == [one.to_json()] == shown
    for wrong in ("", "{", "{}", "[1]", '[{"ended":1}]', "[" * 100_000, "null"):
        assert from_header(wrong) == []
