"""The table of docs/scaling.md: what services of several sizes carry by the model. Pure."""

from typing import Final

from broker.scaling.costs import Measured
from broker.scaling.model import Service, core_hours, max_uses

SERVICES: Final = {
    "1 frontend, 1 server, 1 master, 1 queue": Service(server_cores=4),
    "2 frontends, 1, 1, 1 queue": Service(frontends=2, server_cores=4),
    "4 frontends, 1, 1, 1 queue": Service(frontends=4, server_cores=4),
    "4 frontends, 1, 4, 1 queue of 4 partitions": Service(frontends=4, masters=4, partitions=4, server_cores=4),
    "4 frontends, 1, 4, 16 queues": Service(frontends=4, masters=4, queues=16, server_cores=4),
    "20 frontends, 4, 10, 100 queues": Service(frontends=20, servers=4, masters=10, queues=100, server_cores=4),
    "100 frontends, 10, 20, 1,000 queues": Service(frontends=100, servers=10, masters=20, queues=1_000, server_cores=4),
    "1,000 frontends, 100, 100, 10,000 queues": Service(
        frontends=1_000, servers=100, masters=100, queues=10_000, server_cores=4
    ),
}
"""Frontends, XMPP servers of four cores, Redis masters, and queues."""


def table(measured: Measured, beat_s: float) -> str:
    """Return the table in Markdown: jobs a second at SAFE_USE, what is used up first, and core hours of a million jobs."""
    lines = [
        "| service | single jobs/s | first | core hours | in batches, jobs/s | first | core hours |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, service in SERVICES.items():
        cells = [name]
        for costs in (measured.single, measured.batched):
            found = max_uses(costs, service, beat_s)
            cells += [f"{_round(found.rate):,}", found.first, f"{core_hours(found):.2f}"]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def _round(rate: float) -> int:
    """Round to two significant digits: the model is no more exact."""
    return int(float(f"{rate:.1e}"))
