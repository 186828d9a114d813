"""lua/sit.lua: a subscription is made known in a partition that is not the bank."""

from broker.redis_core.calls.call import subid
from tests.lua.driver import Queue
from tests.lua.seated import parted, seated

W1 = "w1@x/a"
Parts = tuple[Queue, Queue, Queue]


def test_begins_with_nothing(parts: Parts) -> None:
    """Guarantee 3: all of a new subscription's credit lies in the bank."""
    seated(parts, W1, 5)
    assert parted(parts, W1) == [5, 0, 0]


def test_keeps_what_it_has(parts: Parts) -> None:
    """A count moves nothing: what lies in a partition stays there and is told."""
    born = seated(parts, W1, 5)
    bank, one, _ = parts
    ((_, taken, amount),) = bank.withdraw(2, W1)
    assert (taken, amount) == (born, 2) and one.deposit(W1, taken, amount).words == ["ok"]
    assert one.sit(W1, bank.recount(W1)) == ["ok", 2, 0]


def test_locks_of_an_earlier_subscription_count(parts: Parts) -> None:
    """Guarantee 3, Q34: whoever comes back holding items there is not given their places a second time."""
    bank, one, _ = parts
    born = seated(parts, W1, 2)
    ((_, _, amount),) = bank.withdraw(1, W1)
    one.publish("a")
    assert one.deposit(W1, born, amount).given == [(W1, "a")]
    for queue in parts:
        queue.unsubscribe(W1)
    seated(parts, W1, 2)
    assert parted(parts, W1) == [1, 1, 0]
    one.publish("b")
    bank.publish("c")
    assert bank.publish("d").given == [] and len(bank.locks(W1)) == len(one.locks(W1)) == 1


def test_an_older_count_changes_nothing(parts: Parts) -> None:
    """Two frontends may count at once: the one that began later is the one that counts."""
    bank, one, _ = parts
    older = str(bank.subscribe(W1, 5).rows[0][3])
    newer = bank.recount(W1)
    assert one.sit(W1, newer)[0] == "ok"
    assert one.sit(W1, older) == ["superseded"]


def test_quality_of_service_is_kept(parts: Parts) -> None:
    """S6: deliveries of every partition go by the level that was asked for."""
    bank, one, _ = parts
    born = str(bank.subscribe(W1, 1, "acknowledged").rows[0][3])
    one.sit(W1, born, "acknowledged")
    bank.settle(W1, born, 0)
    ((_, born, amount),) = bank.withdraw(1, W1)
    one.publish("a")
    assert [delivery.stage for delivery in one.deposit(W1, born, amount).deliveries] == ["acknowledged"]


def test_an_owner_begins_anew(parts: Parts) -> None:
    """E10: who begins to share the node owns nothing, has what it holds, and what waited for it waits for all."""
    _, one, _ = parts
    one.attach(W1, credit=3)
    assert one.publish("a").given == [(W1, "a")]
    answer = one.run(
        "sit",
        {
            "subid": subid(W1),
            "jid": W1,
            "qos": "unacknowledged",
            "born": "9",
            "forgive": "",
            "pool": "",
            "several": "",
            "selector": "",
        },
    )
    assert answer.rows == [["ok", 1, 0]] and answer.more == 1
    assert one.credit(W1) == 1 and one.publish("b").lending[:2] == [1, 0], "nothing is to spare"


def test_what_is_held_beyond_the_credit(parts: Parts) -> None:
    """Guarantee 3: it counts as a part, and is credit again when the count says that it may be."""
    bank, one, _ = parts
    born = seated(parts, W1, 2)
    one.publish("a", "b")
    for _, _, amount in bank.withdraw(2, W1):
        one.deposit(W1, born, amount)
    one.withdraw(1, W1, recall="1")
    assert one.credit(W1) == 0
    born = bank.recount(W1)
    assert one.sit(W1, born) == ["ok", 2, 1] and one.credit(W1) == 0
    assert one.sit(W1, born, forgive="1") == ["ok", 2, 0] and one.credit(W1) == 2
