"""A partition after Redis has lost its last second: an earlier state is restored, and time has gone on."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.lua.driver import Queue
from tests.lua.worded import W1, W2

Loss = Callable[[], None]


def snapshot(queue: Queue) -> Loss:
    """Save all keys of a partition; return a function that restores them, a millisecond later."""
    prefix = queue.key("meta").removesuffix("meta")
    kept: dict[Any, Any] = {name: queue.client.dump(name) for name in queue.client.scan_iter(f"{prefix}*")}

    def lose() -> None:
        for name in list(queue.client.scan_iter(f"{prefix}*")):
            queue.client.delete(name)
        for name, value in kept.items():
            queue.client.restore(name, 0, value)
        queue.now += 1

    return lose


def tokens(queue: Queue) -> Iterator[int]:
    """Hand out, send again, and end locks; return the tokens and the sequences."""
    for answer in (queue.publish("a", "b"), queue.subscribe(W1, 2), queue.unlock(W1, "a"), queue.unlock(W1, "b")):
        for delivery in answer.deliveries:
            yield from {delivery.token, delivery.sequence}
    lapsed = queue.run("take_over", frontend="f2", previous="f1", after="0").deliveries
    assert lapsed
    yield from (delivery.sequence for delivery in lapsed)


def fences(queue: Queue) -> Iterator[int]:
    """Attach an owner, then another by a steal; return the fences."""
    for jid in (W1, W2):
        yield queue.attach(jid, "+").rows[0][2]


def reader_ownerships(queue: Queue) -> Iterator[int]:
    """Let links own the reading; return the fences."""
    for epoch in ("1", "2"):
        yield queue.run("acquire_reader", {"group": "g", "epoch": epoch, "equal": "", "fence": ""}).rows[0][2]


def entries(queue: Queue) -> Iterator[int]:
    """Deliver entries of the log to a reader; return their sequences."""
    queue.open(revision=2, queueing="0", keep_items=10)
    queue.follow(W1, 10)
    yield from (delivery.sequence for delivery in queue.publish("a", "b").deliveries)


@pytest.mark.parametrize("numbers", [tokens, fences, reader_ownerships, entries])
def test_no_number_twice(queue: Queue, numbers: Callable[[Queue], Iterator[int]]) -> None:
    """Guarantee 10: numbers given in the lost second are not given again, however many there were."""
    lose = snapshot(queue)
    lost = list(numbers(queue))
    assert lost
    lose()
    found = list(numbers(queue))
    assert len(found) == len(lost)
    assert max(lost) < min(found)


def test_the_clock_goes_back(queue: Queue) -> None:
    """Guarantee 10: without a loss numbers rise, even while the clock of another master is behind."""
    queue.subscribe(W1, 3)
    first = queue.publish("a").deliveries[0]
    queue.now -= 5_000
    second, third = queue.publish("b", "c").deliveries
    assert first.token < second.token < third.token


def test_two_owners(queue: Queue) -> None:
    """EX11, EX12: an attach in the lost second owns nothing, whoever owns the partition next and by however many steps."""
    queue.attach(W1)
    lose = snapshot(queue)
    queue.publish("a")
    lost = queue.attach(W2, "+")
    assert lost.given == [(W2, "a")]
    lose()
    queue.publish("a")
    found = queue.attach(W1, "+")
    assert found.given == [(W1, "a")] and found.rows[0][2] > lost.rows[0][2]
    # Neither the fence nor the token from the lost second is accepted.
    assert queue.attach(W2, "+", expected=lost.rows[0][2]).words == ["stale"]
    assert queue.retract(W2, "a", lost.deliveries[0].token).words == ["forbidden"]
    assert queue.retract(W1, "a", lost.deliveries[0].token).words == ["lock-lost"]


def test_a_link_of_the_lost_second(queue: Queue) -> None:
    """EX11: a link of the lost second reads nothing under its fence, also when another owns the reading."""

    def bind(epoch: str, fence: Any = "") -> list[Any]:  # noqa: ANN401
        found: list[Any] = queue.run(
            "acquire_reader", {"group": "g", "epoch": epoch, "equal": "", "fence": fence}
        ).rows[0]
        return found

    bind("1")
    lose = snapshot(queue)
    fence = bind("2")[2]
    lose()
    assert bind("2")[2] != fence
    assert bind("", fence) == ["superseded"]
    assert queue.log_page(group="g", fence=fence) == ["superseded"]
