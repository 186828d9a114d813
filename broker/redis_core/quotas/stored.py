"""The stored quotas, as this process last read them, and what the nodes of a subject hold.

A frontend reads them again every few seconds, so a publish asks nobody. Must not know which publishes are refused.
"""

import time
from collections.abc import Sequence
from dataclasses import replace
from typing import Final

import structlog

from broker import keys
from broker.model.names import Jid
from broker.model.nodes.nodes import NodeRecord
from broker.model.nodes.quotas import DEFAULT, Quota, QuotaStatus, counts_for, find_quotas
from broker.model.problems import CoreUnavailable, MalformedRequest, OperationDefect
from broker.redis_core.info import read_info
from broker.redis_core.records.store import NodeStore, in_pages
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.failure_log import FailureLog

log = structlog.get_logger()

FRESH_SECONDS: Final = 2.0
"""How old the quotas of a running frontend may be, besides the time between two heartbeats."""

DEFAULT_BYTES: Final = 2**30
"""What an owner's nodes may take by default where no Redis has a limit."""

DEFAULT_SECONDS: Final = 60.0
"""How often a frontend looks how much that is."""

OWNERS: Final = 10_000
"""Owners whose quotas are looked up once."""

SAMPLES: Final = 5_000
"""Blocks of a partition's log that its bytes are measured by; those of a larger log are estimated from the oldest ones."""


class Quotas:
    """The quotas that hold for owners. Administrators have none."""

    def __init__(self, server: Server, store: NodeStore) -> None:
        """Know no quota until they are read."""
        self._server = server
        self._store, self.admins = store, store.roles.admins
        self._limits: dict[str, Quota] = {}
        self._unreadable: dict[bytes, bytes] = {}
        self._failures = FailureLog("quotas not read")
        self._limiting: dict[Jid, dict[str, Quota]] = {}
        self._read_at = 0.0
        self._statuses: tuple[QuotaStatus, ...] = ()
        self._measure_at = 0.0
        self._default, self._default_at = Quota(), -DEFAULT_SECONDS

    @property
    def due(self) -> bool:
        """Whether they are to be read again."""
        return time.monotonic() - self._read_at > FRESH_SECONDS

    async def read(self) -> dict[str, Quota]:
        """Read the quotas; one that cannot be read is logged once, and does not hold."""
        self._read_at = time.monotonic()
        found = await self._server.command("HGETALL", keys.of_service("quotas"))
        known, unreadable = {}, {}
        for name, text in found.items():
            try:
                known[name.decode()] = Quota.parse(text.decode())
            except (ValueError, TypeError, MalformedRequest) as error:
                unreadable[name] = text
                if self._unreadable.get(name) != text:
                    log.warning("a quota cannot be read", subject=name.decode(errors="replace"), error=str(error))
        self._unreadable = unreadable
        if known != self._limits:
            self._limits, self._limiting = known, {}
        return known

    async def refresh(self) -> None:
        """Read them again; while they cannot be read the known ones hold."""
        try:
            await self.read()
            if time.monotonic() > self._default_at + DEFAULT_SECONDS:
                await self.find_default()
        except (CoreUnavailable, OperationDefect) as error:
            self._failures.report(error)
        else:
            self._failures.note_success()

    async def find_default(self) -> None:
        """Find out how many bytes an owner may have without a quota of bytes: a quarter of the smallest Redis."""
        self._default_at = time.monotonic()
        reports = await self._server.everywhere("INFO", "memory")
        sizes = [int(read_info(each).get("maxmemory", 0)) for each in reports.values()]
        default = Quota(bytes=min((size // 4 for size in sizes if size), default=DEFAULT_BYTES))
        if default != self._default:
            self._default, self._limiting = default, {}

    def find_publish_quotas(self, owner: Jid | None) -> dict[str, Quota]:
        """Return the quotas by subject that limit publishes to an owner's nodes; empty for administrators."""
        if owner is None or owner in self.admins:
            return {}
        found = self._limiting.get(owner)
        if found is None:
            if len(self._limiting) >= OWNERS:
                self._limiting = {}
            found = {name: quota for name, quota in self.find(owner).items() if quota.limits_publishes}
            self._limiting[owner] = found
        return found

    def find_one(self, subject: str) -> Quota | None:
        """Return the quota of an owner or a domain."""
        return self.find(Jid(subject))[subject] if "@" in subject else self._limits.get(subject)

    def find(self, owner: Jid) -> dict[str, Quota]:
        """Return the quotas by subject that hold for an owner, one with the bytes that an owner has by default."""
        found = find_quotas(self._limits, owner)
        own = found.get(owner, Quota())
        return found | {owner: replace(own, bytes=self._default.bytes) if own.bytes is None else own}

    async def store(self, subject: str, quota: Quota | None) -> None:
        """Store a quota, or delete it."""
        key = keys.of_service("quotas")
        if quota is None:
            await self._server.command("HDEL", key, subject)
        else:
            await self._server.command("HSET", key, subject, str(quota))
        await self.read()

    async def status(self, subject: str, quota: Quota) -> QuotaStatus:
        """Measure what the nodes of a subject hold."""
        if subject == DEFAULT:
            return QuotaStatus(subject, quota)
        records = await self._records(subject)
        items, size = await self._add_up(records, items=True, size=quota.bytes is not None)
        return QuotaStatus(subject, quota, len(records), sum(each.config.partitions for each in records), items, size)

    async def measure(self, subject: str, quota: Quota) -> tuple[int, int]:
        """Return the items and bytes that the nodes of a subject hold; 0 of what is not limited."""
        records = await self._records(subject) if quota.measures else []
        items, size = await self._add_up(records, items=quota.items is not None, size=quota.bytes is not None)
        return items, size or 0

    async def _records(self, subject: str) -> list[NodeRecord]:
        names = await self._store.created_nodes.members(Jid(subject))
        return [record for record in await self._store.records(names) if counts_for(subject, record.creator)]

    async def _add_up(self, records: Sequence[NodeRecord], *, items: bool, size: bool) -> tuple[int, int | None]:
        count, taken = 0, 0 if size else None
        for page in in_pages(each for record in records for each in record.partitions):
            found = (await self._store.counts(page)).values() if items else ()
            count += sum(each.waiting + each.in_flight + each.dying + each.kept for each in found)
            if taken is not None:
                taken += await self.memory([keys.of_partition("log", each) for each in page])
        return count, taken

    async def statuses(self) -> tuple[QuotaStatus, ...]:
        """Return what all subjects use, for metrics: measuring takes at most a hundredth of the time."""
        began = time.monotonic()
        if began >= self._measure_at:
            known = self._limits.items()
            self._statuses = tuple([await self.status(*each) for each in known if each[0] != DEFAULT])
            self._measure_at = time.monotonic() + 100 * (time.monotonic() - began)
        return self._statuses

    async def memory(self, names: Sequence[str]) -> int:
        """Return the bytes of memory that keys take. Raises CoreUnavailable, also where Redis does not allow the question."""
        found = await self._server.commands([("MEMORY USAGE", name, "SAMPLES", SAMPLES) for name in names])
        return sum(each or 0 for each in found)
