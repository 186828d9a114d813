"""The figures of a report as values, one class for each theme, units in the names. Must not know where figures come from or go.

None means that the records do not tell.
"""

from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

from broker.analytics.quantities import write_count


@dataclass(frozen=True, slots=True)
class Demand:
    """Arrivals: the mean since the node's first item in the interval, and that of the busiest hour, which begins at `busiest_at`.

    A short interval is its own busiest hour.
    """

    rate_per_s: float
    bytes_per_s: float
    peak_per_s: float | None
    peak_width_s: float
    busiest_per_s: float
    busiest_at: datetime | None
    busiest_s: float


@dataclass(frozen=True, slots=True)
class Durations:
    """Mean, percentiles and maximum of durations, in ms."""

    mean_ms: float
    p50_ms: float
    p95_ms: float
    p99_ms: float
    most_ms: float


@dataclass(frozen=True, slots=True)
class Latency:
    """How long items wait, are worked on, and take from publish to acknowledgement."""

    wait: Durations | None
    service: Durations | None
    end_to_end: Durations | None


class Cause(StrEnum):
    """Why the target was missed."""

    TIMEOUTS = "locks that expired"
    SLOW = "slow workers"
    IN_FLIGHT = "stanzaq#max_in_flight"
    RATE = "stanzaq#rate"
    CREDIT = "too little credit"
    OTHER = "delays, order, keys, or no subscriber that may have them"


@dataclass(frozen=True, slots=True)
class Target:
    """How the target was held: the share of waits that were longer, of all and in the busiest hour, and the hours that missed it.

    `since` is when the first of these began, `cause` why most of them missed it; None when the target was held.
    """

    late_share: float
    busiest_late_share: float
    hours: int
    missed_hours: int
    since: datetime | None
    cause: Cause | None


@dataclass(frozen=True, slots=True)
class Capacity:
    """What the workers could do in the busiest hour; a worker is one unit of credit.

    `credit` is that of then; unless `credit_seen` it is the most that were at work, since no census tells;
    `credit_now` is None in a report of the past. `workers_needed` hold
    the target, None if the node's own bounds prevent it; `workers_unbound` is the same without these. `wait_p95_s` is the
    replay's with the credit. `target_per_s` is the demand that the credit carries within the target; `headroom` is how far
    that is above the demand. `policies` decide who is served next, and are not replayed.
    """

    attempts_per_s: float
    busy: float
    busiest: float
    offered: float | None
    credit: int | None
    credit_seen: bool
    credit_now: int | None
    credit_use: float | None
    most_per_s: float | None
    target_per_s: float | None
    headroom: float | None
    workers_needed: int | None
    workers_unbound: int | None
    wait_p95_s: float | None
    max_in_flight: int
    max_rate_per_s: float | None
    policies: str


@dataclass(frozen=True, slots=True)
class Price:
    """What the workers cost that are missing: workers, subscribers with as much credit each as those of now, and work.

    `worker_hours_per_day` is what all workers are busy for; `core_hours_per_day` is what frontends and Redis take for the jobs.
    """

    workers: int
    subscribers: int | None
    worker_hours_per_day: float
    core_hours_per_day: float


@dataclass(frozen=True, slots=True)
class Backlog:
    """Work that is not done yet."""

    waiting: int
    in_flight: int
    oldest_s: float | None
    waiting_mean: float
    waiting_most: float
    growth_per_s: float | None
    drain_s: float | None
    drains: bool


@dataclass(frozen=True, slots=True)
class Waste:
    """How deliveries ended, the worker-seconds lost, and the items that expired before anybody got them (`perished`)."""

    attempts: int
    items: int
    acknowledged: int
    released: int
    expired: int
    bounced: int
    dead_lettered: int
    cancelled: int
    redelivered: int
    lost_s: float
    lost_share: float
    perished: int = 0


@dataclass(frozen=True, slots=True)
class Fairness:
    """How evenly deliveries are spread. Jain's index is 1 for an even spread and 1/n when one has everything."""

    subscribers: int
    subscribers_jain: float
    partitions: int
    partitions_jain: float
    partitions_skew: float


@dataclass(frozen=True, slots=True)
class WhatIf:
    """The wait with this number of workers, as replayed; in use by 1 or more it grows as long as the hour lasts."""

    workers: int
    use: float
    wait_p95_s: float


@dataclass(frozen=True, slots=True)
class Forecast:
    """What will happen if the trends continue. `…_least` and `…_most` are the band of 95 %; a trend whose band has 0 is none.

    The target is missed between `target_missed_first_days` and `…_last_days`, None for never.
    """

    days: int
    rate_growth_per_day: float | None
    rate_growth_least: float | None
    rate_growth_most: float | None
    target_missed_days: float | None
    target_missed_first_days: float | None
    target_missed_last_days: float | None
    memory_full_days: float | None
    journal_reach_s: float | None


@dataclass(frozen=True, slots=True)
class Quality:
    """How far the numbers can be trusted."""

    seen: datetime | None
    open_attempts: int
    waits_unknown: int
    little_in_system: float
    little_by_law: float | None


@dataclass(frozen=True, slots=True)
class Share:
    """The share of one subscriber or partition in the work."""

    name: str
    attempts: int
    acknowledged: int
    share: float
    wait_ms: float | None
    held_ms: float


@dataclass(frozen=True, slots=True)
class Moment:
    """One step of the timeline: its counts and mean levels."""

    begin: datetime
    length_s: float
    arrived: int
    delivered: int
    acknowledged: int
    waiting: float
    in_flight: float


@dataclass(frozen=True, slots=True)
class Hour:
    """The arrivals of one hour of the week; `weekday` is 0 on Monday, None is what the interval does not have."""

    weekday: int
    hour: int
    rate_per_s: float | None


@dataclass(frozen=True, slots=True)
class Node:
    """All figures of one node."""

    node: str
    demand: Demand
    latency: Latency
    target: Target
    capacity: Capacity
    price: Price | None
    backlog: Backlog
    waste: Waste
    fairness: Fairness | None
    forecast: Forecast
    quality: Quality
    what_if: tuple[WhatIf, ...]
    waits: tuple[tuple[float, float], ...]
    subscribers: tuple[Share, ...]
    partitions: tuple[Share, ...]
    moments: tuple[Moment, ...]
    week: tuple[Hour, ...] = ()


@dataclass(frozen=True, slots=True)
class Gap:
    """Records missing between two ids of a journal. None: from its beginning, to its end, an unknown number."""

    node: str
    partition: int
    after: str | None
    before: str | None
    records: int | None

    def __str__(self) -> str:
        """Say what is missing, and where."""
        many = "records" if self.records is None else write_count(self.records, "record")
        where = [f"{word} {offset}" for word, offset in (("after", self.after), ("before", self.before)) if offset]
        return f"{many} of {self.node}, partition {self.partition}, {' and '.join(where)}"


@dataclass(frozen=True, slots=True)
class Resource:
    """What the processes of one kind carried together, for so many seconds, and what they could.

    `limit_…` is the range of jobs a second at which the busiest process reaches the use to plan for, `needed_…` the range of
    processes for ten times the load.
    """

    kind: str
    processes: int | None
    seconds: float
    jobs_per_s: float
    cores: float
    busiest: float | None
    jobs_per_core_s: float | None
    limit_least_per_s: float | None
    limit_most_per_s: float | None
    needed_least: int
    needed_most: int


@dataclass(frozen=True, slots=True)
class Service:
    """All kinds of processes; `missing` says what is not known, and why."""

    resources: tuple[Resource, ...] = ()
    missing: str = ""


@dataclass(frozen=True, slots=True)
class Report:
    """All nodes with activity, the most urgent first. `memory_full_days` is of Redis as a whole, with all nodes together.

    `zone` is that of weekdays, hours and days; `before` is the report of an earlier interval to compare with.
    """

    source: str
    begin: datetime
    end: datetime
    target_wait_p95_s: float
    gaps: tuple[Gap, ...]
    nodes: tuple[Node, ...]
    memory_full_days: float | None = None
    service: Service = Service()
    zone: str = "UTC"
    before: "Report | None" = None
