"""What the nodes of owners and domains use of their quotas, as it was measured last, and which publishes that refuses.

One frontend measures for all, every few seconds: those whose nodes were published to since, and those whose quota was used up.
So a publish asks nobody, and a quota may be exceeded by what is published between two measurements. Must not know where a
publish goes, nor whether it repeats one.
"""

import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from broker import keys
from broker.model.fields import decimal, rate_rule
from broker.model.frozen import frozen
from broker.model.names import Jid, domain
from broker.model.problems import CoreUnavailable, Problem, ScriptDefect
from broker.model.quotas import Quota
from broker.model.results import Refused
from broker.redis_core.records.quotas import Quotas
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.failure_log import FailureLog

log = structlog.get_logger()

MEASURE_MS: Final = 1_500
"""Shortest interval between two measurements; it is fifty times as long as the last one took, if that is more."""

_SHARE: Final = 50

_BURST_MICROS: Final = 1_000_000
"""How far a rate may run ahead of the clock, besides one publish."""


@frozen
class Use:
    """What a subject uses: `items`, `bytes`, and when all its publishes would have been made at an even pace, in microseconds."""

    items: int = 0
    bytes: int = 0
    at_micros: int = 0

    @staticmethod
    def parse(line: str) -> "Use":
        """Read what `str` wrote."""
        return Use(*map(int, line.split()))

    def __str__(self) -> str:
        """Write it as it is stored."""
        return f"{self.items} {self.bytes} {self.at_micros}"

    def refuse(self, subject: str, quota: Quota, size: int, now_micros: float) -> Refused | None:
        """Refuse one more publish of so many bytes, if the quota has no room for it."""
        whose = "the node's owner" if "@" in subject else f"all owners of {subject}"
        for name, used, more in (("items", self.items, 1), ("bytes", self.bytes, size)):
            most = getattr(quota, name)
            if most is not None and used + more > most:
                detail = (
                    f"the quota of {whose} is {most} {name} in all nodes, and {used} are in use:"
                    " publish again when items are done, or ask an administrator for more"
                )
                return Refused(Problem.QUOTA_EXCEEDED, detail)
        if quota.publish_rate and self.at_micros > now_micros + _BURST_MICROS:
            wait_ms = int((self.at_micros - now_micros - _BURST_MICROS) / 1000) + 1
            detail = f"the quota of {whose} is {quota.publish_rate} publishes: wait {decimal(wait_ms / 1000)} s"
            return Refused(Problem.TOO_FAST, detail, wait_ms)
        return None


class QuotaUse:
    """Judges publishes by what was measured, and measures."""

    def __init__(
        self, server: Server, quotas: Quotas, now_ms: Callable[[], float], count: Callable[[str], None]
    ) -> None:
        """Judge by `quotas` at Redis's time `now_ms`; `count` is called for each refusal."""
        self._server = server
        self._quotas = quotas
        self._now_ms = now_ms
        self._count = count
        self._published: dict[Jid, int] = {}
        self._used: dict[str, Use] = {}
        self._failures = FailureLog("the use of quotas is not known")

    def judge(self, owner: Jid | None, size: int) -> Refused | None:
        """Return why a publish of so many bytes to a node of `owner` is over a quota, and note it otherwise."""
        quotas = self._quotas.find_publish_quotas(owner)
        if not quotas or owner is None:
            return None
        published = self._published.setdefault(owner, 0)
        for subject, quota in quotas.items():
            use = self._used.get(subject)
            refused = use and use.refuse(subject, quota, size, self._now_ms() * 1000)
            if refused:
                self._count("quota_refused")
                return refused
        self._published[owner] = published + 1
        return None

    async def refresh(self) -> None:
        """Read the quotas and what was measured last, say what was published here, and measure if nobody else does."""
        await self._quotas.refresh()
        published, self._published = self._published, {}
        try:
            await self._exchange(published)
        except (CoreUnavailable, ScriptDefect, ValueError) as error:
            self._failures.report(error)
        else:
            self._failures.note_success()

    async def _exchange(self, published: Mapping[Jid, int]) -> None:
        use, told, measuring = (keys.of_service(name) for name in ("quota_use", "quota_published", "quota_measuring"))
        if published:
            lines = [("HINCRBY", told, owner, count) for owner, count in published.items()]
            # The first one measures until the key expires, also one that dies in between.
            *_, asked, _expires = await self._server.commands(
                [*lines, ("HINCRBY", measuring, "asked", 1), ("PEXPIRE", measuring, MEASURE_MS, "NX")]
            )
            if asked == 1:
                began = time.monotonic()
                await self.measure()
                pause = int((time.monotonic() - began) * 1000 * _SHARE)
                if pause > MEASURE_MS:
                    await self._server.command("PEXPIRE", measuring, pause)
        found = await self._server.command("HGETALL", use)
        self._used = {name.decode(): Use.parse(line.decode()) for name, line in found.items()}

    async def measure(self) -> None:
        """Measure for all frontends."""
        use, told = keys.of_service("quota_use"), keys.of_service("quota_published")
        published, before = await self._server.commands([("HGETALL", told), ("HGETALL", use)])
        counts = {Jid(name.decode()): int(count) for name, count in published.items()}
        known = {name.decode(): Use.parse(line.decode()) for name, line in before.items()}
        await self._quotas.find_default()
        quotas: dict[str, Quota] = {}
        for owner in counts:
            quotas |= self._quotas.find_publish_quotas(owner)
        for subject, one in known.items():
            quota = self._quotas.find_publish_quotas(Jid(subject)).get(subject)
            if quota and one.refuse(subject, quota, 1, self._now_ms() * 1000):
                quotas.setdefault(subject, quota)
        measured = {
            subject: await self._measure(subject, quota, counts, known.get(subject, Use()))
            for subject, quota in quotas.items()
        }
        changes = [("HDEL", use, *gone)] if (gone := known.keys() - measured.keys()) else []
        changes += [("HSET", use, subject, str(one)) for subject, one in measured.items()]
        # What was published meanwhile counts next time.
        changes += [("HINCRBY", told, owner, -count) for owner, count in counts.items()]
        await self._server.commands(changes)
        rest = await self._server.command("HGETALL", told)
        if idle := [owner for owner, count in rest.items() if int(count) == 0]:
            await self._server.command("HDEL", told, *idle)

    async def _measure(self, subject: str, quota: Quota, counts: Mapping[Jid, int], before: Use) -> Use:
        items, size = await self._quotas.measure(subject, quota) if quota.measures else (0, 0)
        at = 0.0
        if quota.publish_rate:
            number, period_ms, _burst = map(int, rate_rule(quota.publish_rate).split())
            made = sum(count for owner, count in counts.items() if subject in {owner, domain(owner)})
            at = max(before.at_micros, self._now_ms() * 1000) + made * period_ms * 1000 / number
        return Use(items, size or 0, int(at))
