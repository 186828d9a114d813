"""`stanzaq bench scale --processes N`: 1, 2, 4 … and N of each kind of process, next to the model of docs/scaling.md.

Must not know how a load is made, nor how the model computes.
"""

import asyncio
import os
from itertools import takewhile
from pathlib import Path
from typing import Final

import uvloop
from rich.console import Console

import broker.scaling
from bench.doors.load import WINDOW, WORKERS
from bench.report import Row, row_without_target, show
from bench.scaling import costs
from bench.scaling.processes import BATCH, Shape, Spent, scene
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS
from broker.scaling.costs import NAME, Measured, read_costs
from broker.scaling.model import Service, max_uses, uses

_SECONDS: Final = 3.0
_QUICK_SECONDS: Final = 0.3
_STEPS: Final = 6


def main(processes: int, *, save: bool, as_json: bool, quick: bool) -> int:
    """Measure, and print each shape next to the model; no row has a target. With `save` measure the model's costs first."""
    seconds = _QUICK_SECONDS if quick else _SECONDS
    with Console(stderr=True).status("measuring costs" if save else "starting") as status:
        found = costs.measure(seconds) if save else read_costs()
        if save:
            (Path(broker.scaling.__path__[0]) / NAME).write_text(found.text())
        rows: list[Row] = []
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            for shape in shapes(processes):
                status.update(f"measuring {shape}")
                for batch, spent in runner.run(_spent(shape, seconds)):
                    rows += compare(found, shape, batch, spent)
    return show(rows, as_json=as_json)


def shapes(most_: int) -> list[Shape]:
    """Return the shapes: one of each, then more frontends, more XMPP servers, more partitions, and more masters with them."""
    counts = [*takewhile(lambda count: count < most_, (2**power for power in range(1, _STEPS))), most_]
    found = [Shape()]
    for count in counts:
        found += [
            Shape(frontends=count),
            Shape(frontends=count, servers=count),
            Shape(partitions=count),
            Shape(masters=count, partitions=count),
        ]
    return found if most_ > 1 else found[:1]


async def _spent(shape: Shape, seconds: float) -> list[tuple[int, Spent]]:
    found = []
    with scene(shape) as processes:
        for batch in (1, BATCH):
            loads = await processes.loads(batch)
            await processes.spend(loads, seconds / 4)
            found.append((batch, await processes.spend(loads, seconds)))
            for load in loads:
                load.close()
    return found


def compare(found: Measured, shape: Shape, batch: int, spent: Spent) -> list[Row]:
    """Return the measured processor time of a job and jobs a second, each next to what the model expects."""
    window = WINDOW if batch == 1 else 4 * batch * WORKERS
    costs_ = found.single if batch == 1 else found.batched
    cores = os.cpu_count() or 1
    service = Service(
        frontends=shape.frontends,
        servers=shape.servers,
        masters=shape.masters,
        partitions=shape.partitions,
        server_cores=cores,
        # What the load itself and other programs take is not there for the service.
        shared_cores=max(0.1, cores - (spent.load + spent.others) / spent.seconds),
        under_way=window * shape.servers,
    )
    highest = max_uses(costs_, service, HEARTBEAT_SECONDS, use=1.0)
    expected = uses(costs_, service, spent.rate, HEARTBEAT_SECONDS)
    name = f"{shape}_b{batch}"
    return [
        row_without_target(f"{name}_us", "µs a job", spent.job_us, expected.job_us),
        row_without_target(f"{name}_redis", "µs a job", spent.us("redis"), expected.redis_us),
        row_without_target(f"{name}_frontend", "µs a job", spent.us("frontend"), expected.frontend_us),
        row_without_target(f"{name}_xmpp", "µs a job", spent.us("xmpp"), expected.xmpp_us),
        row_without_target(f"{name}_jobs", "jobs/s", spent.rate, highest.rate),
    ]
