"""A sender's reaction to each answer at each step."""

from collections.abc import Callable

import pytest

from stanzaq.xep_qos.elements import Error, Result
from stanzaq.xep_qos.exchange import Exchange, Move, Refused, Timing, Unconfirmed
from stanzaq.xep_qos.outbox import Outstanding, Step

_TIMING = Timing(5.0, 60.0, 9, 3600.0)
_UNKNOWN = Error("cancel", "item-not-found")


def _exchange(step: Step, since: float = 0.0, timing: Timing = _TIMING) -> Exchange:
    return Exchange(Outstanding("m1", "a@example.org/1", "b@example.org", "<message/>", step, since), timing)


def test_acknowledged_is_done_with_its_result() -> None:
    """One result ends at least once."""
    assert _exchange(Step.ACKNOWLEDGED).heard(Result(), 1.0) is Move.DONE


def test_assured_goes_in_two_steps() -> None:
    """<received/> leads to <deliver/>, whose result is the end; each step has its time."""
    exchange = _exchange(Step.ASSURED)
    assert exchange.heard(Result("m1"), 7.0) is Move.PROCEED
    assert (exchange.sent.step, exchange.sent.since) == (Step.DELIVER, 7.0)
    assert exchange.heard(Result(), 8.0) is Move.DONE


@pytest.mark.parametrize("echoed", ["", "m2"])
def test_received_must_name_the_message(echoed: str) -> None:
    """A result without the msgId confirms nothing: the request is sent again, and in the end the sender is told."""
    exchange = _exchange(Step.ASSURED)
    for _try in range(8):
        assert exchange.heard(Result(echoed), 1.0) is Move.PAUSE
    with pytest.raises(Unconfirmed):
        exchange.heard(Result(echoed), 1.0)


@pytest.mark.parametrize("step", list(Step))
def test_patience(step: Step) -> None:
    """Silence leads to repeats, first after 5 s, then twice as long each time up to the cap; then the sender is told."""
    exchange = _exchange(step)
    waited = []
    for _try in range(8):
        waited.append(exchange.patience)
        assert exchange.heard(None, 1.0) is Move.REPEAT
    assert [*waited, exchange.patience] == [5, 10, 20, 40, 60, 60, 60, 60, 60]
    with pytest.raises(Unconfirmed) as told:
        exchange.heard(None, 1.0)
    assert told.value.condition == "remote-server-timeout"


def test_patience_has_no_end_of_its_own() -> None:
    """Thousands of tries are only a number."""
    exchange = _exchange(Step.ASSURED, timing=Timing(5.0, 3600.0, 5000, 3600.0))
    for _try in range(4999):
        exchange.heard(None, 1.0)
    assert exchange.patience == 3600


def test_patience_begins_anew_with_each_step() -> None:
    """<deliver/> has as many tries as <assured/> had (S12)."""
    exchange = _exchange(Step.ASSURED)
    for _try in range(8):
        exchange.heard(None, 1.0)
    exchange.heard(Result("m1"), 1.0)
    assert exchange.patience == 5


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize(
    "fault",
    [
        Error("wait", "resource-constraint"),
        Error("wait", "internal-server-error"),
        Error("cancel", "remote-server-not-found"),
        Error("cancel", "service-unavailable"),
    ],
)
def test_what_passes_is_repeated(step: Step, fault: Error) -> None:
    """An error of type wait, and one of a server that cannot reach the receiver, lead to a pause; the last one is reported."""
    exchange = _exchange(step)
    for _try in range(8):
        assert exchange.heard(fault, 1.0) is Move.PAUSE
    with pytest.raises(Unconfirmed) as told:
        exchange.heard(fault, 1.0)
    assert told.value.condition == fault.condition


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("condition", ["not-allowed", "bad-request", "forbidden", "not-acceptable"])
def test_a_refusal_is_told(step: Step, condition: str) -> None:
    """Any other error is final, and reported at once with its condition and text."""
    with pytest.raises(Refused, match=rf"b@example\.org: {condition} \(because\)") as told:
        _exchange(step).heard(Error("cancel", condition, "because"), 1.0)
    assert (told.value.condition, told.value.text, told.value.sent.step) == (condition, "because", step)


def _silence(exchange: Exchange) -> None:
    exchange.heard(None, 1.0)


@pytest.mark.parametrize(
    ("step", "told"), [(Step.ACKNOWLEDGED, Unconfirmed), (Step.ASSURED, Refused), (Step.DELIVER, Unconfirmed)]
)
@pytest.mark.parametrize("before", [_silence, Exchange.lost, None], ids=["silence", "lost", "resumed"])
def test_a_refusal_after_silence(step: Step, told: type[Exception], before: Callable[[Exchange], None] | None) -> None:
    """A refusal of this copy says nothing of an unanswered earlier one, unless nothing is delivered at this step."""
    exchange = Exchange(_exchange(step).sent, _TIMING, resumed=before is None)
    if before is not None:
        before(exchange)
    with pytest.raises(told):
        exchange.heard(Error("auth", "forbidden"), 2.0)


def test_silence_before_received_is_past() -> None:
    """An unanswered <assured/> makes nothing doubtful about <deliver/>."""
    exchange = _exchange(Step.ASSURED)
    exchange.heard(None, 1.0)
    exchange.heard(Result("m1"), 2.0)
    with pytest.raises(Refused):
        exchange.heard(Error("auth", "forbidden"), 3.0)


@pytest.mark.parametrize("step", [Step.ACKNOWLEDGED, Step.ASSURED])
def test_item_not_found_is_a_refusal_elsewhere(step: Step) -> None:
    """Only <deliver/> can meet a receiver that has lost the message."""
    with pytest.raises(Refused):
        _exchange(step).heard(_UNKNOWN, 1.0)


def test_what_was_lost_is_sent_anew() -> None:
    """`item-not-found` to <deliver/> begins again with the same msgId and content (SX8), once."""
    exchange = _exchange(Step.DELIVER, since=100.0)
    before = exchange.sent
    assert exchange.heard(_UNKNOWN, 200.0) is Move.PROCEED
    assert exchange.sent.step is Step.ASSURED
    assert (exchange.sent.msg_id, exchange.sent.message) == (before.msg_id, before.message)
    assert exchange.heard(Result("m1"), 201.0) is Move.PROCEED
    with pytest.raises(Refused) as told:
        exchange.heard(_UNKNOWN, 202.0)
    assert told.value.condition == "item-not-found"


@pytest.mark.parametrize(("now", "anew"), [(3700.0, True), (3700.1, False)])
def test_what_may_be_forgotten_is_not_sent_anew(now: float, *, anew: bool) -> None:
    """A receiver that may have forgotten that it delivered must not get the message again: the sender is told instead."""
    exchange = _exchange(Step.DELIVER, since=100.0)
    if anew:
        assert exchange.heard(_UNKNOWN, now) is Move.PROCEED
    else:
        with pytest.raises(Unconfirmed, match="too late"):
            exchange.heard(_UNKNOWN, now)


@pytest.mark.parametrize("step", [Step.ACKNOWLEDGED, Step.ASSURED])
def test_a_new_jid_before_deliver(step: Step) -> None:
    """Nothing is delivered yet, so the message goes on under the new JID."""
    exchange = _exchange(step)
    exchange.speak_as("a@example.org/2")
    assert exchange.sent.sender == "a@example.org/2"


def test_a_new_jid_at_deliver() -> None:
    """The receiver would take the message for another one, so the sender is told (S14)."""
    exchange = _exchange(Step.DELIVER)
    exchange.speak_as("a@example.org/1")
    with pytest.raises(Unconfirmed, match=r"the stream is now a@example\.org/2"):
        exchange.speak_as("a@example.org/2")
