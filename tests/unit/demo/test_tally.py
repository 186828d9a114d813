"""The demo's evidence: every item is counted once, whatever came twice or late."""

import pytest

from frontends.tools.demo.stanzas import Delivered
from frontends.tools.demo.tally import Latency, Tally, percentile


@pytest.fixture
def tally() -> Tally:
    """Return a tally after the publication of two items at 10 s and at 11 s."""
    tally = Tally()
    for item_id, now in (("a", 10.0), ("b", 11.0)):
        tally.note_sending(item_id, now)
        tally.note_answered(item_id)
    return tally


def test_done(tally: Tally) -> None:
    """Two items delivered and acknowledged once each are neither lost nor queued, and there is nothing of a kill."""
    for item_id, token, now in (("a", 1, 10.5), ("b", 2, 11.5)):
        assert tally.note_delivered(Delivered(item_id, token), now)
        assert tally.acknowledge(item_id, now + 0.5)
    assert tally.summary(shown=0, queued=0).record() == {
        "published": 2,
        "delivered": 2,
        "acknowledged": 2,
        "redelivered": 0,
        "duplicates": 0,
        "queued": 0,
        "lost": 0,
        "jobs_per_s": 1.0,
        "latency_ms": {"p50": 500.0, "p99": 500.0},
    }


def test_same_token(tally: Tally) -> None:
    """The same item with the same token is a duplicate, not to be worked on; with a newer one it is a redelivery."""
    assert tally.note_delivered(Delivered("a", 1), 12.0)
    assert not tally.note_delivered(Delivered("a", 1), 12.1)
    assert tally.note_delivered(Delivered("a", 3), 12.2)
    assert not tally.note_delivered(Delivered("a", 1), 12.3)
    summary = tally.summary(shown=0, queued=0)
    assert (summary.delivered, summary.duplicates, summary.redelivered) == (2, 2, 1)


def test_acknowledged_twice(tally: Tally) -> None:
    """A second acknowledgement of an item does not count."""
    tally.note_delivered(Delivered("a", 1), 12.0)
    assert tally.acknowledge("a", 12.0)
    assert not tally.acknowledge("a", 12.1)
    assert tally.summary(shown=0, queued=0).acknowledged == 1


def test_lost(tally: Tally) -> None:
    """A published item is lost when nobody acknowledged it and the service cannot show it (guarantee 1)."""
    tally.note_delivered(Delivered("a", 1), 12.0)
    assert tally.find_missing() == {"a", "b"}
    assert tally.summary(shown=1, queued=1).lost == 1


def test_unanswered() -> None:
    """An item whose publish was never answered may be lost: nobody was promised anything."""
    tally = Tally()
    tally.note_sending("a", 1.0)
    assert tally.summary(shown=0, queued=0).lost == 0


def test_kill(tally: Tally) -> None:
    """After a kill, the time runs until the last item then under way has come; until then there is no figure."""
    tally.note_delivered(Delivered("a", 1), 12.0)
    tally.note_kill(13.0)
    tally.note_sending("c", 13.5)
    assert tally.summary(shown=0, queued=0).resent_within_s is None
    tally.note_delivered(Delivered("b", 2), 16.0)
    tally.note_delivered(Delivered("c", 3), 20.0)
    assert tally.summary(shown=0, queued=0).record().items() >= {"killed": 1, "resent_within_s": 3.0}.items()


def test_idle(tally: Tally) -> None:
    """Nothing moves until a publish, a delivery or an acknowledgement; before the first publish nothing could."""
    assert Tally().seconds_idle(1000.0) == 0.0
    assert tally.seconds_idle(14.0) == 3.0
    tally.note_delivered(Delivered("a", 1), 13.0)
    tally.note_delivered(Delivered("a", 1), 14.0)
    assert tally.seconds_idle(14.0) == 1.0


def test_percentile() -> None:
    """The percentiles of 1 to 100 ms are as expected; of nothing there are none."""
    waits = [number / 1000 for number in range(100, 0, -1)]
    assert Latency(percentile(waits, 0.5), percentile(waits, 0.99)) == Latency(51.0, 100.0)
    assert percentile([], 0.5) == 0.0
