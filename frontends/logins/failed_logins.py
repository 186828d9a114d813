"""Failed logins at one door: logged with account and address, counted, and slowed. Must not know how anybody logs in.

Each pair of account and address is slowed for itself: whoever guesses an account's password keeps nobody out who is elsewhere.
"""

import time
from collections.abc import Callable
from ipaddress import IPv6Address, ip_address
from typing import Final

import structlog

FREE: Final = 5
"""Failures of a pair without a pause: people mistype."""

LONGEST_SECONDS: Final = 60.0
FORGOTTEN_SECONDS: Final = 600.0
"""A pair that has not failed for so long begins anew."""

MOST: Final = 10_000
"""Pairs that are known; then the one that has not failed for the longest is forgotten."""

_PREFIX: Final = 64
"""Bits of an IPv6 address that name a network, in which one has any number of addresses."""

_CUT: Final = 200

_log = structlog.get_logger("stanzaq.login")


class TooSoon(Exception):  # noqa: N818  (named after the state)
    """A pair has failed too often to try again now: in so many `seconds`."""

    def __init__(self, seconds: float) -> None:
        """Keep the seconds."""
        super().__init__(f"too many logins have failed: try again in {seconds:.0f} s")
        self.seconds = seconds


class FailedLogins:
    """The failures of one door."""

    def __init__(self, door: str, clock: Callable[[], float] = time.monotonic) -> None:
        """Begin without any."""
        self._door = door
        self._clock = clock
        self._pairs: dict[tuple[str, str], tuple[int, float]] = {}
        self.count: Callable[[], object] = lambda: None
        """Counts a failure."""

    def judge(self, account: str, address: str) -> None:
        """Raise TooSoon if this pair has to wait."""
        failures, failed_at = self._pairs.get(_pair(account, address), (0, 0.0))
        ends = failed_at + _pause(failures)
        if (now := self._clock()) < ends:
            raise TooSoon(ends - now)

    def tell(self, name: str, address: str, why: str) -> None:
        """Count and log a failure of somebody who gave this name; the log limits floods."""
        self.count()
        about = {"account": name[:_CUT], "address": address, "detail": why[:_CUT]}
        _log.warning("login failed", door=self._door, **{key: value for key, value in about.items() if value})

    def slow(self, account: str, address: str) -> None:
        """Note a failure of a pair, which may have to wait before the next attempt."""
        pair, now = _pair(account, address), self._clock()
        failures, failed_at = self._pairs.pop(pair, (0, now))
        if len(self._pairs) >= MOST:
            del self._pairs[next(iter(self._pairs))]
        self._pairs[pair] = (failures if now - failed_at < FORGOTTEN_SECONDS else 0) + 1, now

    def forget(self, account: str, address: str) -> None:
        """Note a success: the pair begins anew."""
        self._pairs.pop(_pair(account, address), None)


def _pause(failures: int) -> float:
    return min(LONGEST_SECONDS, 2.0 ** min(failures - FREE, 10)) if failures >= FREE else 0.0


def _pair(account: str, address: str) -> tuple[str, str]:
    try:
        found = ip_address(address.partition("%")[0])
    except ValueError:
        return account, address
    if isinstance(found, IPv6Address) and found.ipv4_mapped is None:
        return account, str(IPv6Address(int(found) >> _PREFIX << _PREFIX))
    return account, address
