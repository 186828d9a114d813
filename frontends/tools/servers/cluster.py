"""A private Redis Cluster on the loopback interface. Knows how to form it and move slots; must not know the data in it."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Self

import redis
from redis.crc import REDIS_CLUSTER_HASH_SLOTS

from frontends.tools.servers.process import ServerError, free_ports, wait_for
from frontends.tools.servers.redis import RedisServer

NODE_TIMEOUT_MS: Final = 1_000
"""The time after which a silent master counts as failed: a failover takes about two seconds."""

_READY_SECONDS: Final = 30.0
_MOVED_AT_ONCE: Final = 100
_MOVE_MS: Final = 5_000


class RedisCluster:
    """Masters that share all slots, and their replicas, distributed in turn; a context manager."""

    def __init__(self, masters: int = 3, replicas: int = 3, *, options: Mapping[str, str] | None = None) -> None:
        """Choose how many of each; `options` are lines of redis.conf for every node."""
        ports = free_ports(2 * (masters + replicas))
        self._masters = masters
        self.nodes = tuple(
            RedisServer(
                port=port,
                options={
                    "cluster-enabled": "yes",
                    # The default is the port plus 10,000, which may exceed the largest port.
                    "cluster-port": str(bus),
                    "cluster-node-timeout": str(NODE_TIMEOUT_MS),
                    # A replica stays with its master, even if another master has lost all of its own.
                    "cluster-allow-replica-migration": "no",
                    "repl-diskless-sync-delay": "0",
                    **(options or {}),
                },
            )
            for port, bus in zip(ports[::2], ports[1::2], strict=True)
        )
        self._buses = dict(zip(self.nodes, ports[1::2], strict=True))
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The URL of the cluster, with three of its nodes."""
        return "redis+cluster://" + ",".join(f"127.0.0.1:{node.port}" for node in self.nodes[:3])

    def __enter__(self) -> Self:
        """Start the nodes and form a cluster."""
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
            self._form()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End the nodes."""
        self._stack.close()

    def ask(self, node: RedisServer, *words: str | int) -> Any:  # noqa: ANN401  (what Redis answers)
        """Send a command to one node."""
        with redis.Redis.from_url(node.url, decode_responses=True) as client:
            return client.execute_command(*words)

    def running(self) -> list[RedisServer]:
        """Return the nodes that have not been killed."""
        return [node for node in self.nodes if node.running]

    def masters(self) -> dict[RedisServer, list[tuple[int, int]]]:
        """Return the running masters, each with the slot ranges that it claims."""
        found = {}
        for node in self.running():
            if self.ask(node, "ROLE")[0] == "master":
                name, slots = self.ask(node, "CLUSTER MYID"), self.ask(node, "CLUSTER SLOTS")
                found[node] = [(first, last) for first, last, master, *_ in slots if master[2] == name]
        return found

    def owner(self, slot: int) -> RedisServer:
        """Return the master of a slot."""
        for node, ranges in self.masters().items():
            if any(first <= slot <= last for first, last in ranges):
                return node
        msg = f"no master serves slot {slot}"
        raise ServerError(msg)

    def replica(self, master: RedisServer) -> RedisServer:
        """Return a running replica of a master."""
        for node in self.running():
            role, *rest = self.ask(node, "ROLE")
            if role == "slave" and rest[1] == master.port:
                return node
        msg = f"the node at {master.url} has no replica"
        raise ServerError(msg)

    def begin_move(self, slot: int, target: RedisServer) -> RedisServer:
        """Mark a slot as moving at both masters, without moving a key; returns its present master."""
        source = self.owner(slot)
        self._set_slot(target, slot, "IMPORTING", source)
        self._set_slot(source, slot, "MIGRATING", target)
        return source

    def move(self, slot: int, target: RedisServer) -> None:
        """Move a slot with all its keys to another master, key by key while it is in use, as redis-cli does."""
        source = self.begin_move(slot, target)
        while keys := self.ask(source, "CLUSTER GETKEYSINSLOT", slot, _MOVED_AT_ONCE):
            self.ask(source, "MIGRATE", "127.0.0.1", target.port, "", 0, _MOVE_MS, "KEYS", *keys)
        for node in (target, source, *self.masters()):
            self._set_slot(node, slot, "NODE", target)

    def _set_slot(self, node: RedisServer, slot: int, what: str, other: RedisServer) -> None:
        name = self.ask(other, "CLUSTER MYID")
        # Valkey's replicas must confirm first, and on a busy machine it stops waiting for them too soon.
        wait_for(
            lambda: self.ask(node, "CLUSTER SETSLOT", slot, what, name),
            _READY_SECONDS,
            f"slot {slot} is not {what}",
            redis.ResponseError,
        )

    def wait_for_replica(self, master: RedisServer) -> None:
        """Wait until a master's replica has everything that the master has now."""
        replica, wanted = self.replica(master), self.ask(master, "ROLE")[1]
        self._wait_until(lambda: self.ask(replica, "ROLE")[4] >= wanted, "the replica does not catch up")

    def wait_until_well(self) -> None:
        """Wait until every running node reports a healthy cluster and every replica has caught up."""
        self._wait_until(self._well, "the cluster is not well")

    def _form(self) -> None:
        masters, replicas = self.nodes[: self._masters], self.nodes[self._masters :]
        bounds = [REDIS_CLUSTER_HASH_SLOTS * number // len(masters) for number in range(len(masters) + 1)]
        for number, node in enumerate(self.nodes):
            # Nodes with equal epochs would first have to agree on different ones.
            self.ask(node, "CLUSTER SET-CONFIG-EPOCH", number + 1)
            self.ask(self.nodes[0], "CLUSTER MEET", "127.0.0.1", node.port, self._buses[node])
        for node, first, end in zip(masters, bounds, bounds[1:], strict=False):
            self.ask(node, "CLUSTER ADDSLOTSRANGE", first, end - 1)
        self._wait_until(lambda: all(self._knows_all(node) for node in self.nodes), "the nodes do not find each other")
        for number, node in enumerate(replicas):
            self.ask(node, "CLUSTER REPLICATE", self.ask(masters[number % len(masters)], "CLUSTER MYID"))
        self.wait_until_well()

    def _knows_all(self, node: RedisServer) -> bool:
        known = self.ask(node, "CLUSTER NODES")
        return len(known) == len(self.nodes) and all("handshake" not in each["flags"] for each in known.values())

    def _well(self) -> bool:
        running = self.running()
        if any(self.ask(node, "CLUSTER INFO")["cluster_state"] != "ok" for node in running):
            return False
        roles = {node.port: self.ask(node, "ROLE") for node in running}
        followers = [role for role in roles.values() if role[0] == "slave"]
        # A master lists only replicas that are up to date.
        online = sum(len(role[2]) for role in roles.values() if role[0] == "master")
        return online == len(followers) and all(role[3] == "connected" for role in followers)

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        # A node that changes its role closes all connections.
        wait_for(holds, _READY_SECONDS, what, redis.ConnectionError)
