"""lua/credit/grant_credit.lua: the coordinator's ledger and turns."""

from typing import Any

from broker.redis_core.commands.credit import Grant
from broker.redis_core.operations.operation import subid
from tests.lua.driver import Answer, Queue
from tests.lua.subscribed import carried, registered, subscribed

W1, W2, W3 = "w1@x/a", "w2@x/b", "w3@x/c"
Parts = tuple[Queue, Queue, Queue]


def grants(answer: Answer) -> list[tuple[int, str, int]]:
    """Return the grants: partition, subscriber, and how much."""
    assert answer.report is not None
    return [(grant.number, grant.subid, grant.amount) for grant in answer.report.grants]


def made(answer: Answer) -> list[Grant]:
    """Return the grants."""
    assert answer.report is not None
    return list(answer.report.grants)


def version(queue: Queue) -> int:
    """Return a number that is later than all before."""
    queue.now += 1
    return queue.now * 1000


def wanted(coordinator: Queue, number: int, amount: int, whom: str = "A", **fixed: str) -> Answer:
    """Report a partition's demand."""
    return coordinator.grant_credit(wants=f"{number} {version(coordinator)} {amount} {whom}", **fixed)


def told(coordinator: Queue, number: int, jid: str, held: int, last: int, *, shut: int = 0, full: int = 0) -> Answer:
    """Report a partition's holdings of a subscriber."""
    return coordinator.grant_credit(f"{number} {subid(jid)} {version(coordinator)} {held} {last} {shut} {full}")


def used(coordinator: Queue, jid: str) -> int:
    """Return how much of a subscriber's credit others use, as stored; it must agree with the ledger."""
    line: Any = coordinator.client.hget(coordinator.key("usage"), subid(jid))
    ledger: Any = coordinator.client.hgetall(coordinator.key("ledger"))
    entries = [value.split() for name, value in ledger.items() if name.split()[0].decode() == subid(jid)]
    total = int(line.split()[0]) if line else 0
    assert total == sum(int(entry[0]) + int(entry[3]) for entry in entries)
    return total


def test_one_on_its_way(parts: Parts) -> None:
    """While a grant is on its way to a partition, none follows; the report that it was taken allows the next."""
    coordinator, one, _ = parts
    subscribed(parts, W1, 5)
    (grant,) = made(wanted(coordinator, 1, 1))
    assert grants(wanted(coordinator, 1, 3)) == []
    assert grants(told(coordinator, 1, W1, 1, grant.grant)) == [(1, subid(W1), 3)]
    assert used(coordinator, W1) == 4
    assert one.stats()["in_flight"] == 0


def test_a_demand_that_was_overtaken(parts: Parts) -> None:
    """Guarantee 9: a demand that arrives after the report that it is met is granted nothing; nobody loses a turn by it."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 5)
    old = version(coordinator)
    (grant,) = made(wanted(coordinator, 1, 2))
    assert grants(coordinator.grant_credit(wants=f"1 {old} 2 A")) == []
    told(coordinator, 1, W1, 2, grant.grant)
    assert grants(coordinator.grant_credit(wants=f"1 {old} 2 A")) == []
    met = version(coordinator)
    coordinator.grant_credit(wants=f"1 {met} 0 A")
    assert grants(coordinator.grant_credit(wants=f"1 {old} 2 A")) == []
    # A report of the same version is not an earlier one.
    assert grants(coordinator.grant_credit(wants=f"1 {met} 1 A")) == [(1, subid(W1), 1)]


def test_a_demand_that_was_overtaken_at_once(parts: Parts) -> None:
    """Guarantee 9: the same where the coordinator hears first that nothing is wanted."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 5)
    old = version(coordinator)
    wanted(coordinator, 1, 0)
    assert grants(coordinator.grant_credit(wants=f"1 {old} 2 A")) == []


def test_a_clock_that_steps_back(parts: Parts) -> None:
    """Guarantee 5: a partition whose clock is set back, or whose slot moves to one that is behind, gets credit at once."""
    _, one, _ = parts
    one.now += 60_000
    waits = one.publish("a")
    one.now -= 55_000
    subscribed(parts, W1, 1)
    assert carried(parts, one, waits) == [(W1, "a")]
    for item, after in ("ab", "bc", "cd"):
        one.now += 1
        assert carried(parts, one, one.retract(W1, item)) == []
        assert carried(parts, one, one.publish(after)) == [(W1, after)]


def test_a_report_that_was_overtaken(parts: Parts) -> None:
    """An outdated report changes nothing; one without a grant neither, unless it was requested."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 5)
    (grant,) = made(wanted(coordinator, 1, 2))
    old = version(coordinator)
    told(coordinator, 1, W1, 2, grant.grant)
    coordinator.grant_credit(f"1 {subid(W1)} {old} 0 {grant.grant} 0 0")
    assert used(coordinator, W1) == 2
    told(coordinator, 1, W1, 0, grant.grant)
    coordinator.grant_credit(f"1 {subid(W1)} {old} 2 {grant.grant} 0 0")
    assert used(coordinator, W1) == 0
    told(coordinator, 1, W1, 2, grant.grant, full=1)
    assert used(coordinator, W1) == 2


def test_an_old_report_that_it_is_unknown(parts: Parts) -> None:
    """Q35: an old report that the subscriber is unknown there has no effect after a later one that it is known."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 1)
    (grant,) = made(wanted(coordinator, 1, 1))
    old = version(coordinator)
    told(coordinator, 1, W1, 0, grant.grant)
    coordinator.grant_credit(f"1 {subid(W1)} {old} 0 {grant.grant} 1 0")
    assert grants(wanted(coordinator, 1, 1)) == [(1, subid(W1), 1)]


def test_avoids_who_gave_it_back(parts: Parts) -> None:
    """Q30: credit for an item that came back is not its last holder's, unless there is no other."""
    coordinator, _, _ = parts
    for jid in (W1, W2):
        subscribed(parts, jid, 2)
    assert grants(wanted(coordinator, 1, 2, f"A {subid(W1)} {subid(W1)}")) == [(1, subid(W2), 2)]
    assert grants(wanted(coordinator, 2, 1, f"A {subid(W1)}")) == [(2, subid(W1), 1)]


def test_of_whom(parts: Parts) -> None:
    """With selectors, credit is granted of the named subscribers, or of all without a selector."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 1, "color = 'red'")
    subscribed(parts, W2, 1)
    assert grants(wanted(coordinator, 1, 2, f"W {subid(W3)}")) == []
    assert grants(wanted(coordinator, 1, 2, "W *")) == [(1, subid(W2), 1)]
    assert grants(wanted(coordinator, 2, 1, f"W {subid(W1)} *")) == [(2, subid(W1), 1)]


def test_partitions_take_turns(parts: Parts) -> None:
    """Of partitions that want credit, none has a second one before all have had one."""
    coordinator, _, _ = parts
    wanted(coordinator, 1, 5)
    wanted(coordinator, 2, 5)
    registration = str(coordinator.subscribe(W1, 3).rows[0][3])
    answer = registered(parts, W1, registration)
    assert sorted(amount for _number, _subid, amount in grants(answer)) == [1, 2]
    subscribed(parts, W2, 0)
    (first,) = [grant for grant in made(answer) if grant.amount == 1]
    again = told(coordinator, first.number, W1, 0, first.grant)
    assert [number for number, _subid, _amount in grants(again)] == [first.number]


def test_nothing_while_it_registers(parts: Parts) -> None:
    """Q34, guarantee 3: a new subscriber gets no grants until all partitions have reported its old locks."""
    coordinator, one, _ = parts
    wanted(coordinator, 1, 5)
    registration = str(coordinator.subscribe(W1, 3).rows[0][3])
    assert grants(wanted(coordinator, 2, 1)) == []
    later = coordinator.reregister(W1)
    assert grants(registered(parts, W1, later)) != [] and registration != later
    assert coordinator.grant_credit(registered=f"{subid(W2)} 7").words == ["not-subscribed"]
    assert one.stats()["in_flight"] == 0


def test_less_credit(parts: Parts) -> None:
    """Q10: with less credit there are no grants until it holds less; those on their way are void, since it registers anew."""
    coordinator, one, two = parts
    subscribed(parts, W1, 4)
    one.publish(*"abc")
    assert len(carried(parts, one, one.expire())) == 3
    two.publish("d", "e")
    (grant,) = made(coordinator.grant_credit(wants=f"2 {version(two)} 1 A"))
    registration = str(coordinator.subscribe(W1, 2, must="1").rows[0][3])
    assert grants(registered(parts, W1, registration)) == [] and used(coordinator, W1) == 3
    assert two.hand_out(W1, grant.grant, 1).given == []
    assert carried(parts, one, one.retract(W1, "a")) == carried(parts, two, two.expire()) == []
    assert len(carried(parts, one, one.retract(W1, "b"))) == 1
    assert used(coordinator, W1) == 2
    assert coordinator.subscribe(W1, 5, must="1").rows[0][3] == "0", "more credit is nobody's to hear of"


def test_sent_again(parts: Parts) -> None:
    """Guarantee 4: a sweep sends an unanswered grant again; it is due then, and taken once."""
    coordinator, one, _ = parts
    subscribed(parts, W1, 1)
    one.publish("a")
    answer = wanted(coordinator, 1, 1)
    assert 0 < answer.due - coordinator.now <= 2_000
    (grant,) = made(answer)
    assert grants(coordinator.expire()) == []
    coordinator.now += 2_000
    (again,) = made(coordinator.expire())
    assert (again.grant, again.amount) == (grant.grant, 1)
    assert one.hand_out(W1, again.grant, 1).given == [(W1, "a")]
    assert one.hand_out(W1, grant.grant, 1).given == []
    told(coordinator, 1, W1, 1, grant.grant)
    coordinator.now += 2_000
    assert grants(coordinator.expire()) == [] and coordinator.client.zcard(coordinator.key("grants_underway")) == 0


def test_not_where_it_is_unknown(parts: Parts) -> None:
    """A partition that does not know a subscriber gets none of its credit, until it is registered there."""
    coordinator, _, two = parts
    subscribed(parts, W1, 1)
    (grant,) = made(wanted(coordinator, 2, 1))
    assert grants(told(coordinator, 2, W1, 0, grant.grant, shut=1)) == []
    assert grants(wanted(coordinator, 2, 1)) == [] and grants(wanted(coordinator, 1, 1)) != []
    assert two.stats()["in_flight"] == 0


def test_gone(parts: Parts) -> None:
    """Credit used in a deleted partition is free again."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 1)
    wanted(coordinator, 2, 1)
    assert used(coordinator, W1) == 1
    coordinator.grant_credit(gone=f"2 {subid(W1)}")
    assert used(coordinator, W1) == 0 and coordinator.client.exists(coordinator.key("ledger")) == 0


def test_what_is_used_outlives_the_subscription(parts: Parts) -> None:
    """Q34: after unsubscribing with locks and returning, the locks count against the credit."""
    coordinator, one, _ = parts
    subscribed(parts, W1, 2)
    assert carried(parts, one, one.publish("a")) == [(W1, "a")]
    for queue in parts:
        queue.unsubscribe(W1)
    assert used(coordinator, W1) == 1
    subscribed(parts, W1, 2)
    assert coordinator.stats()["credit_free"] == 1


def test_a_caller_that_cannot_send(parts: Parts) -> None:
    """A caller that cannot send grants nothing, and says that a frontend has to."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 1)
    answer = wanted(coordinator, 1, 2, frontend="")
    assert grants(answer) == [] and answer.due == coordinator.now
    assert grants(coordinator.expire()) == [(1, subid(W1), 1)]


def test_what_was_of_no_use(parts: Parts) -> None:
    """Guarantee 9: a subscriber granted credit for an item that another took gets its turn back."""
    coordinator, _, _ = parts
    for jid in (W1, W2):
        subscribed(parts, jid, 1)
    (grant,) = made(wanted(coordinator, 1, 1))
    (jid,) = [jid for jid in (W1, W2) if subid(jid) == grant.subid]
    told(coordinator, 1, jid, 0, grant.grant, shut=2)
    assert grants(wanted(coordinator, 2, 1)) == [(2, grant.subid, 1)]


def test_what_is_on_its_way_is_wanted_no_more(parts: Parts) -> None:
    """A partition that asks twice for one item is granted credit for one."""
    coordinator, _, _ = parts
    for jid in (W1, W2):
        subscribed(parts, jid, 1)
    (grant,) = made(wanted(coordinator, 1, 1))
    assert grants(wanted(coordinator, 1, 1)) == []
    answer = told(coordinator, 1, W1 if grant.subid == subid(W1) else W2, 1, grant.grant)
    assert [amount for _number, _subid, amount in grants(answer)] == [1], "it has been handed out, and is wanted still"


def test_bounded(parts: Parts) -> None:
    """Guarantee 6: one script grants a bounded amount; the rest remains wanted."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 1000)
    assert grants(wanted(coordinator, 1, 500)) == [(1, subid(W1), 200)]


def test_pairs_count(parts: Parts) -> None:
    """Guarantee 6: of many subscribers that are of no use to many partitions, some are examined in a call, others in the next."""
    coordinator, _, _ = parts
    numbers, jids = range(3, 303), [f"w{number}@x/1" for number in range(30)]
    blank = {"holdings": "", "wants": "", "registered": "", "gone": ""}
    rows = [{**blank, "registered": f"{subid(jid)} {coordinator.subscribe(jid, 1).rows[0][3]}"} for jid in jids]
    for number in numbers:
        shut = " ".join(f"{number} {subid(jid)} {version(coordinator)} 0 0 1 1" for jid in jids)
        rows.append({**blank, "holdings": shut, "wants": f"{number} {version(coordinator)} 1 A"})
    coordinator.run("grant_credit", *rows)
    answer = coordinator.expire()
    assert grants(answer) == [] and 0 < answer.due - coordinator.now <= 100
    # The last in turn is open to one of them.
    found: Any = coordinator.client.zrange(coordinator.key("demand"), -1, -1)
    last = int(found[0])
    answer = told(coordinator, last, jids[0], 0, 0, full=1)
    assert grants(answer) == []
    for _ in range(10):
        answer = coordinator.expire()
        if grants(answer):
            break
    assert grants(answer) == [(last, subid(jids[0]), 1)]
