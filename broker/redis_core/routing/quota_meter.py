"""Meters publishes by the quotas of the nodes' owners, and of their domains, before they go to their partitions.

One script serves all publishes that wait for the nodes of a domain's users, in their order, so quotas hold over all frontends.
When it asks for that, the frontend measures what the nodes hold. Must not know which partition a publish goes to.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any, Final

import structlog

from broker import keys
from broker.model.fields import decimal
from broker.model.frozen import frozen
from broker.model.names import Jid, domain
from broker.model.problems import CoreUnavailable, Problem
from broker.model.quotas import Quota
from broker.model.results import Refused
from broker.redis_core.records.quotas import Quotas
from broker.redis_core.redis_client.client import Server, Value
from broker.tasks import FAILED, Answer, Reply, Tasks

log = structlog.get_logger()

IDLE_SECONDS: Final = 86_400
"""How long the use of a domain is kept after the last publish to its nodes."""

PAUSE_MS: Final = 250
"""The least time between two measurements of a subject; it is ten times as long as the last one took, if that is more."""

_BATCH: Final = 200
_TRIES: Final = 5
_CHANGING: Final = Refused(Problem.UNAVAILABLE, "the use of a quota is being measured: ask again")


@frozen
class _Publish:
    """A publish to a node of `owner`, of so many bytes, and who waits for the answer: None, or why it is refused."""

    owner: Jid
    size: int
    reply: Answer


class QuotaMeter:
    """Meters the publishes of one frontend."""

    def __init__(self, server: Server, quotas: Quotas, tasks: Tasks, count: Callable[[str], None]) -> None:
        """Meter by `quotas`; `tasks` run what takes time, and `count` is called for each refusal."""
        self._count = count
        self._server = server
        self.known = quotas
        self._tasks = tasks
        self._waiting: dict[str, list[_Publish]] = {}

    def limits(self, owner: Jid) -> bool:
        """Return whether a quota limits publishes to the nodes of an owner."""
        return bool(self.known.find_publish_quotas(owner))

    def submit(self, owner: Jid, size: int, reply: Reply) -> None:
        """Answer None to a publish that is within all quotas, else the refusal; publishes of one domain keep their order."""
        whose, one = domain(owner), _Publish(owner, size, Answer(reply))
        if whose in self._waiting:
            self._waiting[whose].append(one)
        else:
            self._waiting[whose] = [one]
            self._tasks.answer(self._run(whose), partial(self._on_stopped, whose))

    async def _run(self, whose: str) -> None:
        while waiting := self._waiting[whose]:
            some, self._waiting[whose] = waiting[:_BATCH], waiting[_BATCH:]
            try:
                await self._meter(whose, some)
            except CoreUnavailable as error:
                _answer(some, Refused(error.problem, error.detail))
            finally:
                # After a defect, and when this process stops: each gets an answer once.
                _answer(some, FAILED)
        del self._waiting[whose]

    def _on_stopped(self, whose: str, outcome: Refused | None) -> None:
        """Answer those that wait for a task that was cancelled or failed."""
        _answer(self._waiting.pop(whose, ()), outcome or FAILED)

    async def _meter(self, whose: str, some: Sequence[_Publish]) -> None:
        for _try in range(_TRIES):
            some = await self._ask(whose, some)
            if not some:
                return
        _answer(some, _CHANGING)

    async def _ask(self, whose: str, some: Sequence[_Publish]) -> list[_Publish]:
        """Ask for publishes and answer them; returns those whose subjects had to be measured first."""
        held = [self.known.find_publish_quotas(each.owner) for each in some]
        of_domain = next((quota for each in held for name, quota in each.items() if name == whose), None)
        rows: list[dict[str, Value]] = [
            {"owner": one.owner, "quota": found[one.owner].rule if one.owner in found else "", "bytes": one.size}
            for one, found in zip(some, held, strict=True)
        ]
        fixed: dict[str, Value] = {"domain": whose, "domain_quota": of_domain.rule if of_domain else ""}
        _code, results = await self._run_script("meter_quotas", whose, fixed, rows)
        left, unmeasured = list[_Publish](), dict[str, tuple[Quota, Sequence[bytes]]]()
        for one, quotas, (code, *about) in zip(some, held, results, strict=True):
            subject = about[0].decode() if about else ""
            if code == b"measure":
                unmeasured[subject] = quotas[subject], about[1:]
                left.append(one)
            else:
                outcome = None if code == b"ok" else refuse(code, subject, quotas[subject], *about[1:])
                if outcome is not None:
                    self._count("quota_refused")
                one.reply(outcome)
        for subject, (quota, added) in unmeasured.items():
            await self._measure(whose, subject, quota, added)
        return left

    async def _measure(self, whose: str, subject: str, quota: Quota, added: Sequence[bytes]) -> None:
        began = time.monotonic()
        status = await self.known.status(subject, quota)
        pause = max(PAUSE_MS, int((time.monotonic() - began) * 10_000))
        fixed: dict[str, Value] = {
            "subject": subject,
            "count": status.items or 0,
            "bytes": status.bytes or 0,
            "added_count": added[0],
            "added_bytes": added[1],
            "pause_ms": pause,
        }
        await self._run_script("store_quota_use", whose, fixed)

    async def _run_script(
        self, name: str, whose: str, fixed: Mapping[str, Value], rows: Sequence[Mapping[str, Value]] = ()
    ) -> list[Any]:
        every: dict[str, Value] = {"now": "", "idle_seconds": IDLE_SECONDS, **fixed}
        return await self._server.run(self._server.call(name, [keys.of_jid("quota_use", whose)], every, rows))


def refuse(code: bytes, subject: str, quota: Quota, *about: Any) -> Refused:  # noqa: ANN401  (as scripts answer)
    """Return the refusal of a publish, which names the quota, what is used, and what to do."""
    whose = "the node's owner" if "@" in subject else f"all owners of {subject}"
    if code == b"too-fast":
        (wait_ms,) = about
        detail = f"the quota of {whose} is {quota.publish_rate} publishes: wait {decimal(wait_ms / 1000)} s"
        return Refused(Problem.TOO_FAST, detail, wait_ms)
    what, used = about[0].decode(), int(about[1])
    most = getattr(quota, what)
    detail = (
        f"the quota of {whose} is {most} {what} in all nodes, and {used} are in use:"
        " publish again when items are done, or ask an administrator for more"
    )
    return Refused(Problem.QUOTA_EXCEEDED, detail)


def _answer(some: Sequence[_Publish], outcome: Refused) -> None:
    for each in some:
        each.reply(outcome)
