"""Restores an earlier state of Redis, as a failover does whose replica lacked the last moments. Knows keys, no node."""

import redis

from frontends.tools.servers.redis import RedisServer

_KEEP = """
local kept = {}
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do
  kept[#kept + 1] = name
  kept[#kept + 1] = redis.call('DUMP', name)
end
return kept
"""

_LOSE = """
for _, name in ipairs(redis.call('KEYS', ARGV[1])) do redis.call('DEL', name) end
for i = 2, #ARGV, 2 do redis.call('RESTORE', ARGV[i], 0, ARGV[i + 1]) end
"""


class Past:
    """The present keys of one pattern. All are saved, and restored, at one moment."""

    def __init__(self, server: RedisServer, pattern: str) -> None:
        """Save them."""
        self._server, self._pattern = server, pattern
        with redis.Redis.from_url(server.url) as client:
            self._kept = client.eval(_KEEP, 0, pattern)
        assert self._kept, f"there is no {pattern}"

    def lose(self) -> None:
        """Lose later writes, and disconnect everybody, as a demoted master does."""
        with redis.Redis.from_url(self._server.url) as client:
            client.eval(_LOSE, 0, self._pattern, *self._kept)
            client.execute_command("CLIENT", "KILL", "TYPE", "normal", "SKIPME", "yes")


def of_record(server: RedisServer, node: str) -> Past:
    """Take the record of a node."""
    return Past(server, f"sq:{{{node}}}:*")


def of_partitions(server: RedisServer, node: str) -> Past:
    """Take all partitions of a node, without its record."""
    return Past(server, f"sq:{{{node}@*")
