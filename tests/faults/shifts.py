"""Faults of several Redis servers: data moves to another one, in order or because one died.

A replica lags behind its master by a moment: answered writes that die with the master in that moment are lost. So
before a master is killed the load stops until its replicas have everything, and no loss is allowed.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Final

from redis.crc import key_slot

from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.redis import RedisServer
from tests.faults.house import Kind
from tests.faults.stage import Stage
from tests.faults.strikes import LONG, Strike

_TAKEOVER_SECONDS: Final = 15.0
_REST_SECONDS: Final = 0.5
"""The wait for all answers."""


def slots_moved(stage: Stage) -> None:
    """Move every slot that has keys to another master, key by key, while the load runs."""
    cluster = stage.house.cluster
    slots = _used(cluster)
    for slot in stage.random.sample(slots, len(slots)):
        cluster.move(slot, stage.random.choice([each for each in cluster.masters() if each is not cluster.owner(slot)]))
        stage.pause(0, 0.05)
    stage.heal()


def replica_promoted(stage: Stage) -> None:
    """Let the queue's master and its replica change roles, as for maintenance."""
    cluster = stage.house.cluster
    for _ in range(2):
        master = _master(stage)
        cluster.ask(cluster.replica(master), "CLUSTER FAILOVER")
        stage.until(partial(_still, stage, master), _TAKEOVER_SECONDS, "the replica does not take over")
        cluster.wait_until_well()
        stage.pause(0.5, 1)
    stage.heal()


def master_killed(stage: Stage) -> None:
    """SIGKILL of the master that has the queue; it comes back as a replica of its replica."""
    cluster, master = stage.house.cluster, _master(stage)
    with _resting(stage):
        cluster.wait_for_replica(master)
        master.kill()
    stage.until(partial(_still, stage, master), _TAKEOVER_SECONDS, "the replica does not take over")
    stage.heal()
    stage.pause(0, 1)
    master.start()
    cluster.wait_until_well()


def watched_master_killed(stage: Stage) -> None:
    """SIGKILL of the master with three sentinels; it comes back empty, and believes for a while that it is the master."""
    sentinels = stage.house.sentinels
    master = sentinels.master()
    with _resting(stage):
        sentinels.wait_for_replicas(master)
        master.kill()
    sentinels.successor(master)
    stage.heal()
    master.start()
    stage.pause(1, 2)
    # Nobody wrote to it before it was told.
    assert sentinels.ask(master, "DBSIZE") == 0 or sentinels.ask(master, "ROLE")[0] == "slave"
    sentinels.wait_until_well()


SHIFTS: Final = (
    Strike(slots_moved, LONG, Kind.CLUSTER),
    Strike(replica_promoted, LONG, Kind.CLUSTER),
    Strike(master_killed, LONG, Kind.CLUSTER),
    Strike(watched_master_killed, LONG, Kind.SENTINELS),
)


@contextmanager
def _resting(stage: Stage) -> Iterator[None]:
    """Pause publishers and workers, and let their requests be answered."""
    players = (*stage.publishers, *stage.workers)
    for player in players:
        player.process.pause()
    stage.rest(_REST_SECONDS)
    yield
    for player in players:
        player.process.resume()


def _used(cluster: RedisCluster) -> list[int]:
    """Return the slots that have keys."""
    return sorted({key_slot(key.encode()) for master in cluster.masters() for key in cluster.ask(master, "KEYS", "*")})


def _slot(stage: Stage) -> int:
    """Return the slot of the queue's partition."""
    cluster, pattern = stage.house.cluster, f"sq:{{{stage.node}@*:meta"
    (key,) = (key for master in cluster.masters() for key in cluster.ask(master, "KEYS", pattern))
    return key_slot(key.encode())


def _master(stage: Stage) -> RedisServer:
    return stage.house.cluster.owner(_slot(stage))


def _still(stage: Stage, old: RedisServer) -> list[str]:
    """Return why the wait goes on: only the old master has the queue."""
    cluster, pattern = stage.house.cluster, f"sq:{{{stage.node}@*:meta"
    others = [each for each in cluster.masters() if each is not old]
    return [] if any(cluster.ask(each, "KEYS", pattern) for each in others) else ["the queue"]
