"""Several subscriptions of one JID in one partition."""

from broker.redis_core.operations.operation import subid, subids
from broker.redis_core.operations.subscriptions import MOST_OF_ONE
from tests.lua.driver import T0, TOP, Answer, Queue
from tests.lua.worded import W1, W2

FIRST = subid(W1)


def again(queue: Queue, credit: int = 1, jid: str = W1, *, lease: int = 0) -> str:
    """Add a subscription of a JID; return its subid."""
    return str(queue.subscribe(jid, credit, several="1", lease=lease).rows[0][5])


def given(answer: Answer) -> list[tuple[str, str]]:
    """Return the items and their subscriptions."""
    return [(delivery.subid, delivery.item) for delivery in answer.deliveries]


def leave(queue: Queue, named: str = "") -> Answer:
    """End one on request of its JID."""
    return queue.unsubscribe(W1, named=named, which="")


def test_names(queue: Queue) -> None:
    """P11, P12: a further one gets a subid of its own, 32 at most; without a second one subids are not shown."""
    queue.publish("a")
    assert queue.subscribe(W1, 1, several="1").deliveries[0].subid == ""
    second = again(queue)
    assert given(queue.publish("b")) == [(second, "b")]
    others = [again(queue) for _ in range(MOST_OF_ONE - 2)]
    assert len({FIRST, second, *others}) == MOST_OF_ONE
    assert queue.subscribe(W1, 1, several="1").words == ["too-many-subscriptions"]
    assert again(queue, jid=W2) == subid(W2)
    # One that is free is given again.
    assert leave(queue, others[0]).rows == [["ok", 0, 1, [others[0]]]]
    assert again(queue) == others[0]
    # Without the option the first existing one is meant.
    assert leave(queue, FIRST).rows == [["ok", 1, 1, [FIRST]]]
    assert queue.subscribe(W1, 7).rows == [["ok", 7, "unacknowledged", W1, 0, second]]


def test_forgotten(queue: Queue) -> None:
    """Subids stay as long as there is a subscription or a lock of any of them."""
    names = [again(queue) for _ in range(3)]
    queue.publish("a", "b")
    stored = queue.client.hgetall(queue.key("subids"))
    assert stored == {name.encode(): " ".join(names).encode() for name in names}
    assert leave(queue, FIRST).words == leave(queue, names[1]).words == leave(queue, names[2]).words == ["ok"]
    assert len(queue.locks(W1)) == 2
    assert queue.retract(W1, "a").words == ["ok"] and queue.client.hlen(queue.key("subids")) == 3
    assert queue.retract(W1, "b").words == ["ok"] and not queue.client.exists(queue.key("subids"))


def test_which_is_meant(queue: Queue) -> None:
    """P12: with several a correct subid is required; with one it is not, and with none there is none."""
    asked, name = {"subid": subid(W1)}, "17"
    for expected in (["not-subscribed", "subid-invalid"], ["ok", "subid-invalid"], ["subid-required", "ok"]):
        rows = queue.run("get_subscription", {**asked, "named": ""}, {**asked, "named": name})
        assert rows.words == expected
        assert [queue.subscribe(W1, 1, must="1", named=named).words for named in ("", name)] == [
            [word] for word in expected
        ]
        made = again(queue)
        name = "17" if made == FIRST else made
    assert leave(queue).words == ["subid-required"]
    assert leave(queue, "17").words == leave(queue, "no number").words == ["subid-invalid"]
    assert leave(queue, FIRST).words == leave(queue, name).words == leave(queue).words == ["ok"]


def test_credit_and_ends(queue: Queue) -> None:
    """Guarantee 3, Q35, P31: each has its own credit; notices of a lock or a lease name their subscription."""
    again(queue, 1)
    second = again(queue, 2, lease=T0 + 90_000)
    out = given(queue.publish("a", "b", "c", "d"))
    assert sorted(name for name, _item in out) == sorted([FIRST, second, second])
    mine = [item for name, item in out if name == FIRST]
    done = queue.retract(W1, mine[0])
    assert done.rows[0] == ["ok", W1, "", FIRST] and given(done) == [(FIRST, "d")]
    # A former holder is recognised under any of its subids.
    queue.now += 60_001
    told = queue.expire().notices
    assert sorted(notice[4:] for notice in told) == [["", name] for name in sorted([FIRST, second, second])]
    queue.now += 30_000
    assert ["lapsed", W1, second] in queue.expire().notices


def test_who_held_it(queue: Queue) -> None:
    """D9: a JID that held an item under any of its subids has lost it, and is no stranger."""
    again(queue)
    again(queue)
    queue.publish("a", "b", "c")
    for item in ("a", "b"):
        queue.unlock(W1, item, delay_ms=600_000)
    assert [queue.retract(W1, item).words for item in ("a", "b")] == [["lock-lost"]] * 2
    assert queue.retract(W2, "a").words == ["forbidden"]


def test_all_at_once(queue: Queue) -> None:
    """P30, Q33: a JID that is not reached or goes offline has no subscription left; only its items are given back."""
    queue.publish(*"abcde")
    again(queue, 1)
    second = again(queue, 1)
    again(queue, 1, W2)
    assert queue.run("browse", subids=subids(W1)).rows[3] == [FIRST, second]
    ended = queue.run("force_release", subid=subid(W1))
    assert ended.rows == [2, 0] and sorted(notice[5] for notice in ended.notices) == sorted([FIRST, second])
    mine = next(delivery for delivery in ended.deliveries if delivery.jid == W1)
    queue.bounce(W1, mine, gone="1")
    assert queue.subscribe(W1, 1, must="1").words == ["not-subscribed"]
    assert sorted(queue.browse().values()) == ["locked", *["waiting"] * 4]
    again(queue, 1)
    second = again(queue, 1)
    assert queue.unsubscribe(W1, release="1", which="all").rows == [["ok", 0, 0, [FIRST, second]]]
    assert queue.run("browse", subids=subids(W2)).rows[3] == [subid(W2)] * (subids(W2).count(subid(W2)))


def test_through_a_collection(queue: Queue) -> None:
    """H5, H6: below a collection each has its own name for the holder, and a direct subscription counts apart."""
    queue.subscribe(W1, 1)
    second, other = again(queue, 1), "17"
    out = queue.publish("a", "b", "c", "d").deliveries
    out += queue.lend(W1, "r1", whose=FIRST).deliveries
    out += queue.lend(W1, "r2", whose=other, subid=other).deliveries
    assert {(each.collection, each.subid) for each in out} == {(TOP, FIRST), (TOP, other), ("", FIRST), ("", second)}
    assert len(queue.locks(W1)) == 4
    gone = queue.unsubscribe(W1, release="1", which="all")
    assert sorted(gone.rows[0][3]) == sorted([FIRST, second]) and len(queue.locks(W1)) == 2
    # A former holder is recognised by any of its names.
    (item,) = {each.item for each in out if each.subid == other}
    assert queue.unlock(W1, item, delay_ms=600_000).words == ["ok"]
    assert queue.retract(W1, item).words == ["lock-lost"]
