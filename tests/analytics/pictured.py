"""One node's figures, made up: enough of everything for all views."""

from datetime import UTC, datetime, timedelta

from broker.analytics import figures

_BEGAN = datetime(2026, 1, 31, 12, tzinfo=UTC)


def node(name: str = "jobs") -> figures.Node:
    """Return a node that keeps up."""
    some = figures.Durations(300.5, 200, 1_200, 1_900, 4_000)
    return figures.Node(
        node=name,
        demand=figures.Demand(10.0, 2_000.0, 14.0, 30.0, 12.0, _BEGAN, 600.0),
        latency=figures.Latency(some, some, some),
        target=figures.Target(0.01, 0.02, 1, 0, None, None),
        capacity=figures.Capacity(
            attempts_per_s=10.4,
            busy=3.1,
            busiest=5.2,
            offered=3.6,
            credit=6,
            credit_seen=True,
            credit_now=6,
            credit_use=0.52,
            most_per_s=20.0,
            target_per_s=17.0,
            headroom=0.63,
            workers_needed=4,
            workers_unbound=4,
            wait_p95_s=0.9,
            max_in_flight=0,
            max_rate_per_s=None,
            policies="",
        ),
        price=figures.Price(0, 0, 74.4, 0.3),
        backlog=figures.Backlog(12, 4, 3.5, 4.0, 31.0, -0.001, 1.2, drains=True),
        waste=figures.Waste(1_040, 1_000, 1_000, 20, 10, 10, 0, 0, 40, 70.5, 0.13),
        fairness=figures.Fairness(2, 0.98, 2, 1.0, 1.02),
        forecast=figures.Forecast(0, None, None, None, None, None, None, 12.0, 1_900.0),
        quality=figures.Quality(_BEGAN + timedelta(hours=1), 4, 0, 7.1, 7.0),
        what_if=tuple(
            figures.WhatIf(workers, 3.1 / workers, wait) for workers, wait in ((3, 90.0), (4, 1.4), (5, 0.4), (6, 0.1))
        ),
        waits=tuple((share / 10, share * 100.0) for share in range(1, 11)),
        subscribers=tuple(figures.Share(f"worker{n}@example.org/<&>", 520, 500, 0.5, 300.0, 310.0) for n in range(2)),
        partitions=tuple(figures.Share(str(number), 520, 500, 0.5, None, 310.0) for number in range(2)),
        moments=tuple(
            figures.Moment(_BEGAN + timedelta(seconds=30 * step), 30.0, 300, 300, 290, 4.0, 3.1) for step in range(20)
        ),
        week=tuple(figures.Hour(day, hour, day + hour / 24) for day in range(7) for hour in range(24)),
    )


def idle(name: str = "idle") -> figures.Node:
    """Return a node with waiting items and no other figures."""
    return figures.Node(
        node=name,
        demand=figures.Demand(0.0, 0.0, None, 30.0, 0.0, None, 0.0),
        latency=figures.Latency(None, None, None),
        target=figures.Target(0.0, 0.0, 0, 0, None, None),
        capacity=figures.Capacity(
            attempts_per_s=0.0,
            busy=0.0,
            busiest=0.0,
            offered=None,
            credit=0,
            credit_seen=True,
            credit_now=0,
            credit_use=None,
            most_per_s=None,
            target_per_s=None,
            headroom=None,
            workers_needed=None,
            workers_unbound=None,
            wait_p95_s=None,
            max_in_flight=0,
            max_rate_per_s=None,
            policies="",
        ),
        price=None,
        backlog=figures.Backlog(3, 0, 90.0, 3.0, 3.0, None, None, drains=False),
        waste=figures.Waste(0, 0, 0, 0, 0, 0, 0, 0, 0, 0.0, 0.0),
        fairness=None,
        forecast=figures.Forecast(0, None, None, None, None, None, None, None, None),
        quality=figures.Quality(None, 0, 0, 3.0, None),
        what_if=(),
        waits=(),
        subscribers=(),
        partitions=(),
        moments=node().moments,
    )


def report(*nodes: figures.Node, gaps: tuple[figures.Gap, ...] = ()) -> figures.Report:
    """Return a report of these nodes."""
    return figures.Report("Redis", _BEGAN, _BEGAN + timedelta(minutes=10), 2.0, gaps, nodes)
