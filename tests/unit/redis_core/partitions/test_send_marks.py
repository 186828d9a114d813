"""Sent marks: the deliveries that the XMPP server has surely read."""

from broker.redis_core.partitions.send_marks import READ_SECONDS, SendMarks


def test_what_was_just_flushed_is_not_sent() -> None:
    """A delivery counts as sent only when it had left the process one look, at least a second, before (guarantee 4)."""
    marks = SendMarks()
    marks.received = 5
    marks.flushed(10.0, closing=False)
    assert marks.sent == 0 and marks.unreported
    marks.flushed(10.0 + READ_SECONDS / 2, closing=False)
    assert marks.sent == 0
    marks.received = 8
    marks.flushed(10.0 + READ_SECONDS, closing=False)
    assert marks.sent == 5
    marks.flushed(10.0 + 2 * READ_SECONDS, closing=False)
    assert marks.sent == 8


def test_a_stream_closed_in_order_is_read_to_its_end() -> None:
    """Before an orderly close all written deliveries count as sent at once."""
    marks = SendMarks()
    marks.received = 5
    marks.flushed(10.0, closing=True)
    assert marks.report() == 5
    assert not marks.unreported


def test_redis_is_told_once() -> None:
    """A mark is stored once, and again after a call whose outcome is unknown."""
    marks = SendMarks()
    marks.received = 5
    assert marks.report() is None
    marks.flushed(1.0, closing=True)
    assert (marks.report(), marks.report()) == (5, None)
    marks.forget_report()
    assert (marks.unreported, marks.report()) == (True, 5)
