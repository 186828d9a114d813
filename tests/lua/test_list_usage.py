"""lua/credit/list_usage.lua: a coordinator's ledger."""

from broker.redis_core.operations.operation import subid
from tests.lua.driver import Queue
from tests.lua.subscribed import subscribed
from tests.lua.test_grant_credit import W1, told, wanted

Parts = tuple[Queue, Queue, Queue]


def test_pairs(parts: Parts) -> None:
    """It lists who holds something where, by the ledger, and who is unknown there."""
    coordinator, _, _ = parts
    subscribed(parts, W1, 2)
    assert coordinator.run("list_usage", scan="0").rows == ["0", []]
    wanted(coordinator, 1, 1)
    told(coordinator, 2, W1, 0, 0, shut=1, full=1)
    scan, pairs = coordinator.run("list_usage", scan="0").rows
    assert scan == "0" and sorted(pairs) == [[subid(W1), 1, 0], [subid(W1), 2, 1]]
