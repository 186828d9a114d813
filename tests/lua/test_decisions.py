"""Who may end a lock (docs/conformance.md, D4 to D11), the same for retract, unlock and renew but for two outcomes."""

from collections.abc import Callable

import pytest

from tests.lua.driver import Answer, Queue
from tests.lua.worded import ALICE, HARD, W1, W2, W3

Ask = Callable[..., Answer]
OPERATIONS = ("retract", "unlock", "renew")
each = pytest.mark.parametrize("operation", OPERATIONS)


@pytest.fixture
def ask(queue: Queue, operation: str) -> Ask:
    """Return the operation as a function of requester, item, token."""
    found: Ask = getattr(queue, operation)
    return found


@each
def test_row_4_unknown(queue: Queue, ask: Ask) -> None:
    """D4 (Q22): an unknown item is not found, however its id looks."""
    for item in ("gone", "0-5-0", *HARD):
        assert ask(W1, item).words == ["item-not-found"]


@each
def test_row_5_holder(queue: Queue, ask: Ask) -> None:
    """D5 (Q19, Q29): the holder may, with the right token or with none."""
    queue.publish("a", "b")
    first, second = queue.subscribe(W1, 2).deliveries
    assert ask(W1, "a").words == ["ok"]
    assert ask(W1, "b", second.token).words == ["ok"]
    assert first.token < second.token


@each
def test_row_5_bare_subscription(queue: Queue, ask: Ask) -> None:
    """D5: every resource of a JID that subscribed bare holds what the subscription holds (Q10)."""
    queue.publish("a")
    queue.subscribe("w@x", 1)
    assert ask("w@x/any where", "a").words == ["ok"]


@each
def test_row_5_full_subscription(queue: Queue, ask: Ask) -> None:
    """D8: another resource of a JID that subscribed full is a stranger."""
    queue.publish("a")
    queue.subscribe("w@x/1", 1)
    assert ask("w@x/2", "a").words == ["forbidden"]


@each
def test_row_6_old_token(queue: Queue, ask: Ask) -> None:
    """D6 (QX14): a holder that names an earlier lock has lost that lock."""
    queue.publish("a")
    old = queue.subscribe(W1, 1).deliveries[0].token
    new = queue.unlock(W1, "a").deliveries[0].token
    assert old < new
    assert ask(W1, "a", old).words == ["lock-lost"]
    assert ask(W1, "a", new).words == ["ok"]


@each
def test_row_7_locked_by_another(queue: Queue, ask: Ask) -> None:
    """D7 (Q24, QX3): former holders, the publisher and the owner conflict with the holder."""
    queue.publish("a", by=ALICE)
    queue.subscribe(W1, 1)
    queue.subscribe(W2, 1)
    assert queue.unlock(W1, "a").given == [(W2, "a")]
    assert ask(W1, "a").words == ["locked-by-another"]
    assert ask("alice@x/home", "a").words == ["locked-by-another"]
    assert ask("boss@x/home", "a", owner="1").words == ["locked-by-another"]


@each
def test_row_8_never_received(queue: Queue, ask: Ask) -> None:
    """D8 (Q23): a JID that never had the item is forbidden while another holds it."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    assert ask(W3, "a").words == ["forbidden"]


@each
def test_row_9_lost(queue: Queue, ask: Ask) -> None:
    """D9 (Q25): a former holder whose lock expired gets unexpected-request, also as owner or publisher."""
    queue.publish("a", by="w1@x")
    queue.subscribe(W1, 1)
    queue.unsubscribe(W1)
    queue.now += 60_000
    queue.expire()
    assert queue.browse() == {"a": "waiting"}
    assert ask(W1, "a").words == ["lock-lost"]
    assert ask(W1, "a", owner="1").words == ["lock-lost"]


@each
def test_row_10_owner_and_publisher(queue: Queue, ask: Ask, operation: str) -> None:
    """D10 (QX15): the publisher and the owner delete a waiting item; unlock and renew find no lock."""
    queue.publish("a", "b", "c", by=ALICE)
    word = "ok" if operation == "retract" else "lock-lost"
    assert ask("alice@x/home", "a").words == [word]
    assert ask("boss@x/home", "b", owner="1").words == [word]
    assert queue.browse() == ({"c": "waiting"} if word == "ok" else dict.fromkeys("abc", "waiting"))


@each
def test_row_11_stranger(queue: Queue, ask: Ask) -> None:
    """D11: a stranger may do nothing with a waiting item."""
    queue.publish("a", by=ALICE)
    assert ask("bob@x/home", "a").words == ["forbidden"]


@each
def test_deadline_passed_but_not_swept(queue: Queue, ask: Ask) -> None:
    """A lock is its holder's until `sweep` has ended it: late but first is in time."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.now += 600_000
    assert ask(W1, "a").words == ["ok"]


@each
def test_hard_ids(queue: Queue, ask: Ask) -> None:
    """Ids and JIDs of any text work like others (QX14, bad input)."""
    jid = "w@x/two words\nand a line 🐇"
    queue.publish(*HARD)
    assert [item for _, item in queue.subscribe(jid, 100).given] == list(HARD)
    for item in HARD:
        assert ask(jid, item).words == ["ok"]
    if ask.__name__ == "retract":
        assert queue.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


@each
def test_ids_of_the_service_are_not_aliases(queue: Queue, ask: Ask) -> None:
    """An item has one id: the position of an item with its publisher's id is no second one, nor is a padded number."""
    queue.publish("a", "", by=ALICE)
    made = list(queue.browse())[1]
    place = made.removeprefix("0-")
    ms, seq = place.split("-")
    first = f"0-{ms}-{int(seq) - 1}"
    for name in (first, f"0-0{place}", f"0-{ms}-0{seq}"):
        assert ask("alice@x/home", name, owner="1").words == ["item-not-found"]
    queue.subscribe(W1, 2)
    for name in (first, f"0-0{place}"):
        assert ask(W1, name).words == ["item-not-found"]
    assert ask(W1, made).words == ["ok"]
