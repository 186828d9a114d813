"""lua/credit/list_holdings.lua: a partition's holdings, to check a coordinator's ledger."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.test_hand_out import GRANT, known

W1, W2 = "w1@x/a", "w2@x/b"
Parts = tuple[Queue, Queue, Queue]


def test_all_and_some(parts: Parts) -> None:
    """Without rows it lists all with locks, with rows those."""
    _, one, _ = parts
    known(one, W1, W2)
    one.publish("a", "b")
    one.hand_out(W1, GRANT, 2)
    found, past, version = one.run("list_holdings").rows
    assert (found, past) == ([[subid(W1), 2, GRANT, ""]], "") and version > 0
    found, _, _ = one.run("list_holdings", {"subid": subid(W2)}, {"subid": "7"}).rows
    assert found == [[subid(W2), 0, 5, ""], ["7", 0, 0, ""]]


def test_pages(parts: Parts) -> None:
    """Guarantee 6: a page at a time, each continuing after the last."""
    _, one, _ = parts
    jids = [f"w{number}@x/y" for number in range(203)]
    known(one, *jids)
    one.publish(*(f"i{number}" for number in range(203)))
    for jid in jids:
        one.hand_out(jid, GRANT, 1)
    first, past, _ = one.run("list_holdings").rows
    rest, end, _ = one.run("list_holdings", after=past).rows
    assert (len(first), len(rest), end) == (200, 3, "")
    assert {row[0] for row in (*first, *rest)} == {subid(jid) for jid in jids}


def test_not_of_an_owner(parts: Parts) -> None:
    """An owner's credit is its own, and not coordinated."""
    _, one, _ = parts
    one.attach(W1, credit=1)
    one.publish("a")
    assert one.run("list_holdings").rows[0] == []
