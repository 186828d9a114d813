"""lua/credit/hand_out.lua: items are handed out with credit that a coordinator has granted."""

from broker.redis_core.commands.credit import SHUT
from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue

W1, W2 = "w1@x/a", "w2@x/b"
Parts = tuple[Queue, Queue, Queue]
GRANT = 10**15


def held(answer: Answer) -> list[tuple[str, int, int, int]]:
    """Return the holdings of a report: subid, how much, last grant, and its state (`Holding`)."""
    assert answer.report is not None
    return [(row[0], row[1], row[2], row[4]) for row in answer.report.holdings]


def known(queue: Queue, *jids: str) -> None:
    """Register subscribers."""
    for jid in jids:
        assert queue.register(jid, 5)[0] == "ok"


def test_once_and_no_more(parts: Parts) -> None:
    """Guarantee 3: a grant hands out as much as it says, once; the report has the holdings."""
    _, one, _ = parts
    known(one, W1)
    one.publish(*"abcd")
    answer = one.hand_out(W1, GRANT, 2)
    assert answer.given == [(W1, "a"), (W1, "b")] and held(answer) == [(subid(W1), 2, GRANT, 0)]
    assert answer.report is not None and answer.report.wanted == 2
    again = one.hand_out(W1, GRANT, 2)
    assert again.words == ["superseded"] and again.given == [] and held(again) == [(subid(W1), 2, GRANT, 0)]


def test_what_is_not_used(parts: Parts) -> None:
    """Guarantee 3: unused credit is not kept here."""
    _, one, _ = parts
    known(one, W1)
    answer = one.hand_out(W1, GRANT, 3)
    assert answer.given == [] and held(answer) == [(subid(W1), 0, GRANT, 2 * 3)]
    assert one.publish("a").given == []


def test_who_is_not_known(parts: Parts) -> None:
    """A partition that does not know the subscriber reports this, and gets no more of its credit."""
    _, one, _ = parts
    answer = one.hand_out(W1, GRANT, 1)
    assert answer.words == ["not-subscribed"] and held(answer) == [(subid(W1), 0, GRANT, SHUT)]
    one.run("subscribe_log", {"subid": subid(W2), "jid": W2, "credit": 2, "start": "@latest", "lease": 0})
    assert one.hand_out(W2, GRANT, 1).words == ["not-subscribed"], "a reader works on nothing"


def test_not_while_it_is_owned(parts: Parts) -> None:
    """E28: while a partition is owned, grants of others are of no use there."""
    _, one, _ = parts
    known(one, W1)
    one.attach(W2, credit=1)
    one.publish("a", "b")
    answer = one.hand_out(W1, GRANT, 1)
    assert answer.given == [] and held(answer) == [(subid(W1), 0, GRANT, 1 + 1)]


def test_not_to_the_owner(parts: Parts) -> None:
    """E28, guarantee 3: an owner gets no shared credit there; earlier grants are given back whole, whatever it holds."""
    _, one, _ = parts
    one.attach(W1, credit=1)
    one.publish("a")
    answer = one.hand_out(W1, GRANT, 1)
    assert answer.words == ["not-subscribed"] and held(answer) == [(subid(W1), 0, GRANT, SHUT)]


def test_not_back_to_who_gave_it_back(parts: Parts) -> None:
    """Q30: of those with grants, the last holder of an item does not get it."""
    _, one, _ = parts
    known(one, W1, W2)
    one.publish("a")
    one.hand_out(W1, GRANT, 1)
    one.unlock(W1, "a")
    rows = [{"subid": subid(jid), "grant": GRANT + 1, "amount": 1, "pool": ""} for jid in (W1, W2)]
    assert one.run("hand_out", *rows).given == [(W2, "a")]


def test_one_that_cannot_send(parts: Parts) -> None:
    """A caller that cannot send hands out nothing, and gives the grant back whole."""
    _, one, _ = parts
    known(one, W1)
    one.publish("a", "b")
    answer = one.hand_out(W1, GRANT, 1, frontend="")
    assert answer.given == [] and held(answer) == [(subid(W1), 0, GRANT, 2 * 1)]
    assert one.stats()["in_flight"] == 0
