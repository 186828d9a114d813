"""Limits of connections at one door: nobody takes those of others. Pure; must not know sockets, or how anybody logs in.

A door has so many connections. An account has a share; those on which nobody has logged in yet are at most a quarter of all,
and the oldest of these makes room for a new one. So neither one account nor silent sockets keep the others out.
"""

from collections import Counter
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Callable

ACCOUNT, ADDRESS, FULL, DISPLACED = "account", "address", "full", "displaced"
"""Why a connection was refused, or closed to make room: the values of a metric."""

_SHARE: Final = 4
"""An account has one of so many parts of all connections, and so have all those that have not logged in."""


class Closable(Protocol):
    """A connection that can make room."""

    def make_room(self) -> None:
        """Close, since others need the room."""


class ConnectionLimits:
    """The connections of a door, and how many it may have."""

    def __init__(self, most: int, of_account: int | None = None, of_address: int = 0) -> None:
        """Admit `most` connections; any number of an address with 0, and a quarter of an account unless `of_account` says."""
        self._most = most
        self._strangers_most = max(1, most // _SHARE)
        self._of_account = self._strangers_most if of_account is None else of_account
        self._of_address = of_address
        self._held: dict[Closable, tuple[str, str]] = {}
        self._strangers: dict[Closable, None] = {}
        self._accounts = Counter[str]()
        self._addresses = Counter[str]()
        self.count: Callable[[str], object] = lambda _why: None
        """Counts why a connection was refused or closed."""

    def enter(self, connection: Closable, address: str = "") -> bool:
        """Admit a connection that nobody has logged in on; returns whether there is room."""
        if self._is_crowded(address):
            return False
        if len(self._strangers) >= self._strangers_most or (len(self._held) >= self._most and self._strangers):
            oldest = next(iter(self._strangers))
            self.leave(oldest)
            oldest.make_room()
            self.count(DISPLACED)
        if len(self._held) >= self._most:
            self.count(FULL)
            return False
        self._held[connection] = "", address
        self._strangers[connection] = None
        self._addresses[address] += 1
        return True

    def claim(self, connection: Closable, account: str, address: str = "") -> str:
        """Note whose connection it is by now, and from where; returns why it may not be, or nothing.

        A proxy sends requests of one account after another, from one address after another.
        """
        held = self._held.get(connection)
        if held is None:
            # It was closed to make room meanwhile.
            return FULL
        before, came = held
        if (before, came) == (account, address or came):
            return ""
        if before != account and self._accounts[account] >= self._of_account:
            self.count(ACCOUNT)
            return ACCOUNT
        if address and address != came and self._is_crowded(address):
            return ADDRESS
        self.leave(connection)
        self._held[connection] = account, address or came
        self._accounts[account] += 1
        self._addresses[address or came] += 1
        return ""

    def leave(self, connection: Closable) -> None:
        """Forget a connection, if it was admitted."""
        held = self._held.pop(connection, None)
        if held is None:
            return
        account, address = held
        self._strangers.pop(connection, None)
        for counter, name in ((self._accounts, account), (self._addresses, address)):
            counter[name] -= 1
            if counter[name] <= 0:
                del counter[name]

    def _is_crowded(self, address: str) -> bool:
        crowded = bool(self._of_address and address) and self._addresses[address] >= self._of_address
        if crowded:
            self.count(ADDRESS)
        return crowded
