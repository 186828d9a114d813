"""Roles: what an account may do with the nodes of others. Pure but for its clock; must not know who has verified an account.

An account has a role by name, by its domain, or by what its newest token says until that ends. Which role a command needs is
told from outside, by one table. A role is asked about each command, and never about what lasts: subscriptions are for accounts
with an affiliation. The same token names the groups of the account, which nodes may give affiliations.
"""

import time
from collections.abc import Callable, Mapping
from enum import IntEnum
from typing import Any, Final

from broker.model import audit
from broker.model.frozen import frozen
from broker.model.names import Jid, bare_jid, domain, read_account_or_domain

_NOTED_MOST: Final = 10_000
"""Accounts whose tokens are remembered; beyond that, those of tokens that have ended are forgotten."""


class Role(IntEnum):
    """What an account may do on every node; each role may do all that those before it may."""

    VIEWER = 1
    OPERATOR = 2
    ADMIN = 3


ROLE_NAMES: Final = tuple(role.name.lower() for role in Role)

Needed = Role | Callable[[Any], Role]
"""The role that a command needs, or what tells it by the command's values."""


def read_role(word: str) -> Role:
    """Return the role of this name; raises ValueError."""
    if word not in ROLE_NAMES:
        msg = f"{word[:80]!r} is none of {', '.join(ROLE_NAMES)}"
        raise ValueError(msg)
    return Role[word.upper()]


def read_roles(lines: str) -> dict[Jid, Role]:
    """Read lines of an account or a domain and its role; raises ValueError for a line that is none, or names one again."""
    roles: dict[Jid, Role] = {}
    for number, line in enumerate(lines.splitlines(), 1):
        words = line.split()
        if not words:
            continue
        try:
            name, role = words
            jid, said = read_account_or_domain(name), read_role(role)
        except ValueError as wrong:
            why = "it has two words" if len(words) != 2 else str(wrong)
            msg = f"line {number} is not JID ROLE: {why}"
            raise ValueError(msg) from None
        if jid in roles:
            msg = f"line {number} names {jid} again: an account has one role"
            raise ValueError(msg)
        roles[jid] = said
    return roles


@frozen
class Said:
    """What a token says of its account: a role, when it was issued and when it ends, in seconds since 1970, and its groups.

    The groups are None where no claim names any.
    """

    role: Role | None
    issued: float
    ends: float
    groups: tuple[Jid, ...] | None = None


class Roles:
    """The roles of accounts, and which one each command needs."""

    def __init__(
        self,
        admins: frozenset[Jid],
        named: Mapping[Jid, Role],
        needed: Mapping[type, Needed],
        clock: Callable[[], float] = time.time,
    ) -> None:
        """Know `admins`, who besides own every node, the roles `named` for accounts and domains, and what commands need."""
        self.admins = admins
        self.named = named
        self._needed = needed
        self._clock = clock
        self._noted: dict[Jid, Said] = {}

    def note(self, jid: Jid, said: Said) -> bool:
        """Note what a verified token says of an account, and return whether it is news; an older token changes nothing."""
        known = self._noted.get(jid)
        if known == said or (known and known.ends > self._clock() and known.issued > said.issued):
            return False
        if len(self._noted) >= _NOTED_MOST and jid not in self._noted:
            now = self._clock()
            self._noted = {each: noted for each, noted in self._noted.items() if noted.ends > now}
        self._noted[jid] = said
        return True

    def _said(self, jid: Jid) -> Said | None:
        """Return what the newest token of an account says, until it ends."""
        noted = self._noted.get(jid)
        return noted if noted and noted.ends > self._clock() else None

    def groups_of(self, jid: Jid) -> tuple[Jid, ...]:
        """Return the groups of a bare JID that has come to this process with a token."""
        said = self._said(jid)
        return said.groups or () if said else ()

    def of(self, jid: Jid) -> Role | None:
        """Return the role of a bare JID: the highest of those that it has by name, or its domain has, and by its token."""
        if jid in self.admins:
            return Role.ADMIN
        said = self._said(jid)
        by_token = said.role if said else None
        by_name = self.named.get(jid) or self.named.get(Jid(domain(jid)))
        return max(filter(None, (by_token, by_name)), default=None)

    def forget(self) -> None:
        """Forget what tokens have said: the settings by which they were verified are others now."""
        self._noted.clear()

    def lets(self, command: Any, node: str = "") -> bool:  # noqa: ANN401  (any command)
        """Return whether the role of a command's sender is enough for it at a node, whatever that says.

        At the audit, admins may look, and nobody may do more by a role.
        """
        role, needed = self.of(bare_jid(getattr(command, "sender", ""))), self._needed.get(type(command))
        if role is None or needed is None:
            return False
        least = needed(command) if callable(needed) else needed
        if node == audit.NODE:
            return role is Role.ADMIN and least is Role.VIEWER
        return role >= least
