"""lua/deposit.lua: credit that was taken out of one partition is put into another."""

from tests.lua.driver import Queue
from tests.lua.seated import parted, seated

W1 = "w1@x/a"
Parts = tuple[Queue, Queue, Queue]


def test_hands_out_at_once(parts: Parts) -> None:
    """Items that waited for credit go with it, and what is not used is told."""
    bank, one, two = parts
    born = seated(parts, W1, 4)
    assert one.publish("a").lending[0] == 1
    (gift,) = bank.withdraw(3)
    answer = one.deposit(W1, born, gift[2])
    assert answer.given == [(W1, "a")] and answer.lending[:3] == [0, 1, 1]
    assert parted(parts, W1) == [1, 3, 0]
    (gift,) = one.withdraw(2)
    assert two.deposit(W1, born, 2).words == ["ok"]
    assert parted(parts, W1) == [1, 1, 2]


def test_home_again(parts: Parts) -> None:
    """What comes back to the bank is not lent any more: a later change of the total counts from there."""
    bank, one, _ = parts
    born = seated(parts, W1, 4)
    bank.withdraw(4)
    one.deposit(W1, born, 4)
    one.withdraw(4)
    assert bank.deposit(W1, born, 4).words == ["ok"]
    assert parted(parts, W1) == [4, 0, 0]
    seated(parts, W1, 6)
    assert parted(parts, W1) == [6, 0, 0]


def test_nobody_there(parts: Parts) -> None:
    """A deposit for one who has left in between is dropped; nobody is subscribed by it."""
    bank, one, _ = parts
    born = seated(parts, W1, 1)
    bank.withdraw(1)
    one.unsubscribe(W1)
    assert one.deposit(W1, born, 1).words == ["not-subscribed"]
    assert one.stats()["subscribers"] == 0


def test_before_its_count(parts: Parts) -> None:
    """What belongs to a count that has not come here yet is lost, which is told: only another count gives it back."""
    bank, one, two = parts
    seated(parts, W1, 1)
    born = bank.recount(W1)
    two.sit(W1, born)
    assert one.deposit(W1, born, 1).words == ["not-subscribed"]
    one.sit(W1, born)
    assert one.deposit(W1, born, 1).words == ["ok"]
