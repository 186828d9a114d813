"""Failed logins: who waits for how long."""

import pytest

from frontends.logins import failed_logins
from frontends.logins.failed_logins import FORGOTTEN_SECONDS, FREE, FailedLogins, TooSoon


class Clock:
    """A clock that a test sets."""

    now = 1000.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


def waits(failed: FailedLogins, account: str = "a@x", address: str = "192.0.2.1") -> float:
    """Return how long a pair waits."""
    try:
        failed.judge(account, address)
    except TooSoon as early:
        return early.seconds
    return 0.0


def test_pauses() -> None:
    """A few failures cost nothing; then each pause is twice the last one, up to a minute, until a success or quiet minutes."""
    clock = Clock()
    failed, pauses = FailedLogins("rest", clock), []
    for _ in range(FREE + 8):
        failed.slow("a@x", "192.0.2.1")
        pauses.append(waits(failed))
    assert pauses == [0.0] * (FREE - 1) + [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, 60.0, 60.0, 60.0]
    assert waits(failed, address="192.0.2.2") == waits(failed, "b@x") == 0.0
    clock.now += 61
    assert waits(failed) == 0.0
    clock.now += FORGOTTEN_SECONDS
    failed.slow("a@x", "192.0.2.1")
    assert waits(failed) == 0.0
    for _ in range(FREE):
        failed.slow("a@x", "192.0.2.1")
    failed.forget("a@x", "192.0.2.1")
    assert waits(failed) == 0.0


def test_one_network() -> None:
    """Addresses of one IPv6 network are one; those of IPv4 are each for themselves, also as IPv6 writes them."""
    failed = FailedLogins("amqp", Clock())
    for number in range(FREE):
        failed.slow("a@x", f"2001:db8::{number}")
        failed.slow("a@x", f"::ffff:192.0.2.{number}")
    assert waits(failed, address="2001:db8::ffff%eth0") and not waits(failed, address="2001:db8:0:1::1")
    assert not waits(failed, address="::ffff:192.0.2.1") and not waits(failed, address="")


def test_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Beyond a number of pairs the one that has not failed for the longest is forgotten."""
    monkeypatch.setattr(failed_logins, "MOST", 3)
    failed = FailedLogins("rest", Clock())
    for account in ("a", "b", "c", "a", "d"):
        for _ in range(FREE):
            failed.slow(account, "")
    assert [bool(waits(failed, account, "")) for account in "abcd"] == [True, False, True, True]
