"""lua/withdraw.lua: credit is taken out of a partition for another."""

from tests.lua.driver import Queue
from tests.lua.seated import parted, seated

W1, W2 = "w1@x/a", "w2@x/b"
Parts = tuple[Queue, Queue, Queue]


def test_takes_what_is_free(parts: Parts) -> None:
    """Guarantee 3: what is in use stays, and of what is free no more goes than is asked for."""
    bank, _, _ = parts
    seated(parts, W1, 3)
    bank.publish("a")
    assert [amount for _, _, amount in bank.withdraw(1)] == [1]
    assert [amount for _, _, amount in bank.withdraw(5)] == [1]
    assert bank.withdraw(5) == []
    assert parted(parts, W1) == [1, 0, 0]


def test_from_whoever_waits_longest(parts: Parts) -> None:
    """Q22: credit goes in the order in which its owners would be served here."""
    bank, _, _ = parts
    seated(parts, W1, 1)
    seated(parts, W2, 1)
    bank.publish("a")
    served = bank.locks(W1)
    free, taken = (W2, W1) if served else (W1, W2)
    (gift,) = bank.withdraw(5)
    assert bank.credit(free) == 0 and bank.credit(taken) == 1 and gift[2] == 1


def test_spent_credit_is_no_turn(parts: Parts) -> None:
    """Whoever has no credit left here is offered nothing, until some comes."""
    bank, _, _ = parts
    born = seated(parts, W1, 1)
    bank.withdraw(1)
    assert bank.publish("a").given == []
    assert bank.deposit(W1, born, 1).given == [(W1, "a")]


def test_yields_what_is_freed(parts: Parts) -> None:
    """No partition starves: who has nothing gets what is freed elsewhere, though items wait there too."""
    bank, one, _ = parts
    born = seated(parts, W1, 1)
    bank.publish("a", "b")
    one.publish("c")
    answer = bank.run("retract", bank.asked(W1, "a"), wants="1 0 -")
    wanted, spare, locked, gifts, ended, owing, _ = answer.lending
    assert answer.given == [] and (wanted, spare, locked, ended, owing) == (1, 0, 0, [], [])
    assert [(to, count, amount) for to, _, count, amount, _ in gifts] == [("1", born, 1)]
    assert one.deposit(W1, born, 1).given == [(W1, "c")]
    # And back again, the other way.
    answer = one.run("retract", one.asked(W1, "c"), wants="0 0 -")
    assert [(to, amount) for to, _, _, amount, _ in answer.lending[3]] == [("0", 1)]


def test_keeps_as_much_as_the_others_have(parts: Parts) -> None:
    """Credit comes to rest: with as much in use as who is in need, nothing more is given away."""
    bank, _, _ = parts
    seated(parts, W1, 2)
    bank.publish(*"abcd")
    kept = bank.run("retract", bank.asked(W1, "a"), wants="1 1 -")
    assert kept.lending[3] == [] and kept.given == [(W1, "c")]
    given = bank.run("retract", bank.asked(W1, "b"), wants="0 0 - 1 0 -")
    assert [gift[0] for gift in given.lending[3]] == ["1"]


def test_plain_nodes_say_nothing(queue: Queue) -> None:
    """A node of one partition has nothing to say of credit, and gives none away."""
    queue.subscribe(W1, 1)
    assert queue.publish("a", "b").lending == []
    answer = queue.run("retract", queue.asked(W1, "a"), wants="1 0 -")
    assert answer.lending == [] and answer.given == [(W1, "b")]
