"""A private Redis with replicas and the sentinels that watch it. Knows how to start them; must not know the data."""

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final, Self

import redis

from frontends.tools.servers.process import wait_for
from frontends.tools.servers.redis import RedisServer

SERVICE: Final = "stanzaq"

_DOWN_AFTER_MS: Final = 2_000
"""With less, a busy machine lets them replace a living master."""
_FAILOVER_MS: Final = 5_000
_SENTINELS: Final = 3
_QUORUM: Final = 2
_READY_SECONDS: Final = 30.0


class RedisSentinel(RedisServer):
    """One sentinel: the same program, which stores its state in its configuration file."""

    def __init__(self, master: RedisServer) -> None:
        """Watch the master."""
        super().__init__(port=0)
        self._master = master

    def _command(self) -> list[str]:
        configuration = self.directory / "sentinel.conf"
        if not configuration.exists():
            lines = [
                f"port {self.port}",
                "bind 127.0.0.1",
                f"dir {self.directory}",
                f"unixsocket {self.socket}",
                f"sentinel monitor {SERVICE} 127.0.0.1 {self._master.port} {_QUORUM}",
                f"sentinel down-after-milliseconds {SERVICE} {_DOWN_AFTER_MS}",
                f"sentinel failover-timeout {SERVICE} {_FAILOVER_MS}",
            ]
            configuration.write_text("\n".join(lines) + "\n")
        return [str(self._binary), str(configuration), "--sentinel"]


class RedisSentinels:
    """A master, its replicas and three sentinels with a quorum of two; a context manager."""

    def __init__(self, replicas: int = 2, *, options: Mapping[str, str] | None = None) -> None:
        """Choose the number of replicas; `options` are lines of redis.conf for all Redis nodes."""
        # Without rdb-del-sync-files, a former replica would restart with old data, though nothing is meant to be on disk.
        more = {"repl-diskless-sync-delay": "0", "rdb-del-sync-files": "yes", **(options or {})}
        self.nodes = tuple(RedisServer(port=0, options=more) for _ in range(1 + replicas))
        self.sentinels = tuple(RedisSentinel(self.nodes[0]) for _ in range(_SENTINELS))
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The URL for clients."""
        hosts = ",".join(f"127.0.0.1:{sentinel.port}" for sentinel in self.sentinels)
        return f"redis+sentinel://{hosts}/{SERVICE}"

    def __enter__(self) -> Self:
        """Start all of them and wait until they know each other."""
        with ExitStack() as stack:
            for node in self.nodes:
                stack.enter_context(node)
                if node is not self.nodes[0]:
                    self.ask(node, "REPLICAOF", "127.0.0.1", self.nodes[0].port)
            for sentinel in self.sentinels:
                stack.enter_context(sentinel)
            self.wait_until_well()
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self._stack.close()

    def ask(self, node: RedisServer, *words: str | int) -> Any:  # noqa: ANN401  (what Redis answers)
        """Send a command to one node or sentinel."""
        with redis.Redis.from_url(node.url, decode_responses=True) as client:
            return client.execute_command(*words)

    def master(self) -> RedisServer:
        """Return the node that all sentinels agree on as master, once it runs and says so itself."""
        return wait_for(self._agreed_master, _READY_SECONDS, "the sentinels agree on no master", redis.ConnectionError)

    def _agreed_master(self) -> RedisServer | None:
        named = {int(self.ask(each, "SENTINEL GET-MASTER-ADDR-BY-NAME", SERVICE)[1]) for each in self.sentinels}
        for node in self.nodes:
            if node.running and named == {node.port} and self.ask(node, "ROLE")[0] == "master":
                return node
        return None

    def fail_over(self) -> None:
        """Have a sentinel replace the master; a sentinel that had no time to look at the replicas refuses for a while."""

        def accepted() -> bool:
            return bool(self.ask(self.sentinels[0], "SENTINEL FAILOVER", SERVICE))

        wait_for(accepted, _READY_SECONDS, "no replica can be promoted", redis.ResponseError)

    def successor(self, old: RedisServer) -> RedisServer:
        """Wait until the sentinels agree on another master than the old one."""
        self._wait_until(lambda: self.master() is not old, "there is no other master")
        return self.master()

    def wait_for_replicas(self, master: RedisServer) -> None:
        """Wait until all other running nodes have what the master has now."""
        wanted = self.ask(master, "ROLE")[1]
        others = [node for node in self.nodes if node.running and node is not master]
        self._wait_until(
            lambda: all(self.ask(node, "ROLE")[4] >= wanted for node in others), "the replicas do not catch up"
        )

    def wait_until_well(self) -> None:
        """Wait until every other running node follows the master, and every sentinel knows all nodes and sentinels."""
        self._wait_until(lambda: self._is_settled(self.master()), "the replicas or sentinels are not ready")

    def _wait_until(self, holds: Callable[[], bool], what: str) -> None:
        # A node that changes its role closes all connections.
        wait_for(holds, _READY_SECONDS, what, redis.ConnectionError)

    def _is_settled(self, master: RedisServer) -> bool:
        followers = [self.ask(node, "ROLE") for node in self.nodes if node.running and node is not master]
        if any(role[0] != "slave" or role[2] != master.port or role[3] != "connected" for role in followers):
            return False
        for sentinel in self.sentinels:
            others = self.ask(sentinel, "SENTINEL SENTINELS", SERVICE)
            replicas = self.ask(sentinel, "SENTINEL REPLICAS", SERVICE)
            if len(others) != _SENTINELS - 1 or len(replicas) != len(self.nodes) - 1:
                return False
        return True
