"""Until when all is sent: what the XMPP server has surely read."""

import random
from dataclasses import dataclass

import pytest

from broker.redis_core.maintenance.sent_until import READ_SECONDS, SentUntil


def test_what_was_just_written_is_not_sent() -> None:
    """A delivery counts as sent only when it had left the process one look, at least a second, before (guarantee 4)."""
    sent = SentUntil(0.0)
    assert sent.look(10.0, 9.9, written=True) == 0.0
    assert sent.look(10.0 + READ_SECONDS / 2, 10.4, written=True) == 0.0
    assert sent.look(10.0 + READ_SECONDS, 10.9, written=True) == 9.9
    assert sent.look(10.6 + READ_SECONDS, 11.5, written=False) == 10.4
    assert sent.look(20.0, 19.9, written=False) == 10.9


def test_a_break() -> None:
    """What the server had not read when the stream broke is not sent, until it was sent again."""
    sent = SentUntil(0.0)
    sent.look(10.0, 10.0, written=True)
    sent.break_off()
    assert sent.look(12.0, 12.0, written=True) == sent.look(14.0, 14.0, written=True) == 0.0
    sent.close(14.0)
    assert sent.time == 0.0
    sent.resume()
    sent.look(15.0, 15.0, written=True)
    assert sent.look(17.0, 17.0, written=True) == 15.0


def test_a_stream_closed_in_order_is_read_to_its_end() -> None:
    """Before an orderly close all that is written is sent at once."""
    sent = SentUntil(0.0)
    sent.close(10.0)
    assert sent.time == 10.0


@dataclass
class _Handed:
    """When something was handed out, came, was written, and is read, if the stream lives until then."""

    at: float
    came: float
    written: float
    read: float


@pytest.mark.parametrize("seed", range(20))
def test_killed_at_any_time(seed: int) -> None:
    """Guarantee 4: whenever a frontend dies, all that it was handed before its last word has been read."""
    dice = random.Random(seed)
    sent, now, handed = SentUntil(0.0), 0.0, list[_Handed]()
    for _step in range(400):
        now += dice.uniform(0.0, 0.3)
        at = now + dice.uniform(0.0, 0.2)
        came = at + dice.choice([0.01, 0.5, 3.0])
        # The stream keeps its order.
        written = max([came + dice.choice([0.0, 0.0, 0.4]), *(each.written for each in handed[-1:])])
        handed.append(_Handed(at, came, written, written + dice.uniform(0.0, READ_SECONDS)))
        # A call under way holds back what is known, from when it was begun.
        received = min([now, *(each.at - 0.2 for each in handed if each.came > now)])
        is_written = all(each.written <= now for each in handed if each.came <= now)
        told = sent.look(now, received, written=is_written)
        assert all(each.read <= now for each in handed if each.at < told)
