"""sweep: what is due in a partition."""

from tests.lua.driver import T0, Answer, Queue
from tests.lua.worded import W1, W2


def test_passes_on(queue: Queue) -> None:
    """Q35, X4: at its deadline a lock ends, its holder gets a notice, and the item goes to the next."""
    queue.publish("a")
    token = queue.subscribe(W1, 1).deliveries[0].token
    queue.subscribe(W2, 1)
    queue.now += 59_999
    assert queue.expire() == Answer("ok", due=T0 + 60_000, token=token)
    queue.now += 1
    answer = queue.expire()
    assert answer.notices == [["unlocked", W1, "a", token]]
    assert answer.given == [(W2, "a")]
    assert answer.due == T0 + 120_000
    assert [r["type"] for r in queue.journal()] == ["expired"]


def test_often(queue: Queue) -> None:
    """Idempotent: a second sweep finds nothing to do."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.now += 60_000
    queue.expire()
    again = queue.expire()
    assert (again.notices, again.deliveries) == ([], [])


def test_bounded(queue: Queue) -> None:
    """X7: 200 locks end in one call; it says that there are more, and the earliest deadlines go first."""
    queue.publish(*(f"i{n}" for n in range(200)))
    queue.publish(*(f"i{n}" for n in range(200, 250)))
    queue.subscribe(W1, 250)
    queue.expire()
    queue.unsubscribe(W1)
    queue.now += 60_000
    answer = queue.expire()
    assert (len(answer.notices), answer.more) == (200, 1)
    answer = queue.expire()
    assert (len(answer.notices), answer.more) == (50, 0)
    assert queue.stats()["waiting"] == 250


def test_last_delivery(unopened: Queue) -> None:
    """A lock that expires at the last delivery makes a dead letter, which is due again until it has arrived."""
    unopened.open(max_deliveries=1)
    unopened.publish("a", body="x")
    unopened.subscribe(W1, 1)
    unopened.now += 60_000
    (letter,) = unopened.letters(unopened.expire())
    assert (letter.item, letter.body, letter.attempts, letter.jid, letter.reason) == ("a", "x", 1, W1, "max-deliveries")
    unopened.now += 4_999
    assert not unopened.expire().outbox
    unopened.now += 1
    assert unopened.letters(unopened.expire()) == [letter]
    unopened.end(letter.entry)
    unopened.now += 10_000
    assert not unopened.expire().outbox
    assert unopened.kept() == {"meta", "subscribers", "ready_subscribers", "journal"}


def test_delays_and_deadlines(queue: Queue) -> None:
    """The earliest of deadlines and delays is when the next sweep is due."""
    queue.publish("a", "b")
    queue.subscribe(W1, 1)
    assert queue.unlock(W1, "a", delay_ms=90_000).due == T0 + 60_000
    assert queue.retract(W1, "b").due == T0 + 90_000
    queue.now += 90_000
    assert queue.expire().given == [(W1, "a")]


def test_no_time_given(queue: Queue) -> None:
    """Guarantee 5, X5: without a given time the clock is Redis's own."""
    queue.now = ""  # type: ignore[assignment]
    answer = queue.run(
        "publish", {"item": "a", "by": "b", "body": "c", "key": "", "once": "", "hints": "", "refused": ""}
    )
    seconds = queue.client.time()[0]
    queue.now = 0
    ((row,), _reached) = queue.page()
    assert answer.words == ["ok"] and abs(row[3] // 1000 - seconds) < 60


def test_old_journal_goes(queue: Queue) -> None:
    """Guarantee 6: the journal is bounded by age too; the next sweep removes a record older than a week."""
    queue.publish("a")
    queue.subscribe(W1, 1)
    queue.retract(W1, "a")
    # The server gives a record its id, so its age is by the server's own clock.
    seconds, _micros = queue.client.time()
    queue.now = seconds * 1000 + 6 * 24 * 3600 * 1000
    queue.expire()
    assert len(queue.journal()) == 1
    queue.now += 2 * 24 * 3600 * 1000
    queue.expire()
    assert queue.journal() == []


def test_forgets_repeats_that_nobody_sends_any_more(queue: Queue) -> None:
    """Guarantee 6: ids and tickets do not stay beyond their window, also when nothing is published any more."""
    for first in range(0, 500, 100):
        queue.publish(*(str(number) for number in range(first, first + 100)), dedupe="ignore")
    queue.publish("t", once="ticket")
    queue.now += 600_001
    answer = queue.expire()
    assert answer.more == 1
    while answer.more:
        answer = queue.expire()
    assert queue.client.zrange(queue.key("dedupe"), 0, -1) == [b"ticket ticket"]
