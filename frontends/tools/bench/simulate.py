"""`stanzaq bench simulate`: raises the load of a simulated service until something is used up.

Must not know how it is simulated.
"""

import gc
from dataclasses import dataclass
from typing import Final

from rich.console import Console

from broker.model.nodes import MAX_SUBSCRIBERS
from broker.scaling.costs import Costs, read_costs
from broker.scaling.model import Service, masters_swept_s, max_uses, uses
from frontends.tools.bench.predicted import TIMING
from frontends.tools.bench.report import Row, row_without_target, show
from frontends.tools.bench.simulation import Seen, Simulation

WORK_S: Final = 2.0
"""Mean time that a worker takes for an item."""

CLIENTS: Final = 10_000
"""Redis's default `maxclients`."""

_LEVELS: Final = (0.25, 0.5, 1.0, 1.5, 2.0, 3.0)
"""Multiples of the rate at which the model has something used up."""

_SETTLE_S: Final = 3.5
"""By then the deliveries of the first second are reported as sent, so sweeps are as many as later on."""

_SECONDS: Final = 0.5
_USED_UP: Final = 0.98
_QUICK: Final = 100


@dataclass(frozen=True, slots=True)
class Asked:
    """The service: how many of each, and the share of all jobs that the busiest queue has."""

    frontends: int = 1_000
    masters: int = 100
    queues: int = 10_000
    partitions: int = 1
    workers: int = 1_000_000
    hottest: float = 0.01

    def service(self) -> Service:
        """Return the service; it has an XMPP server of four cores for every ten frontends."""
        servers = -(-self.frontends // 10)
        return Service(
            frontends=self.frontends,
            servers=servers,
            masters=self.masters,
            queues=self.queues,
            partitions=self.partitions,
            hottest=self.hottest,
            server_cores=4,
        )


def refusal(asked: Asked) -> str:
    """Say what no service could have; empty when there is nothing."""
    if asked.workers * max(asked.hottest, 1 / asked.queues) > MAX_SUBSCRIBERS:
        return f"a queue has {MAX_SUBSCRIBERS:,} subscribers at most: more queues, or a smaller share of the hottest"
    return ""


def main(asked: Asked, *, as_json: bool, quick: bool) -> int:
    """Simulate; rows have no target. A row names what is used up first, at the first simulated rate at which it is."""
    service, costs = asked.service(), read_costs().single
    limit = max_uses(costs, service, TIMING, use=1.0).rate / (_QUICK if quick else 1)
    rows: list[Row] = []
    rate, first, used_up = 0.0, "", False
    # The simulation makes no cycles to collect, and hundreds of thousands of objects to look through.
    gc.disable()
    try:
        with Console(stderr=True).status("simulating") as status:
            for level in _LEVELS[:2] if quick else _LEVELS:
                rate = level * limit
                status.update(f"simulating {rate:,.0f} jobs/s")
                seen = Simulation(costs, service, rate, workers=asked.workers, work_s=WORK_S).run(_SETTLE_S, _SECONDS)
                found = uses_by_name(seen, service)
                rows += _rows(rate, seen, found, costs, service)
                first = max(found, key=lambda name: found[name])
                used_up = found[first] >= _USED_UP
                if used_up:
                    break
    finally:
        gc.enable()
    rows.append(row_without_target(f"{'first' if used_up else 'busiest'}_{first}", "jobs/s", rate, limit))
    if service.frontends > 1:
        rows.append(row_without_target("swept_after_death", "s", masters_swept_s(costs, service), 1.0))
    return show(rows, as_json=as_json)


def uses_by_name(seen: Seen, service: Service) -> dict[str, float]:
    """Return the use of each resource by its name. From 1 on, its queue grows.

    `hot_master` is the master of the busiest queue, `beats_master` that of heartbeats, `masters` the mean of all.
    """
    return {
        "frontend": max(seen.frontend_busy) / seen.seconds,
        "hot_master": seen.master_busy[seen.hot_master] / seen.seconds,
        "beats_master": seen.master_busy[0] / seen.seconds,
        "masters": sum(seen.master_busy) / service.masters / seen.seconds,
        "xmpp": seen.xmpp_busy / service.servers / service.server_cores / seen.seconds,
        "connections": seen.most_connections / CLIENTS,
        "credit": seen.without_credit / max(1, seen.published),
    }


def _rows(rate: float, seen: Seen, found: dict[str, float], costs: Costs, service: Service) -> list[Row]:
    """Return the rows of a level, next to the model where it has the same."""
    expected = uses(costs, service, rate, TIMING)
    modelled = {
        "frontend": expected.frontends,
        "hot_master": max(expected.master, expected.coordinator),
        "xmpp": expected.xmpp,
    }
    rows = [
        row_without_target(f"{rate:.0f}_{name}", "use", use, modelled.get(name, 1.0))
        for name, use in found.items()
        if use
    ]
    return [*rows, row_without_target(f"{rate:.0f}_sweeps", "/s", seen.sweeps / seen.seconds, expected.sweeps)]
