"""Lists and sets quotas for administrators. Must not know how quotas are held."""

from typing import Final

from broker import keys
from broker.model.commands import ListQuotas, SetQuota
from broker.model.names import Jid, bare_jid, read_account_or_domain
from broker.model.nodes.quotas import DEFAULT, MOST, MOST_QUOTAS, counts_for
from broker.model.problems import Problem
from broker.model.results import Done, QuotaList, Refused, Result
from broker.redis_core.quotas.stored import Quotas
from broker.redis_core.records.store import LISTED, NodeStore
from broker.redis_core.records.validation import Rules

_FORBIDDEN: Final = Refused(Problem.FORBIDDEN, "only administrators may see and set quotas")
_UNKNOWN: Final = Refused(Problem.ITEM_NOT_FOUND, "there is no quota of this subject")
_TOO_MANY: Final = Refused(
    Problem.NOT_ACCEPTABLE, f"there are {MOST_QUOTAS} quotas, which is the most: clear one first"
)


class QuotaService:
    """Carries out `ListQuotas` and `SetQuota`."""

    def __init__(self, store: NodeStore, rules: Rules, quotas: Quotas) -> None:
        """Set the stored `quotas`."""
        self._store = store
        self._rules = rules
        self._quotas = quotas

    async def list(self, command: ListQuotas) -> Result:
        """List quotas, the default one first; for an owner without its own, the default one is the owner's.

        Only administrators see what others use of a domain's quota.
        """
        asker, admin = bare_jid(command.sender), self._rules.roles.lets(command)
        if not admin and asker != command.owner:
            return _FORBIDDEN
        known = await self._quotas.read()
        if command.owner is not None:
            await self._quotas.find_default()
            held = {} if command.owner in self._rules.roles.admins else self._quotas.find(command.owner)
            known = {subject: quota for subject, quota in held.items() if admin or subject == asker}
        found = [await self._quotas.status(subject, known[subject]) for subject in sorted(known, key=_order)]
        return QuotaList(tuple(found))

    async def set(self, command: SetQuota) -> Result:
        """Set or clear a quota."""
        if not self._rules.roles.lets(command):
            return _FORBIDDEN
        try:
            subject = read_account_or_domain(command.subject)
        except ValueError as wrong:
            return Refused(Problem.BAD_REQUEST, f"{wrong}, nor {DEFAULT}")
        known = await self._quotas.read()
        if command.quota is None and subject not in known:
            return _UNKNOWN
        if subject not in known and len(known) >= MOST_QUOTAS:
            return _TOO_MANY
        if command.quota is not None and command.quota.bytes is not None:
            # Without the right to measure, every publish would be refused.
            await self._quotas.memory([keys.of_service("quotas")])
        if command.quota is not None and "@" not in subject and subject != DEFAULT:
            await self._count_nodes(Jid(subject))
        await self._quotas.store(subject, command.quota)
        return Done()

    async def _count_nodes(self, subject: Jid) -> None:
        """Count a domain's nodes: an earlier version did not count them by domain."""
        first = 0
        while names := await self._store.names(first):
            for record in await self._store.records(names):
                if counts_for(subject, record.creator) and record.creator not in self._rules.roles.admins:
                    await self._store.count_owned(subject, record.name, MOST)
            first += LISTED


def _order(subject: str) -> tuple[bool, bool, str]:
    """Sort domains before bare JIDs, and the default before all."""
    return subject != DEFAULT, "@" in subject, subject
