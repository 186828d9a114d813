"""What happened to each item, as recorded by its publishers and workers. Pure; time is an argument.

It trusts only answers and deliveries, no counts of the service, which is under test.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass

from frontends.tools.demo.stanzas import Delivered


@dataclass(frozen=True, slots=True)
class Latency:
    """From sending a publish to receiving its delivery, in ms."""

    p50: float
    p99: float


@dataclass(frozen=True, slots=True)
class Summary:
    """The demo's result. `killed` frontends and the time until all of their deliveries arrived are set after `--kill`."""

    published: int
    delivered: int
    acknowledged: int
    redelivered: int
    duplicates: int
    queued: int
    lost: int
    jobs_per_s: float
    latency_ms: Latency
    killed: int = 0
    resent_within_s: float | None = None

    def record(self) -> dict[str, object]:
        """Return the result as a JSON object."""
        only_after_a_kill = {"killed", "resent_within_s"}
        return {name: value for name, value in asdict(self).items() if self.killed or name not in only_after_a_kill}


class Tally:
    """Counts events; all times are seconds of one clock."""

    def __init__(self) -> None:
        """Start with nothing."""
        self.published: set[str] = set()
        self.acknowledged: set[str] = set()
        self._sent: dict[str, float] = {}
        self._tokens: dict[str, int] = {}
        self._waits: list[float] = []
        self._redelivered = 0
        self._duplicates = 0
        self._began = self._progressed = 0.0
        self._killed: float | None = None
        self._owed: set[str] = set()
        self._settled = 0.0

    def note_sending(self, item_id: str, now: float) -> None:
        """Record the first publish of an item."""
        self._began = self._began or now
        self._sent[item_id] = self._progressed = now

    def note_answered(self, item_id: str) -> None:
        """Record that the service accepted an item: from now on it must not be lost."""
        self.published.add(item_id)

    def note_delivered(self, item: Delivered, now: float) -> bool:
        """Record a delivery; False for a repeated one, which its token shows."""
        newest = self._tokens.get(item.item_id)
        if newest is not None and item.token <= newest:
            self._duplicates += 1
            return False
        self._tokens[item.item_id] = item.token
        self._progressed = now
        if newest is None:
            self._waits.append(now - self._sent[item.item_id])
        else:
            self._redelivered += 1
        if item.item_id in self._owed:
            self._owed.discard(item.item_id)
            self._settled = now
        return True

    def acknowledge(self, item_id: str, now: float) -> bool:
        """Record a confirmed acknowledgement; False for a repeated one."""
        self._progressed = now
        if item_id in self.acknowledged:
            return False
        self.acknowledged.add(item_id)
        return True

    def note_kill(self, now: float) -> None:
        """Record the kill of a frontend: it may have had any item that was sent and not delivered."""
        self._killed = self._settled = now
        self._owed = self._sent.keys() - self._tokens.keys()

    def seconds_idle(self, now: float) -> float:
        """Return the seconds without progress."""
        return now - self._progressed if self._sent else 0.0

    def find_missing(self) -> set[str]:
        """Return the ids that were published and never acknowledged."""
        return self.published - self.acknowledged

    def summary(self, shown: int, queued: int) -> Summary:
        """Sum up; `shown` of the missing items are still in the service, and `queued` items are in it in all."""
        lasted = self._progressed - self._began
        return Summary(
            published=len(self.published),
            delivered=len(self._tokens) + self._redelivered,
            acknowledged=len(self.acknowledged),
            redelivered=self._redelivered,
            duplicates=self._duplicates,
            queued=queued,
            lost=len(self.find_missing()) - shown,
            jobs_per_s=round(len(self.acknowledged) / lasted, 1) if lasted else 0.0,
            latency_ms=Latency(percentile(self._waits, 0.5), percentile(self._waits, 0.99)),
            killed=0 if self._killed is None else 1,
            resent_within_s=None if self._killed is None or self._owed else round(self._settled - self._killed, 3),
        )


def percentile(seconds: Sequence[float], share: float) -> float:
    """Return the value below which a share of the measurements lies, in ms."""
    if not seconds:
        return 0.0
    return round(sorted(seconds)[min(len(seconds) - 1, int(len(seconds) * share))] * 1000, 2)
