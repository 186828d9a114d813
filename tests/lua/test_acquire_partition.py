"""acquire_partition: own a partition under an epoch and a fence."""

import pytest

from tests.lua.driver import Queue
from tests.lua.worded import W1, W2, W3

MOST = 2**63 - 1


def refused(queue: Queue, jid: str, epoch: object = "", group: str = "g") -> bool:
    """Return whether an attach is refused, which must not change anything."""
    before = [queue.client.hgetall(queue.key(name)) for name in ("meta", "group_epochs", "subscribers", "inflight")]
    answer = queue.attach(jid, epoch, group=group)
    if answer.words == ["ok"]:
        return False
    assert answer.words == ["partition-owned"]
    assert before == [
        queue.client.hgetall(queue.key(name)) for name in ("meta", "group_epochs", "subscribers", "inflight")
    ]
    return True


def lease_of(queue: Queue) -> int:
    """Return the end of the owner's lease."""
    line = queue.client.hget(queue.key("meta"), "owner")
    assert isinstance(line, bytes)
    return int(line.split()[1])


def test_answers_epoch_fence_and_lease(queue: Queue) -> None:
    """E27, EX11: the first attach gets its epoch or 1 and a fence of the partition's tokens."""
    answer = queue.attach(W1)
    assert answer.rows == [["ok", "1", answer.token, queue.now + 60_000, 10]]
    assert answer.due == queue.now + 60_000


def test_ex15_first_epochs(queue: Queue) -> None:
    """EX15, E27: without an owner epoch 0 is accepted first, absent is recorded + 1, and all of 2^63-1 is exact (EX12)."""
    assert queue.attach(W1, 0).rows[0][1] == "0"
    assert queue.attach(W2, 2**53 + 1).rows[0][1] == str(2**53 + 1)
    assert queue.attach(W3, 2**53 + 2).rows[0][1] == str(2**53 + 2)
    assert queue.attach(W1, MOST).rows[0][1] == str(MOST)
    assert refused(queue, W2, MOST)


@pytest.mark.parametrize("epoch", ["", 0, 4, 5])
def test_ex13_ex14_not_greater(queue: Queue, epoch: object) -> None:
    """EX13, EX14: with an active owner no epoch, a lower one and the same one are refused, and change nothing."""
    queue.publish("a")
    queue.attach(W1, 5)
    assert refused(queue, W2, epoch)
    assert queue.retract(W1, "a").words == ["ok"]


@pytest.mark.parametrize(("held", "asked"), [(5, 6), (9, 10), (99, 100), (2**53, 2**53 + 1)])
def test_e28_steals(queue: Queue, held: int, asked: int) -> None:
    """E28: a greater epoch takes the partition; its items are locked with new tokens, and the loser gets a notice."""
    queue.publish("a", "b")
    first = queue.attach(W1, held)
    old = first.deliveries
    answer = queue.attach(W2, asked)
    assert answer.notices == [["lost", W1, "g", str(held), first.rows[0][2], "stolen"]]
    assert answer.given == [(W2, "a"), (W2, "b")]
    fence = answer.rows[0][2]
    assert max(d.token for d in old) < fence < min(d.token for d in answer.deliveries)
    assert queue.retract(W1, "a", old[0].token).words == ["locked-by-another"]
    assert [(r["type"], r["reason"]) for r in queue.journal()] == [("released", "stolen")] * 2


def test_ex11_old_fence_of_the_same_jid(queue: Queue) -> None:
    """EX11: an owner that takes the partition from itself can use only the new tokens."""
    queue.publish("a")
    old = queue.attach(W1, 1).deliveries[0].token
    new = queue.attach(W1, 2).deliveries[0].token
    assert queue.retract(W1, "a", old).words == ["lock-lost"]
    assert queue.unlock(W1, "a", old).words == ["lock-lost"]
    assert queue.renew(W1, "a", old).words == ["lock-lost"]
    assert queue.retract(W1, "a", new).words == ["ok"]


def test_less_than_it_holds(queue: Queue) -> None:
    """Guarantee 3: an owner that asks for less credit than it has locks gets a higher fence; its locks end."""
    queue.publish("a", "b")
    first = queue.attach(W1, 3, credit=2)
    assert queue.attach(W1, credit=2).rows[0][2] == first.rows[0][2]
    answer = queue.attach(W1, credit=1)
    assert answer.notices == [["lost", W1, "g", "3", first.rows[0][2], "moved"]]
    assert answer.rows[0][1] == "3" and answer.rows[0][2] > first.rows[0][2]
    assert answer.given == [(W1, "a")]


def test_again_without_an_epoch(queue: Queue) -> None:
    """EX16: an owner that asks again keeps epoch and fence; its lease is renewed and its credit changed."""
    queue.publish("a", "b")
    first = queue.attach(W1, 3, credit=1)
    queue.now += 10_000
    again = queue.attach(W1, credit=2)
    assert again.rows == [["ok", "3", first.rows[0][2], queue.now + 60_000, 2]]
    assert (again.given, again.notices) == ([(W1, "b")], [])
    assert refused(queue, W1, 3)


def test_exclusive(queue: Queue) -> None:
    """E28: only the owner gets items, however many others have credit, from before it or after it."""
    queue.subscribe(W2, 100)
    queue.attach(W1, credit=2)
    queue.subscribe(W3, 100)
    assert queue.publish("a", "b", "c").given == [(W1, "a"), (W1, "b")]
    assert queue.unlock(W1, "a").given == [(W1, "a")]
    assert queue.stats()["credit_free"] == 0
    assert len(queue.unsubscribe(W1, release="1").given) == 3


def test_sharing_again(queue: Queue) -> None:
    """P6: an owner that subscribes without a group shares the node with others, and the partition is free."""
    queue.subscribe(W2, 1)
    queue.attach(W1, 7)
    queue.subscribe(W1, 1)
    assert {jid for jid, _item in queue.publish("a", "b").given} == {W1, W2}
    assert queue.attach(W3, 0).words == ["ok"]


def test_shared_locks_end(queue: Queue) -> None:
    """EX11: locks of shared subscribers end with an attach too, with notices; their tokens are below the fence."""
    queue.publish("a")
    queue.subscribe(W2, 1)
    token = queue.locks(W2)[0][1]
    answer = queue.attach(W1)
    assert answer.given == [(W1, "a")] and answer.notices == [["ended", W2, "a", token]]
    assert queue.retract(W2, "a").words == ["locked-by-another"]


def test_a_second_group(queue: Queue) -> None:
    """E28: an item goes to one worker, so another group's attach is refused while one owns the partition, by any epoch."""
    queue.attach(W1, 1)
    assert refused(queue, W2, 99, group="h")
    queue.unsubscribe(W1)
    assert queue.attach(W2, group="h").rows[0][1] == "1"


def test_e29_orderly_detach(queue: Queue) -> None:
    """E29, EX11: an orderly detach resets the epoch and never the fence."""
    fence = queue.attach(W1, 7).rows[0][2]
    queue.unsubscribe(W1)
    again = queue.attach(W2, 0)
    assert again.rows[0][1] == "0"
    assert again.rows[0][2] > fence


def test_ex11_lost_connection(queue: Queue) -> None:
    """EX11, EX15: after a lost connection the slot is free at once and the epoch holds until the lease would have ended."""
    queue.publish("a")
    queue.attach(W1, 7)
    queue.unsubscribe(W1, release="1", kept="1")
    assert refused(queue, W2, 0)
    assert refused(queue, W2, 7)
    assert queue.attach(W2).rows[0][1] == "8"
    queue.unsubscribe(W2, release="1", kept="1")
    queue.now += 60_000
    assert queue.attach(W3, 0).words == ["ok"]


def test_ex16_lapse(queue: Queue) -> None:
    """EX16: the lease's end frees the slot, ends the locks, resets the epoch, notifies the owner, and keeps the fence."""
    queue.publish("a")
    fence = queue.attach(W1, 7).rows[0][2]
    queue.now += 59_999
    assert queue.expire().notices == []
    queue.renew(W1, "a")
    queue.now += 60_000
    answer = queue.expire()
    assert answer.notices == [["unlocked", W1, "a", fence + 1], ["lost", W1, "g", "7", fence, "lapsed"]]
    assert queue.browse() == {"a": "waiting"}
    assert queue.attach(W2, 0).rows[0][2] > fence


def test_a_lapsed_owner_gives_way(queue: Queue) -> None:
    """EX16, E28: an attach before the sweep finds the expired owner gone, by whatever epoch."""
    queue.publish("a")
    queue.attach(W1, 7)
    queue.now += 60_000
    answer = queue.attach(W2, 0, group="h")
    assert answer.words == ["ok"]
    assert [(notice[1], notice[5]) for notice in answer.notices] == [(W1, "lapsed")]
    assert answer.given == [(W2, "a")]


@pytest.mark.parametrize("operation", ["retract", "unlock", "renew", "subscribe"])
def test_ex16_what_renews(queue: Queue, operation: str) -> None:
    """EX16: any command of the owner renews its lease when half of it is gone; commands of others do not."""
    queue.publish("a", "b")
    queue.attach(W1, credit=1)
    queue.now += 29_999
    call = getattr(queue, operation)

    def act(jid: str, item: str) -> None:
        call(jid, 2, must="1") if operation == "subscribe" else call(jid, item)

    act(W1, "a")
    lease = queue.now + 30_001
    assert lease_of(queue) == lease
    queue.now += 1
    act(W2, "b")
    assert lease_of(queue) == lease
    act(W1, "b")
    assert lease_of(queue) == queue.now + 60_000


def test_expected_fence(queue: Queue) -> None:
    """EX11: an assignment that was computed from an old fence changes nothing."""
    fence = queue.attach(W1).rows[0][2]
    assert queue.attach(W2, "+", expected=fence - 1).words == ["stale"]
    assert queue.attach(W2, "+", expected=fence).rows[0][1] == "2"


def test_dry(queue: Queue) -> None:
    """A dry attach returns what would happen, and changes nothing."""
    queue.publish("a")
    queue.attach(W1, 3)
    before = queue.client.hgetall(queue.key("meta"))
    assert queue.attach(W2, 4, dry="1").words == ["ok"]
    assert queue.attach(W2, 3, dry="1").words == ["partition-owned"]
    assert queue.client.hgetall(queue.key("meta")) == before
    assert queue.retract(W1, "a").words == ["ok"]


def test_no_epoch_after_the_last(queue: Queue) -> None:
    """EX12: there is no next epoch after 2^63-1, until the last one is reset."""
    queue.attach(W1, MOST)
    assert queue.attach(W2, "+").words == ["partition-owned"]
    queue.unsubscribe(W1, kept="1")
    assert queue.attach(W2).words == ["partition-owned"]
    queue.now += 60_000
    assert queue.attach(W2).rows[0][1] == "1"


def test_in_bounded_parts(queue: Queue) -> None:
    """X7, EX11: of many locks some end in the call; the fence refuses the rest, and until they end nobody gets items."""
    for first in range(0, 700, 100):
        queue.publish(*(f"i{n}" for n in range(first, first + 100)))
    given = queue.attach(W1, 1, credit=1_000).deliveries
    while len(given) < 700:
        given += queue.expire().deliveries
    answer = queue.attach(W2, 2, credit=1_000)
    assert (answer.more, answer.deliveries, answer.due) == (1, [], queue.now)
    assert queue.stats()["in_flight"] == 400
    last = given[-1]
    assert queue.retract(W1, last.item, last.token).words == ["lock-lost"]
    taken = []
    while answer.more:
        answer = queue.expire()
        taken += answer.given
    assert sorted(item for _jid, item in taken) == sorted(f"i{n}" for n in range(700))
    assert {jid for jid, _item in taken} == {W2}


def test_gone(queue: Queue) -> None:
    """P30, EX11: an owner that nothing reaches loses its partition, and the notice is returned."""
    queue.publish("a")
    answer = queue.attach(W1, 3)
    gone = queue.bounce(W1, answer.deliveries[0], gone="1")
    assert [(notice[1], notice[5]) for notice in gone.notices if notice[0] == "lost"] == [(W1, "gone")]
    assert refused(queue, W2, 3)
    assert queue.attach(W2, 4).given == [(W2, "a")]


def test_bounds(queue: Queue) -> None:
    """P6, guarantee 6: past the bound of subscribers an attach is refused; groups that are over leave no record behind."""
    queue.subscribe(W1, 1)
    assert queue.attach(W2, max_subscribers=1).words == ["too-many-subscriptions"]
    for number in range(1_001):
        queue.attach(W2, group=f"g{number}")
        queue.unsubscribe(W2, kept="1" if number < 1_000 else "")
    assert queue.attach(W2, group="h").words == ["too-many-subscriptions"]
    queue.now += 60_000
    assert queue.attach(W2, group="h").words == ["ok"]
    assert queue.client.hlen(queue.key("group_epochs")) == 1


def test_batch(queue: Queue) -> None:
    """Each attach of a batch is decided after the one before it, and only the last owner gets items."""
    queue.publish("a")
    rows = [
        {
            "subid": str(number),
            "jid": jid,
            "credit": 1,
            "sending": "unacknowledged",
            "group": "g",
            "epoch": epoch,
            "expected": "",
            "reason": "stolen",
            "dry": "",
            "alone": "",
        }
        for number, (jid, epoch) in enumerate(((W1, 1), (W2, 1), (W3, 2)), 1)
    ]
    answer = queue.run("acquire_partition", *rows)
    assert answer.words == ["ok", "partition-owned", "ok"]
    assert answer.given == [(W3, "a")]
    assert [notice[1] for notice in answer.notices] == [W1]


def test_an_owner_that_has_read_is_served(queue: Queue) -> None:
    """P6: a reader that becomes the owner of the partition has its turn as any owner, and reads no more."""
    queue.follow(W1, 5)
    queue.attach(W1)
    assert queue.publish("a").given == [(W1, "a")]
    assert not queue.client.exists(queue.key("readers"), queue.key("readers_ready"))
