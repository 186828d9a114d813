"""A turn of a collection: who asks gets references, of whom, and what ends them."""

import pytest

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue
from tests.lua.worded import W1, W2

A, B = "a@life/0", "b@life/0"


@pytest.fixture
def top(unopened: Queue) -> Queue:
    """Return a collection's own partition."""
    unopened.open(partitions="0")
    return unopened


def lent(answer: Answer) -> list[tuple[str, str, str]]:
    """Return to which queue what was lent, and whose it is."""
    return [(queue, name, jid) for queue, name, _subid, jid, *_more in answer.rows[0]]


def looks(answer: Answer) -> list[list[str]]:
    """Return what is to be looked at: queue, name, reason."""
    return [[queue, name, reason] for queue, name, _deadline, reason in answer.rows[1]]


def held(top: Queue) -> list[int]:
    """Return how many references count for each of two subscribers."""
    return [top.client.zcount(top.key("locks_by_subscriber"), subid(jid), subid(jid)) for jid in (W1, W2)]


def test_in_turn(top: Queue) -> None:
    """The queue that has waited longest gets one, of the subscriber served longest ago; nobody lends more than its credit."""
    top.subscribe(W1, 2, scope="items all")
    top.subscribe(W2, 1, scope="items all")
    assert lent(top.turn(queue=A, asks=2, named="t")) == [(A, "t-0", W1), (A, "t-1", W2)]
    assert lent(top.turn(queue=B, asks=5, named="u")) == [(B, "u-0", W1)]
    assert held(top) == [2, 1]
    # The first one waits no longer than the second.
    assert lent(top.turn(queue=A, asks=1, named="v")) == []
    assert lent(top.turn("t-1 reached", named="w")) == [(B, "w-0", W2)]
    assert lent(top.turn("u-0 ended t-0 ended", named="x")) == [(A, "x-0", W1), (B, "x-1", W1)]
    assert held(top) == [2, 1]


def test_a_new_subscriber_is_told_of(top: Queue) -> None:
    """A queue that asked while nobody had credit is served when somebody comes: the frontend takes a turn."""
    assert lent(top.turn(queue=A, asks=1)) == []
    assert top.subscribe(W1, 1, scope="items all").notices == [["turn"]]
    assert lent(top.turn(named="u")) == [(A, "u-0", W1)]
    assert top.expire().notices == []


def test_unused(top: Queue) -> None:
    """What a queue did not use gives its subscriber the turn back; what is said twice counts once."""
    for jid in (W1, W2):
        top.subscribe(jid, 1, scope="items all")
    assert lent(top.turn(queue=A, asks=1, named="t")) == [(A, "t-0", W1)]
    top.turn("t-0 unused t-0 unused t-7 ended")
    assert held(top) == [0, 0]
    assert lent(top.turn(queue=A, asks=1, named="u")) == [(A, "u-0", W1)]


def test_who_gave_it_back(top: Queue) -> None:
    """Q30: the last holder of an item is passed over while another has credit."""
    top.subscribe(W1, 1, scope="items all")
    holders = f"{subid(W1)} -"
    assert lent(top.turn(queue=A, asks=1, named="t", holders=holders)) == [(A, "t-0", W1)]
    top.turn("t-0 unused")
    top.subscribe(W2, 1, scope="items all")
    assert lent(top.turn(queue=A, asks=2, named="u", holders=holders)) == [(A, "u-0", W2), (A, "u-1", W1)]


def test_levels_and_kinds(top: Queue) -> None:
    """H5: nobody is lent to a queue that is deeper than asked for, or without wanting items."""
    top.subscribe(W1, 5, scope="items 1")
    top.subscribe(W2, 5, scope="nodes all")
    answer = top.turn(queue=A, asks=1, level=2)
    # Nobody is found, so nobody is to try again at once.
    assert lent(answer) == [] and answer.notices == [] and answer.due == 0
    assert lent(top.turn(queue=B, asks=1, level=1, named="u")) == [(B, "u-0", W1)]


def test_not_admitted(top: Queue) -> None:
    """H5: a queue that does not admit a subscriber gets others for ten seconds, or until that may have changed."""
    for jid in (W1, W2):
        top.subscribe(jid, 1, scope="items all")
    assert lent(top.turn(queue=A, asks=1, named="t")) == [(A, "t-0", W1)]
    assert lent(top.turn("t-0 passed", queue=A, asks=2, named="u")) == [(A, "u-0", W2)]
    assert lent(top.turn(queue=B, asks=1, named="v")) == [(B, "v-0", W1)]
    assert lent(top.turn("v-0 unused", afresh="1", named="w")) == [(A, "w-0", W1)]


def test_looked_at(top: Queue) -> None:
    """A lost word is found: after three seconds, then after twice as long each time, and never by time alone."""
    top.subscribe(W1, 1, scope="items all")
    answer = top.turn(queue=A, asks=1, named="t", hold=60_000)
    assert answer.due == top.now + 3_000
    pauses = []
    for _ in range(4):
        waited = 0
        while not looks(answer):
            top.now, waited = top.now + 1_000, waited + 1
            answer = top.turn()
        pauses.append(waited)
        assert looks(answer) == [[A, "t-0", ""]]
        answer = top.turn("t-0 30000")
    assert pauses == [3, 6, 12, 15]
    # Its queue is silent: it counts until its lock must be over, and a minute more.
    for _ in range(130):
        top.now += 1_000
        top.turn("t-0 silent")
    assert held(top) == [1, 0]
    for _ in range(30):
        top.now += 1_000
        top.turn("t-0 silent")
    assert held(top) == [0, 0]


def test_a_clock_that_lies(top: Queue) -> None:
    """A jump of the clock, in either direction, ends nothing and delays no look for longer than its pause."""
    top.subscribe(W1, 1, scope="items all")
    top.turn(queue=A, asks=1, named="t")
    top.now += 10**9
    assert looks(top.turn("t-0 silent")) == [[A, "t-0", ""]] and held(top) == [1, 0]
    top.now -= 10**9
    top.turn()
    top.now += 3_000
    assert looks(top.turn()) == [[A, "t-0", ""]]


def test_a_deadline(top: Queue) -> None:
    """A reference may be used for three seconds, by the queue's own clock, whenever it asked."""
    top.turn(queue=A, asks=1, stamp=5_000)
    top.now += 2_000
    top.subscribe(W1, 1, scope="items all")
    assert top.turn(named="u").rows[0][0][5] == 10_000


def test_leaves(top: Queue) -> None:
    """Q33: what a subscriber held that left is looked at at once, to end there; it counts until it has."""
    top.subscribe(W1, 1, scope="items all")
    top.turn(queue=A, asks=1, named="t")
    assert top.unsubscribe(W1, release="1").rows == [["ok", 0, 0, [subid(W1)]]]
    assert looks(top.turn()) == [[A, "t-0", "unavailable"]]
    # While the receive may be under way, nothing is said of it.
    top.turn()
    assert held(top)[0] == 1
    top.now += 3_000
    assert looks(top.turn()) == [[A, "t-0", "unavailable"]]
    top.subscribe(W1, 1, scope="items all")
    assert lent(top.turn(queue=B, asks=1)) == []
    assert lent(top.turn("t-0 unknown", named="u")) == [(B, "u-0", W1)]


def test_nobody_is_reached(top: Queue) -> None:
    """P30: three bounces in a row, or one where nobody is, end the subscription."""
    top.subscribe(W1, 1, scope="items all")
    for word in ("bounced", "bounced", "reached", "bounced", "bounced"):
        assert lent(top.turn(queue=A, asks=1, named="t"))
        assert top.turn(f"t-0 {word}").notices == []
    assert lent(top.turn(queue=A, asks=1, named="t"))
    assert ["unsubscribed", W1] in top.turn("t-0 bounced").notices
    top.subscribe(W2, 1, scope="items all")
    assert lent(top.turn(queue=A, asks=1, named="t"))
    assert ["unsubscribed", W2] in top.turn("t-0 gone").notices


def test_a_caller_that_cannot_send(top: Queue) -> None:
    """A process without a stream notes what queues say; a frontend lends."""
    top.subscribe(W1, 1, scope="items all")
    answer = top.turn(queue=A, asks=1, frontend="")
    assert answer.rows[:2] == [[], []] and answer.due == top.now and answer.notices == []
    assert top.expire().notices == [["turn"]]
    assert lent(top.turn(named="u")) == [(A, "u-0", W1)]


def test_many(top: Queue) -> None:
    """Guarantee 6: however much is asked for, a turn lends a part, and says that there is more; a queue can be dropped."""
    top.subscribe(W1, 1000, scope="items all")
    answer = top.turn(queue=A, asks=200)
    assert len(lent(answer)) == 64 and answer.rows[2] == 1
    assert len(lent(top.turn(queue=B, asks=1, named="u"))) == 64
    top.turn(queue=A, asks=0, named="v")
    assert top.client.zcard(top.key("asking")) == 0


def test_several_unused(top: Queue) -> None:
    """Of several that were not used, the subscriber has the turn from before the first."""
    top.subscribe(W1, 3, scope="items all")
    top.subscribe(W2, 1, scope="items all")
    assert [jid for _queue, _name, jid in lent(top.turn(queue=A, asks=4, named="t"))] == [W1, W2, W1, W1]
    top.turn("t-1 ended t-0 unused t-2 unused t-3 unused")
    assert lent(top.turn(queue=A, asks=1, named="u")) == [(A, "u-0", W1)]


def test_those_behind_many(top: Queue) -> None:
    """Whoever suits is found behind any number of subscribers who do not."""
    for number in range(100):
        top.subscribe(f"near{number}@x/a", 1, scope="items 1")
    top.subscribe(W1, 1, scope="items all")
    assert lent(top.turn(queue=A, asks=1, level=2)) == [(A, "t-0", W1)]


def test_a_long_quiet_time(top: Queue) -> None:
    """However rarely it is called, a collection looks when it means to."""
    top.subscribe(W1, 1, scope="items all")
    top.turn(queue=A, asks=1, named="t", hold=7_200_000)
    for pause in (3_000, 6_000, 12_000, 24_000, 48_000, 60_000, 60_000):
        top.now += pause
        assert looks(top.turn()) == [[A, "t-0", ""]], pause
        assert top.turn("t-0 7000000").due == top.now + min(2 * pause, 60_000)


def test_withdrawn(top: Queue) -> None:
    """What a frontend withdraws is looked at, with the reason, until its queue has ended it."""
    top.subscribe(W1, 1, scope="items all")
    top.turn(queue=A, asks=1, named="t")
    for word in ("withdrawn", "silent", "5000"):
        top.turn(f"t-0 {word}")
        top.now += 6_000
        assert looks(top.turn()) == [[A, "t-0", "withdrawn"]]
    top.turn("t-0 ended")
    assert held(top) == [0, 0]


def test_a_pull(top: Queue) -> None:
    """R17: a lease gets as many references as it asks for and has room, at any door; they end as all others."""
    top.subscribe(W1, 3, "pulled", scope="items all")

    def pulled(named: str, words: str = "", *, asks: int = 2, **more: str | int) -> list[str]:
        answer = top.turn(words, queue=A, asks=asks, named=named, puller=subid(W1), **more)
        ((deadline, names),) = answer.rows[3]
        assert not names or deadline == top.now + 3_000
        return [str(each) for each in names.split()]

    assert pulled("t") == ["t-0", "t-1"] and held(top) == [2, 0]
    top.frontend = ""
    assert pulled("u") == ["u-0"] and pulled("v") == []
    assert pulled("w", "t-0 reached u-0 unused") == ["w-0", "w-1"]
    assert pulled("x", limit=5, asks=9) == ["x-0", "x-1"] and top.credit(W1) == 5
    # Two requests in one turn share what there is.
    row = {"queue": A, "count": 2, "level": "", "stamp": top.now, "hold": 9_000, "holders": "", "limit": ""}
    row["puller"] = subid(W1)
    answer = top.run("turn", *(row | {"words": words} for words in ("w-0 ended w-1 ended x-0 ended", "")), taken="y")
    assert [names for _deadline, names in answer.rows[3]] == ["y-0 y-1", "y-2"]
    top.now += 3_000
    assert {name for _queue, name, _why in looks(top.turn())} == {"t-1", "x-1", "y-0", "y-1", "y-2"}
    # Nobody asks for one that has ended.
    top.unsubscribe(W1)
    assert pulled("z", "t-1 ended") == []
