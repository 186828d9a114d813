"""What the nodes of owners and domains use of their quotas, as it was measured last, and which publishes that refuses.

One frontend measures for all, every few seconds: those whose nodes were published to since, and those whose quota was used up.
So a publish asks nobody, and a quota may be exceeded by what is published between two measurements. Must not know where a
publish goes, nor whether it repeats one.
"""

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Final

from broker import keys
from broker.model.frozen import frozen
from broker.model.names import Jid, domain
from broker.model.nodes.fields import decimal, rate_rule
from broker.model.nodes.quotas import Quota
from broker.model.problems import CoreUnavailable, OperationDefect, Problem
from broker.model.results import Refused
from broker.redis_core.quotas.stored import Quotas
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.failure_log import FailureLog

MEASURE_MS: Final = 1_500
"""Shortest interval between two measurements."""

LONGEST_MS: Final = 60_000
"""Longest one, also after a frontend has died that was measuring."""

_SHARE: Final = 50
"""How many times as long as it took a measurement is followed by none, between these."""

_BURST_MICROS: Final = 1_000_000
"""How far a rate may run ahead of the clock, besides one publish."""

_DEBT_MICROS: Final = 60_000_000
"""How long an owner waits at most after it has published too much, besides what `_DEBT_PUBLISHES` take at its rate."""

_DEBT_PUBLISHES: Final = 10


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

    def refuse(self, subject: str, quota: Quota, now_micros: float) -> Refused | None:
        """Refuse one more publish, if the quota is used up."""
        whose = "the node's owner" if "@" in subject else f"all owners of {subject}"
        for name, used in (("items", self.items), ("bytes", self.bytes)):
            most = getattr(quota, name)
            if most is not None and used >= most:
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
        self.published = Counter[Jid | None]()
        """What was published here to the nodes of each owner since it was last said."""
        self._refreshing = False
        self.used_up: dict[str, Use] = {}
        """What was measured last of owners and domains whose quota was used up then."""
        self._failures = FailureLog("the use of quotas is not known")
        self._unmeasured = FailureLog("what an owner's nodes hold is not known")

    def judge(self, owner: Jid | None) -> Refused | None:
        """Return why a publish to a node of `owner` is over a quota."""
        for subject, quota in self._quotas.find_publish_quotas(owner).items():
            use = self.used_up.get(subject)
            refused = use and use.refuse(subject, quota, self._now_ms() * 1000)
            if refused:
                # It is measured as long as somebody wants to publish.
                self.published[owner] += 0
                self._count("quota_refused")
                return refused
        return None

    async def refresh(self) -> None:
        """Read the quotas and what was measured last, say what was published here, and measure if nobody else does."""
        if self._refreshing:
            return
        self._refreshing = True
        try:
            await self._quotas.refresh()
            await self._exchange()
        except (CoreUnavailable, OperationDefect, ValueError) as error:
            self._failures.report(error)
        else:
            self._failures.note_success()
        finally:
            self._refreshing = False

    async def _exchange(self) -> None:
        published = self.published.copy()
        self.published.clear()
        use, told, measuring = (keys.of_service(name) for name in ("quota_use", "quota_published", "quota_measuring"))
        owners = {owner: count for owner, count in published.items() if owner and owner not in self._quotas.admins}
        lines = [("HINCRBY", told, owner, count) for owner, count in owners.items()]
        if lines:
            # The first one measures; the key expires, since that one may die.
            *_, asked, _expires = await self._server.commands(
                [*lines, ("HINCRBY", measuring, "asked", 1), ("PEXPIRE", measuring, LONGEST_MS, "NX")]
            )
            if asked == 1:
                began = time.monotonic()
                await self.measure()
                pause = max(MEASURE_MS, int((time.monotonic() - began) * 1000 * _SHARE))
                await self._server.command("PEXPIRE", measuring, min(pause, LONGEST_MS))
        found = await self._server.command("HGETALL", use)
        known = _read(found)
        self.used_up = {subject: known[subject] for subject in self._find_used_up(known)}

    async def measure(self) -> None:
        """Measure for all frontends: what was published to since, and what is used up. What cannot be measured keeps its line."""
        use, told = keys.of_service("quota_use"), keys.of_service("quota_published")
        published, _taken, before = await self._server.commands([("HGETALL", told), ("UNLINK", told), ("HGETALL", use)])
        counts = {Jid(name.decode()): int(count) for name, count in published.items()}
        known = _read(before)
        quotas = self._find_used_up(known)
        for owner in counts:
            quotas |= self._quotas.find_publish_quotas(owner)
        measured, fault = dict[str, Use](), None
        for subject, quota in quotas.items():
            last = known.get(subject, Use())
            held = last.items, last.bytes
            try:
                held = await self._quotas.measure(subject, quota)
            except CoreUnavailable as error:
                # A partition is away: others are measured all the same.
                fault = error
            measured[subject] = Use(*held, self._find_pace(subject, quota, counts, last.at_micros))
        if fault is None:
            self._unmeasured.note_success()
        else:
            self._unmeasured.report(fault)
        changes = [("HDEL", use, *gone)] if (gone := known.keys() - measured.keys()) else []
        changes += [("HSET", use, subject, str(one)) for subject, one in measured.items()]
        if changes:
            await self._server.commands(changes)

    def _find_used_up(self, uses: Mapping[str, Use]) -> dict[str, Quota]:
        """Return the quotas that are used up, by subject."""
        now_micros, found = self._now_ms() * 1000, dict[str, Quota]()
        for subject, use in uses.items():
            quota = self._quotas.find_one(subject)
            if quota is not None and use.refuse(subject, quota, now_micros) is not None:
                found[subject] = quota
        return found

    def _find_pace(self, subject: str, quota: Quota, counts: Mapping[Jid, int], at_micros: int) -> int:
        """Return when all publishes would have been made at an even pace, these among them."""
        if not quota.publish_rate:
            return 0
        number, period_ms, _burst = map(int, rate_rule(quota.publish_rate).split())
        interval, now = period_ms * 1000 / number, self._now_ms() * 1000
        made = sum(count for owner, count in counts.items() if subject in {owner, domain(owner)})
        return int(min(max(at_micros, now) + made * interval, now + _DEBT_MICROS + _DEBT_PUBLISHES * interval))


def _read(lines: Mapping[bytes, bytes]) -> dict[str, Use]:
    """Read what was measured, as it is stored, by owner or domain."""
    return {name.decode(): Use.parse(line.decode()) for name, line in lines.items()}
