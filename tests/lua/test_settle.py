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


def test_excess_is_told_and_recalled(parts: Parts) -> None:
    """Q10: who asks for less gets less: what the others have too much is told, and comes back even out of their locks."""
    bank, one, two = parts
    born = seated(parts, W1, 5)
    for queue, amount in ((one, 3), (two, 2)):
        ((_, _, taken),) = bank.withdraw(amount, W1)
        queue.publish("a", "b", "c")
        queue.deposit(W1, born, taken)
    born = str(bank.subscribe(W1, 1, must="1").rows[0][3])
    lent = one.sit(W1, born)[1] + two.sit(W1, born)[1]
    assert bank.settle(W1, born, lent).rows == [["ok", 4]]
    for queue, most in ((one, 3), (two, 1)):
        ((_, gift, amount),) = queue.withdraw(most, W1, recall="1")
        assert bank.deposit(W1, gift, amount).words == ["ok"]
    assert parted(parts, W1) == [0, 0, 1]
    (lock, *_) = one.locks(W1)
    assert one.retract(W1, lock[0]).given == []
    assert bank.run("options", {"subid": subid(W1)}).rows == [["ok", 1, "unacknowledged"]]
