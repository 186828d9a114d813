"""What processes carried, by their samples, and the outlook for three times the load."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from broker.analytics.figures import Node
from broker.analytics.processes import add_up_samples, outlook_of, service, use_at
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS
from broker.scaling.costs import read_costs
from broker.scaling.model import SAFE_USE, Uses, uses
from broker.scaling.model import Service as Modelled
from broker.scaling.usage import MINUTE_MS, REDIS, Usage, read_all
from tests.analytics.pictured import node

LASTED_MS = 10 * MINUTE_MS
QUEUES = 40


def _nodes() -> list[Node]:
    return [replace(node(f"jobs-{number}"), partitions=node().partitions[:1]) for number in range(QUEUES)]


def _samples(shape: Modelled, modelled: Uses, share: float) -> list[Usage]:
    """Write what the processes use in ten minutes at this load, where each costs this share of what the model has."""
    found = []
    for kind, processes, use in (
        ("xmpp", shape.frontends, modelled.frontends),
        (REDIS, shape.masters, modelled.master),
    ):
        jobs = round(modelled.rate * LASTED_MS / 1000 / processes) if kind == "xmpp" else 0
        cpu_ms = round(use * share * LASTED_MS)
        for number in range(processes):
            found += [
                Usage(kind, f"{number:08x}", 0, 5_000, 100),
                Usage(kind, f"{number:08x}", LASTED_MS, 5_000 + cpu_ms, 100 + jobs),
            ]
    return found


@pytest.mark.parametrize("rate", [400.0, 1_500.0])
@pytest.mark.parametrize("frontends", [3, 12])
@pytest.mark.parametrize("share", [0.7, 1.0, 1.4])
def test_three_times_the_load(rate: float, frontends: int, share: float) -> None:
    """A load predicts how busy the busiest frontend and master are at three times that, whatever a job costs there."""
    shape, costs = Modelled(frontends=frontends, masters=4, queues=QUEUES), read_costs()
    now, later = (
        add_up_samples(_samples(shape, uses(costs.single, shape, of, HEARTBEAT_SECONDS), share), 0, LASTED_MS)
        for of in (rate, 3 * rate)
    )
    outlook = outlook_of(now, _nodes(), costs, HEARTBEAT_SECONDS)
    assert outlook.service.frontends == frontends and outlook.service.masters == 4
    for kind in ("xmpp", REDIS):
        least, most = use_at(now[kind], outlook, 3)
        assert least <= later[kind].busiest <= most, kind
        # A range that says anything.
        assert most < 4 * least


def test_service() -> None:
    """Cores, jobs a second of a core, the next limit, and how many processes ten times the load needs."""
    found = [
        Usage("xmpp", name, at_ms, cpu_ms, jobs)
        for name, cpu in (("a", 60_000), ("b", 120_000))
        for at_ms, cpu_ms, jobs in (
            (0, 7, 7),
            (LASTED_MS // 2, 7 + cpu // 2, 7 + 30_000),
            (LASTED_MS, 7 + cpu, 7 + 60_000),
        )
    ]
    found += [Usage(REDIS, "Redis", 0, 9_000), Usage(REDIS, "Redis", LASTED_MS, 9_000 + 90_000), Usage(REDIS, "", 0, 0)]
    made = service([*found, *found], _nodes(), (0, LASTED_MS), read_costs(), HEARTBEAT_SECONDS)
    assert made.missing == ""
    xmpp, redis, servers = made.resources
    assert (xmpp.kind, xmpp.processes, redis.kind, redis.processes) == ("xmpp frontends", 2, "Redis masters", 1)
    assert (xmpp.jobs_per_s, xmpp.cores, xmpp.busiest) == pytest.approx((200, 0.3, 0.2))
    assert xmpp.jobs_per_core_s == pytest.approx(200 / 0.3)
    assert (redis.jobs_per_s, redis.cores, redis.busiest) == pytest.approx((200, 0.15, 0.15))
    assert servers.processes is None and servers.needed_least <= servers.needed_most
    for each in (xmpp, redis):
        assert each.busiest and each.limit_least_per_s and each.limit_most_per_s
        assert each.limit_least_per_s < 200 * SAFE_USE / each.busiest < each.limit_most_per_s
        assert each.needed_least <= each.cores * 10 / SAFE_USE <= each.needed_most


@pytest.mark.parametrize(
    "found", [[], [Usage("xmpp", "a", 0, 5, 5)], [Usage(REDIS, "Redis", 0, 5), Usage(REDIS, "Redis", 9, 9)]]
)
def test_nothing_recorded(found: Sequence[Usage]) -> None:
    """Without samples there is no figure, and the report says which are missing."""
    made = service(found, _nodes(), (0, LASTED_MS), read_costs(), HEARTBEAT_SECONDS)
    assert made.resources == () and "is not recorded" in made.missing


def test_redis_is_not_recorded() -> None:
    """Without samples of Redis the frontends' are there, and the report says why."""
    found = [Usage("rest", "a", 0, 0, 0), Usage("rest", "a", LASTED_MS, 60_000, 600)]
    made = service(found, [], (0, LASTED_MS), read_costs(), HEARTBEAT_SECONDS)
    assert [each.kind for each in made.resources] == ["rest frontends"] and "INFO" in made.missing


def test_processes_that_were_replaced() -> None:
    """A frontend that ended counts for the time that it was there; one that began again does not count negatively."""
    half = LASTED_MS // 2
    found = [Usage("xmpp", "old", 0, 0, 0), Usage("xmpp", "old", half, 3_000, 300)]
    found += [Usage("xmpp", "new", half, 0, 0), Usage("xmpp", "new", LASTED_MS, 3_000, 300)]
    found += [
        Usage("xmpp", "long", 0, 100, 100),
        Usage("xmpp", "long", half, 10, 10),
        Usage("xmpp", "long", LASTED_MS, 20, 20),
    ]
    of_xmpp = add_up_samples(found, 0, LASTED_MS)["xmpp"]
    assert of_xmpp.processes == 2
    assert of_xmpp.jobs_per_s == pytest.approx((300 + 300 + 10 + 10) / (LASTED_MS / 1000))


def test_text_of_samples() -> None:
    """What is written is read; a sample of another form is skipped."""
    one = Usage("xmpp", "1edc2653", 1_795_296_950_257, 81_250, 402_113)
    assert list(read_all([(one.field.encode(), one.value.encode()), (b"1 xmpp x", b"1")])) == [one]
