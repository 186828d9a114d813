"""Passwords: who waits for whose checks, and how long a right one is known."""

import asyncio
import threading

import bcrypt
import pytest

from broker.model.names import Jid
from frontends.logins.failed_logins import FailedLogins, TooSoon
from frontends.logins.passwords import REMEMBERED_SECONDS, WAITING_MOST, Passwords, TooMany
from tests.waiting import PATIENCE_SECONDS

ALICE, BOB = Jid("alice@x"), Jid("bob@x")
HERE = "192.0.2.1"
HASH = bcrypt.hashpw(b"secret", bcrypt.gensalt(4)).decode()
LINES = f"{ALICE}:{HASH}\n{BOB}:{HASH}"


class Checks:
    """The checks that are made, in their order; those of guesses last until they are let go."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Watch the library."""
        self.made: list[bytes] = []
        self.free = threading.Event()
        self._check = bcrypt.checkpw
        monkeypatch.setattr("bcrypt.checkpw", self._checked)

    def _checked(self, password: bytes, hashed: bytes) -> bool:
        self.made.append(password)
        if password != b"secret":
            self.free.wait(PATIENCE_SECONDS)
        return self._check(password, hashed)


@pytest.fixture
def checks(monkeypatch: pytest.MonkeyPatch) -> Checks:
    """Watch the checks."""
    return Checks(monkeypatch)


async def test_guesses_wait_for_each_other(checks: Checks) -> None:
    """Guesses fill only the queue of their name, or that of all unknown names: others have their turn between them."""
    known = Passwords(LINES, FailedLogins("rest"))
    guesses = [asyncio.create_task(known.is_right(Jid(f"x{n}@x"), "wrong", HERE)) for n in range(WAITING_MOST)]
    try:
        await asyncio.sleep(0)
        with pytest.raises(TooMany):
            await known.is_right(Jid("y@x"), "wrong", HERE)
        assert await known.is_right(BOB, "secret", HERE)
        guesses += [asyncio.create_task(known.is_right(ALICE, f"wrong{n}", HERE)) for n in range(WAITING_MOST)]
        await asyncio.sleep(0)
        checks.made.clear()
        last = asyncio.create_task(known.is_right(BOB, "other", HERE))
        await asyncio.sleep(0)
    finally:
        checks.free.set()
    # Those that come too soon after others of their kind are refused without a check.
    found = await asyncio.gather(*guesses, last, return_exceptions=True)
    assert all(each is False or isinstance(each, TooSoon) for each in found)
    # Before it come those that are being checked, and perhaps one more of each queue.
    assert checks.made.index(b"other") < 6


async def test_known_while_in_use(checks: Checks) -> None:
    """A password is checked again when it has not been used for a while, and only once however many come together."""
    now = 0.0
    known = Passwords(LINES, FailedLogins("rest", lambda: now), lambda: now)
    assert all(await asyncio.gather(*(known.is_right(BOB, "secret", HERE) for _ in range(5))))
    for _ in range(3):
        now += REMEMBERED_SECONDS - 1
        assert await known.is_right(BOB, "secret", HERE)
    assert len(checks.made) == 1
    now += REMEMBERED_SECONDS + 1
    assert await known.is_right(BOB, "secret", HERE)
    assert len(checks.made) == 2


async def test_replaced(checks: Checks) -> None:
    """A password that is changed or removed is wrong at once, also while it is being checked; others need no new check."""
    known = Passwords(LINES, FailedLogins("rest"))
    assert await known.is_right(ALICE, "secret", HERE) and await known.is_right(BOB, "secret", HERE)
    stays, goes = known.as_now(ALICE), known.as_now(BOB)
    known.replace(f"{ALICE}:{HASH}")
    assert await known.is_right(ALICE, "secret", HERE) and stays()
    assert len(checks.made) == 2
    assert not await known.is_right(BOB, "secret", HERE) and not goes()
    late = Passwords(f"{BOB}:{bcrypt.hashpw(b'slow', bcrypt.gensalt(4)).decode()}", FailedLogins("rest"))
    checking = asyncio.create_task(late.is_right(BOB, "slow", HERE))
    await asyncio.sleep(0)
    late.replace(LINES)
    checks.free.set()
    assert not await checking
