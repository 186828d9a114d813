"""A waiting item goes out when its last parent is acknowledged, and dies with the first that ends otherwise."""

import json

import pytest

from broker import codec
from broker.model.items.items import Envelope
from tests.lua.dependencies import note, parents, record, states, wait
from tests.lua.driver import Queue
from tests.lua.worded import ALICE, W1

ASKED = f"0 4 0 {ALICE}/one"


def test_fan_in(queue: Queue) -> None:
    """It goes out once, after the last of its parents, before items behind it, with their results in a header."""
    body = codec.pack(Envelope(b"<x/>", headers={"k": "v"}))
    position = wait(queue, "c", "a", "b", body=body)
    queue.publish("d")
    assert queue.browse() == {"c": "dependent", "d": "waiting"}
    assert note(queue, position, 1, "awaited").words == ["ok"]
    assert note(queue, position, 2, "acknowledged", result="2").deliveries == []
    assert note(queue, position, 1, "acknowledged").words == ["ok"]
    assert note(queue, position, 1, "acknowledged").words == ["item-not-found"], "a repeat"
    answer = queue.subscribe(W1, 5)
    assert answer.given == [(W1, "c"), (W1, "d")]
    envelope = codec.unpack(answer.deliveries[0].body.encode(errors="surrogateescape"))
    assert envelope.body == b"<x/>" and envelope.headers["k"] == "v"
    assert json.loads(envelope.headers["stanzaq-parents"]) == [
        {"item": "a", "state": "acknowledged"},
        {"item": "b", "state": "acknowledged", "result": "2"},
    ]
    for item in "cd":
        queue.retract(W1, item)
    assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


@pytest.mark.parametrize("body", [b"<x/>", b"x" * 300, b"x" * 70_000])
@pytest.mark.parametrize("headers", [{}, {"k": "v"}, {str(number): "v" for number in range(20)}])
def test_header(queue: Queue, body: bytes, headers: dict[str, str]) -> None:
    """The header is added to an envelope of any size; what is no envelope stays as it is."""
    position = wait(queue, "c", "a", body=codec.pack(Envelope(body, "text/plain", headers)))
    note(queue, position, 1, "acknowledged", result="ü\0" * 300)
    (delivery,) = queue.subscribe(W1, 5).deliveries
    envelope = codec.unpack(delivery.body.encode(errors="surrogateescape"))
    (told,) = json.loads(envelope.headers["stanzaq-parents"])
    assert (envelope.body, envelope.content_type, told["result"]) == (body, "text/plain", "ü\0" * 300)
    assert headers.items() <= envelope.headers.items()
    note(queue, wait(queue, "d", "a"), 1, "acknowledged", result="1")
    assert queue.expire().deliveries == [] and queue.bodies()["d"] == "d at 0"


def test_results_are_bounded(queue: Queue) -> None:
    """Of many large results the header has the first ones."""
    position = wait(queue, "c", *(f"p{number}" for number in range(20)), body=codec.pack(Envelope(b"x")))
    for number in range(1, 21):
        note(queue, position, number, "acknowledged", result="r" * 1_000)
    (delivery,) = queue.subscribe(W1, 5).deliveries
    told = json.loads(codec.unpack(delivery.body.encode(errors="surrogateescape")).headers["stanzaq-parents"])
    assert [len(each.get("result", "")) for each in told] == [1_000] * 16 + [0] * 4


@pytest.mark.parametrize("state", ["dead", "cancelled", "expired"])
def test_dies(queue: Queue, state: str) -> None:
    """The first parent that ends otherwise makes it a dead letter, and its publisher is told."""
    position = wait(queue, "c", "a", "b", "d", hints=ASKED)
    queue.publish("e")
    for number in (1, 2, 3):
        note(queue, position, number, "awaited")
    answer = note(queue, position, 2, state, reason="why")
    assert answer.outbox
    outbox = queue.read_outbox()
    letter, (line,), (text,) = (outbox[f"{kind}/{position}"] for kind in ("item", "reply", "left"))
    assert len(outbox) == 3 and letter[0] == "c" and letter[3:6] == [0, "", f"parent-{state}"]
    assert line.startswith("dead ") and f"parent-{state}" in line
    assert states(text) == ["awaited", state, "awaited"], "the others are told that it has left"
    assert note(queue, position, 1, "acknowledged").words == ["item-not-found"]
    assert queue.subscribe(W1, 5).given == [(W1, "e")]


def test_dies_without_dead_letters(unopened: Queue) -> None:
    """Where a node has no dead letters it is removed, for it could never go out."""
    queue = unopened
    queue.open(dead_letters="0")
    position = wait(queue, "c", "a", hints=ASKED)
    note(queue, position, 1, "dead")
    assert list(queue.read_outbox()) == [f"reply/{position}"] and queue.browse() == {}


def test_regardless(queue: Queue) -> None:
    """It goes out however its parents have ended, and says how."""
    position = wait(queue, "c", "a", "b", regardless=True, body=codec.pack(Envelope(b"x")))
    note(queue, position, 1, "dead", reason="max-deliveries")
    note(queue, position, 2, "awaited")
    note(queue, position, 2, "unknown")
    (delivery,) = queue.subscribe(W1, 5).deliveries
    assert json.loads(codec.unpack(delivery.body.encode(errors="surrogateescape")).headers["stanzaq-parents"]) == [
        {"item": "a", "state": "dead", "reason": "max-deliveries"},
        {"item": "b", "state": "lost"},
    ]


def test_unknown(queue: Queue) -> None:
    """While its publish is not finished an unknown parent removes it without a trace; later the parent counts as lost."""
    position = wait(queue, "c", "a", "b", hints=ASKED)
    note(queue, position, 1, "awaited")
    answer = note(queue, position, 2, "unknown")
    assert (answer.words, answer.notices) == (["unknown"], [])
    # The parent that knows of it is told.
    queue.end(*queue.told(answer, "left"))
    assert queue.kept() == {"meta"}
    position = wait(queue, "c", "a")
    note(queue, position, 1, "awaited")
    assert queue.letters(note(queue, position, 1, "unknown"))[0].reason == "parent-lost"


def test_asked_again(queue: Queue) -> None:
    """A crash between two steps: its parents are asked for after five seconds; when all know it, ever more seldom."""
    position = wait(queue, "c", "a", "b")
    assert not queue.expire().outbox
    queue.now += 5_000
    entry = f"parents/{position}"
    assert list(queue.told(queue.expire(), "parents")) == [entry]
    queue.now += 5_000
    note(queue, position, 1, "awaited")
    ((text,),) = queue.told(queue.expire(), "parents").values()
    assert states(text) == ["awaited", ""]
    answer = note(queue, position, 2, "awaited")
    assert parents(queue, position) == ["awaited", "awaited"]
    pauses = []
    for _ in range(9):
        pauses.append((answer.due - queue.now) // 1000)
        queue.now = answer.due - 1
        assert not queue.expire().outbox
        queue.now += 1
        assert list(queue.told(queue.expire(), "parents")) == [entry]
        answer = note(queue, position, 1, "awaited")
    assert pauses == [60, 70, 140, 280, 560, 1120, 2240, 3600, 3600]


def test_leaves(queue: Queue) -> None:
    """Nothing is left of a waiting item: cancelled, deleted, purged, expired. Parents that know it are told."""
    places = {item: wait(queue, item, "a", hints="0 4 1000") for item in ("cancelled", "deleted", "expired")}
    for position in places.values():
        note(queue, position, 1, "awaited")
    queue.run("cancel", {"sender": ALICE, "owner": "1", "item": "cancelled", "request": ""})
    queue.retract(ALICE, "deleted", owner="1")
    queue.now += 1_000
    left = queue.told(queue.expire(), "left")
    assert left.keys() == {f"left/{position}" for position in places.values()}
    queue.end(*left)
    queue.publish(*(f"p{number}" for number in range(350)), hints=f"0 4 0 \0{record('a')}")
    assert queue.stats()["waiting"] == 350 and queue.stats()["eligible"] == 0
    while queue.run("purge").more:
        pass
    assert queue.kept() - {"journal"} == {"meta"}


def test_new_version(queue: Queue) -> None:
    """A publish without parents replaces a waiting item and waits for nothing; one with parents is a duplicate."""
    position = wait(queue, "c", "a")
    answer = queue.publish("c", hints=f"0 4 0 \0{record('a', 'b')}")
    assert answer.rows == [["duplicate", "c", 0, ["0", position, record("a")]]], "what waits, and for what"
    queue.publish("c", body="new")
    assert not {"dependents", "outbox"} & queue.kept()
    assert [each.body for each in queue.subscribe(W1, 5).deliveries] == ["new"]
    answer = queue.publish("c", hints=f"0 4 0 \0{record('a')}")
    assert answer.rows == [["duplicate", "c", 0, ["0"]]], "while it is locked"


@pytest.mark.parametrize("hints", ["60000 4 0", "0 9 0", "60000 0 0", "0 0 90000"])
def test_hints(queue: Queue, hints: str) -> None:
    """A delay counts from the publish, whichever is over last; priority and time to live stay."""
    position = wait(queue, "c", "a", hints=hints)
    queue.publish("d")
    queue.subscribe(W1, 1)
    note(queue, position, 1, "acknowledged")
    assert queue.browse()["c"] == ("delayed" if hints.startswith("6") else "waiting")
    queue.now += 59_000
    queue.publish("e")
    order = [queue.retract(W1, "d").given]
    queue.now += 1_000
    queue.expire()
    while order[-1]:
        order.append(queue.retract(W1, order[-1][0][1]).given)
        queue.now += 60_000
        order[-1] = order[-1] or queue.expire().given
    first, second = ("e", "c") if hints.split()[1] == "0" or hints.startswith("6") else ("c", "e")
    assert [item for given in order for _, item in given] == [first, second]


def test_order(unopened: Queue) -> None:
    """On an ordered node a waiting item lets others of its key pass, and takes its place when it may go out."""
    queue = unopened
    queue.open(ordered="1")
    position = wait(queue, "c", "a", key="k")
    for item in ("d", "e"):
        queue.publish(item, key="k")
    assert queue.subscribe(W1, 5).given == [(W1, "d")]
    note(queue, position, 1, "acknowledged")
    assert queue.retract(W1, "d").given == [(W1, "c")]
    assert queue.retract(W1, "c").given == [(W1, "e")]


@pytest.mark.parametrize("fair", ["key", "publisher"])
def test_fair_order(unopened: Queue, fair: str) -> None:
    """On a fair node a waiting item has no turn until it may go out."""
    queue = unopened
    queue.open(fair=fair)
    position = wait(queue, "c", "a", key="k", hints="0 9 0")
    queue.publish("d", "e", key="l", by="bob@x")
    assert queue.subscribe(W1, 1).given == [(W1, "d")]
    note(queue, position, 1, "acknowledged")
    assert queue.retract(W1, "d").given == [(W1, "c")]
    assert queue.retract(W1, "c").given == [(W1, "e")]
