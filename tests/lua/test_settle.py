"""lua/settle.lua: a count ends; the bank has what the others have not."""

from broker.redis_core.calls.call import subid
from tests.lua.driver import Queue
from tests.lua.seated import parted, seated

W1 = "w1@x/a"
Parts = tuple[Queue, Queue, Queue]


def test_gives_back_what_was_lost(parts: Parts) -> None:
    """Guarantee 3: credit lost between two partitions is missed until a count gives it back to the bank, which hands out."""
    bank, one, two = parts
    seated(parts, W1, 3)
    bank.withdraw(3, W1)
    bank.publish("a")
    assert parted(parts, W1) == [0, 0, 0] and bank.stats()["in_flight"] == 0
    born = bank.recount(W1)
    lent = one.sit(W1, born)[1] + two.sit(W1, born)[1]
    assert bank.settle(W1, born, lent).given == [(W1, "a")]
    assert parted(parts, W1) == [3, 0, 0]


def test_what_was_underway_is_not_counted_twice(parts: Parts) -> None:
    """Guarantee 3: what a count has missed and given back is dropped when it arrives after all."""
    bank, one, two = parts
    seated(parts, W1, 3)
    ((_, old, amount),) = bank.withdraw(3, W1)
    born = bank.recount(W1)
    lent = one.sit(W1, born)[1] + two.sit(W1, born)[1]
    bank.settle(W1, born, lent)
    assert one.deposit(W1, old, amount).words == ["superseded"]
    assert bank.deposit(W1, old, amount).words == ["superseded"]
    assert parted(parts, W1) == [3, 0, 0]


def test_nothing_is_lent_while_it_counts(parts: Parts) -> None:
    """Guarantee 3: what left the bank after the others were asked would be in nobody's count."""
    bank, _, _ = parts
    seated(parts, W1, 3)
    born = bank.recount(W1)
    assert bank.withdraw(3) == bank.withdraw(3, W1) == []
    bank.settle(W1, born, 0)
    assert bank.withdraw(3) != []


def test_only_the_last_count_and_once(parts: Parts) -> None:
    """Two frontends may count at once, and a reply may be lost: an ended count cannot end again."""
    bank, _, _ = parts
    older = str(bank.subscribe(W1, 3).rows[0][3])
    newer = bank.recount(W1)
    assert bank.settle(W1, older, 0).words == ["superseded"]
    assert bank.settle(W1, newer, 1).rows == [["ok", 0]]
    assert bank.settle(W1, newer, 0).words == ["superseded"]
    assert bank.credit(W1) == 2
    assert bank.settle("nobody@x/y", newer, 0).words == ["not-subscribed"]


def lent(parts: Parts, born: str, *, forgive: str = "") -> int:
    """Let the other partitions sit down for a count; gives what they have."""
    return sum(int(queue.sit(W1, born, forgive=forgive)[1]) for queue in parts[1:])


def spread(parts: Parts, *amounts: int) -> None:
    """Put credit out of the bank into the other partitions, where items wait that need twice as much."""
    born = seated(parts, W1, 5)
    for queue, amount in zip(parts[1:], amounts, strict=True):
        for _, _, taken in parts[0].withdraw(amount, W1):
            queue.deposit(W1, born, taken)


def lowered(parts: Parts, credit: int) -> list[list[int | str]]:
    """Ask for another credit and count; gives what the bank answers."""
    born = str(parts[0].subscribe(W1, credit, must="1").rows[0][3])
    return parts[0].settle(W1, born, lent(parts, born)).rows


def test_free_credit_is_taken_back(parts: Parts) -> None:
    """Q10: who asks for less gets less: what the others have too much is told, and its free part can be withdrawn."""
    bank, one, two = parts
    spread(parts, 3, 2)
    assert lowered(parts, 1) == [["ok", 4]]
    for queue, most in ((one, 3), (two, 1)):
        ((_, born, amount),) = queue.withdraw(most, W1)
        assert bank.deposit(W1, born, amount).words == ["ok"]
    assert parted(parts, W1) == [0, 0, 1]


def test_locks_beyond_the_credit_are_not_replaced(parts: Parts) -> None:
    """Guarantee 3: who holds more than it may gets nothing until it does not, in whichever partition it holds it."""
    bank, one, two = parts
    spread(parts, 3, 2)
    for queue in (one, two):
        queue.publish("a", "b", "c", "d")
    assert lowered(parts, 2) == [["ok", 3]]
    for queue in (one, two):
        assert queue.withdraw(3, W1, recall="1") == []
    assert parted(parts, W1) == [0, 0, 0]
    for held in (2, 1):
        answer = one.run("retract", one.asked(W1, one.locks(W1)[0][0]))
        assert answer.given == [] and answer.lending[5] == [[subid(W1), ""]], "whoever hears of it counts anew"
        assert lowered(parts, 2) == [["ok", held]]
    two.retract(W1, two.locks(W1)[0][0])
    assert lowered(parts, 2) == [["ok", 0]]
    assert lent(parts, bank.recount(W1), forgive="1") == 2 and parted(parts, W1) == [0, 1, 1]
    answer = one.run("retract", one.asked(W1, one.locks(W1)[0][0]))
    assert len(answer.given) == 1 and answer.lending[5] == []


def test_what_is_held_counts_when_there_is_more_again(parts: Parts) -> None:
    """Guarantee 3: credit that is lowered and raised while its locks last is not there twice."""
    bank, one, two = parts
    spread(parts, 3, 2)
    one.publish("a", "b", "c")
    assert lowered(parts, 1) == [["ok", 4]]
    for queue in (one, two):
        for _, born, amount in queue.withdraw(4, W1, recall="1"):
            bank.deposit(W1, born, amount)
    assert lowered(parts, 4) == [["ok", 0]]
    assert parted(parts, W1) == [1, 0, 0]


def test_what_the_bank_holds_counts_too(parts: Parts) -> None:
    """Guarantee 3: what is held in the bank leaves the others less."""
    bank, _, _ = parts
    spread(parts, 2, 0)
    bank.publish("a", "b", "c")
    assert len(bank.locks(W1)) == 3
    assert lowered(parts, 3) == [["ok", 2]]


def test_put_out_by_a_count_that_failed(parts: Parts) -> None:
    """E28: who has left while it was counted is known nowhere; what it has become the owner of since, it keeps."""
    bank, one, two = parts
    born = str(bank.subscribe(W1, 3).rows[0][3])
    bank.unsubscribe(W1, kept="1")
    assert lent(parts, born) == 0
    assert one.attach(W1).words == ["ok"]
    assert bank.settle(W1, born, 0).words == ["not-subscribed"]
    assert one.unsubscribe(W1, release="1", kept="1", born=born).words == ["superseded"]
    assert two.unsubscribe(W1, release="1", kept="1", born=born).words == ["ok"]
    assert one.publish("a").given == [(W1, "a")]
    assert not two.client.hexists(two.key("shares"), subid(W1)) and not two.client.hexists(
        two.key("subscribers"), subid(W1)
    )


def test_locks_that_end_together(parts: Parts) -> None:
    """Guarantee 3: who held more than its credit is counted anew, also where so much ends at once that it has room again."""
    bank, one, _ = parts
    born = seated(parts, W1, 4)
    one.deposit(W1, born, bank.withdraw(2, W1)[0][2])
    bank.publish("a", "b")
    one.publish("c", "d")
    assert len(bank.locks(W1)) == len(one.locks(W1)) == 2
    assert lowered(parts, 3) == [["ok", 1]] and bank.credit(W1) == 1
    answer = bank.run("retract", bank.asked(W1, "a"), bank.asked(W1, "b"))
    assert answer.lending[5] == [[subid(W1), ""]]
    # Within its credit an end has nothing to tell.
    bank.publish("e")
    assert len(bank.locks(W1)) == 1
    assert bank.run("retract", bank.asked(W1, "e")).lending[5] == []
