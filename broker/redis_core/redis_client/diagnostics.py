"""Checks a Redis for problems before they hurt: each master is asked, and each finding has its remedy.

Reads only. Of the queue's own data it knows only the format.
"""

import asyncio
import re
import shutil
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from enum import Enum
from typing import Any, Final

from broker import keys, store_format
from broker.model.frozen import frozen
from broker.model.problems import CoreUnavailable
from broker.redis_core.info import read_info
from broker.redis_core.redis_client.client import server_of
from broker.redis_core.redis_client.cluster import Cluster
from broker.redis_core.redis_client.node import SINGLE, RedisNode
from broker.redis_core.redis_client.packages import OtherCode, is_forbidden, library_code
from broker.scripts.location import lua_directory
from broker.scripts.packaging import family, library

OLDEST: Final = (7, 0)
"""Scripts begin with `#!lua`, which Redis supports since this version."""

_PINGS: Final = 50
_SLOW_MS: Final = 10.0
_FULL: Final = 0.8
_CLOCKS_APART_MS: Final = 1_000
_DISK: Final = 0.1
"""The share of a disk that should be free, if that is more than the data need twice."""

_WRITES: Final = {
    "aof_last_write_status": "the last write of the append-only file",
    "aof_last_bgrewrite_status": "the last rewrite of it",
    "rdb_last_bgsave_status": "the last snapshot",
}
"""Fields of INFO that say whether Redis can write, and what each is about."""
_KEEPS: Final = "noeviction"


class Level(Enum):
    """How bad it is: a `PROBLEM` breaks a promise of the queue, a `WARNING` may do so one day."""

    FINE = "fine"
    WARNING = "warning"
    PROBLEM = "problem"


@frozen
class Finding:
    """One check of one process and its result; `remedy` is empty when there is nothing to do."""

    level: Level
    where: str
    what: str
    found: str
    remedy: str = ""


async def examine(url: str, seconds: float) -> list[Finding]:
    """Check every master, each answer due within `seconds`; an unreachable one is a finding like others."""
    if url.startswith("embedded:"):
        remedy = "look while a frontend runs, by the socket in its directory: unix://DIRECTORY/redis.sock"
        return [Finding(Level.WARNING, SINGLE, "connection", "it is inside a frontend", remedy)]
    try:
        async with _masters(url, seconds) as masters:
            return [
                finding for each in await asyncio.gather(*_examine_all(masters)) for finding in each
            ] + await _clocks(masters)
    except CoreUnavailable as error:
        return [_describe_unreached(SINGLE, error)]


def evicting(reports: Mapping[str, bytes]) -> list[Finding]:
    """Return the masters that evict keys when memory is short, from their INFO; a master without the field is skipped."""
    reported = {where: read_info(report) for where, report in reports.items()}
    found = [_eviction(where, info) for where, info in reported.items() if "maxmemory_policy" in info]
    return [finding for finding in found if finding.level is Level.PROBLEM]


@asynccontextmanager
async def _masters(url: str, seconds: float) -> AsyncIterator[Mapping[str, RedisNode]]:
    found = server_of(url, seconds)
    if isinstance(found, RedisNode):
        masters = {SINGLE: found}
    else:
        try:
            owners = sorted({address for _first, _last, address in await found.find()})
        finally:
            # A cluster's masters are known now; sentinels are asked again with each new connection.
            if isinstance(found, Cluster):
                await found.close()
        masters = {str(address): found.client_of(address) for address in owners}
    try:
        yield masters
    finally:
        for master in masters.values():
            await master.close()
        if not isinstance(found, RedisNode | Cluster):
            await found.close()


def _examine_all(masters: Mapping[str, RedisNode]) -> list[Any]:
    return [_examine(where, master) for where, master in masters.items()]


async def _examine(where: str, master: RedisNode) -> list[Finding]:
    try:
        info = await _info(master)
        policy = await _config(master, "CONFIG GET", "appendfsync")
        lag = await _config(master, "CONFIG GET", "min-replicas-max-lag")
        quick = await _latency(where, master)
    except CoreUnavailable as error:
        return [_describe_unreached(where, error)]
    if not info:
        remedy = "allow the user the commands INFO and CONFIG GET, or look by another user"
        return [Finding(Level.WARNING, where, "INFO", "is not allowed to this user", remedy), quick]
    return [
        _version(where, info),
        _eviction(where, info),
        _memory(where, info),
        _persistence(where, info, policy),
        *_disk(where, info),
        _replicas(where, info, await _config(master, "CONFIG GET", "min-replicas-to-write"), lag),
        await _functions(where, master),
        *await _format(where, master),
        quick,
    ]


def _describe_unreached(where: str, error: CoreUnavailable) -> Finding:
    remedy = "check REDIS_URL, that Redis runs and that this machine may connect to it"
    return Finding(Level.PROBLEM, where, "connection", str(error), remedy)


async def _format(where: str, master: RedisNode) -> list[Finding]:
    """Check the format of the store; one master of a cluster has it, and a user may not be allowed to read it."""
    nodes, noted = await master.send(store_format.question())
    if isinstance(nodes, Exception) or isinstance(noted, Exception):
        return []
    found = store_format.found(nodes, noted)
    if found.is_usable:
        return [Finding(Level.FINE, where, "format", str(found.format))]
    _fault, remedy = found.refusal()
    told = f"{found.format}, and this version keeps {store_format.FORMAT}"
    return [Finding(Level.PROBLEM, where, "format", told, remedy)]


async def _info(master: RedisNode) -> dict[str, str]:
    """Return the fields of INFO; empty when the user may not ask."""
    (reply,) = await master.send([("INFO",)])
    return read_info(reply) if isinstance(reply, bytes) else {}


async def _config(master: RedisNode, *command: str) -> str:
    (reply,) = await master.send([command])
    # A map with RESP3, which redis-py 8 asks for.
    pair = [word for both in reply.items() for word in both] if isinstance(reply, dict) else reply
    return bytes(pair[1]).decode() if isinstance(pair, list) and len(pair) == 2 else ""


def _version(where: str, info: Mapping[str, str]) -> Finding:
    # Valkey reports the version of Redis that it is compatible with beside its own.
    name = "Valkey " + info["valkey_version"] if "valkey_version" in info else "Redis " + info.get("redis_version", "?")
    read = re.match(r"(\d+)\.(\d+)", info.get("redis_version", ""))
    if read is None or (int(read[1]), int(read[2])) >= OLDEST:
        return Finding(Level.FINE, where, "version", name)
    return Finding(Level.PROBLEM, where, "version", name, "install Redis 7.0 or newer, or Valkey")


def _eviction(where: str, info: Mapping[str, str]) -> Finding:
    policy = info.get("maxmemory_policy", "?")
    if policy == _KEEPS:
        return Finding(Level.FINE, where, "maxmemory-policy", policy)
    remedy = (
        f"CONFIG SET maxmemory-policy {_KEEPS}: a full Redis then refuses what is new instead of losing what it has"
    )
    return Finding(Level.PROBLEM, where, "maxmemory-policy", policy, remedy)


def _memory(where: str, info: Mapping[str, str]) -> Finding:
    used, most = int(info.get("used_memory", 0)), int(info.get("maxmemory", 0))
    if not most:
        remedy = "CONFIG SET maxmemory: without a limit the machine's memory is the limit, and the system kills Redis"
        return Finding(Level.WARNING, where, "memory", f"{_mib(used)}, no limit", remedy)
    found = f"{_mib(used)} of {_mib(most)}"
    if used < _FULL * most:
        return Finding(Level.FINE, where, "memory", found)
    remedy = "let workers catch up, raise maxmemory, or lower retention; when it is full, publishers are told to wait"
    return Finding(Level.WARNING, where, "memory", found, remedy)


def _mib(count: int) -> str:
    return f"{count / 2**20:,.0f} MiB"


def _persistence(where: str, info: Mapping[str, str], policy: str) -> Finding:
    failed = [what for field, what in _WRITES.items() if info.get(field, "ok") != "ok"]
    if failed:
        remedy = (
            "make room on the disk and look at the log of Redis: until it can write, it refuses changes (MISCONF), or ends,"
            " with appendfsync always"
        )
        return Finding(Level.PROBLEM, where, "persistence", f"failed: {', '.join(failed)}", remedy)
    if info.get("aof_enabled") != "1":
        remedy = "CONFIG SET appendonly yes: what was answered is lost when Redis restarts"
        return Finding(Level.WARNING, where, "persistence", "no append-only file", remedy)
    if policy == "no":
        remedy = "CONFIG SET appendfsync everysec, or always: the system decides when anything is on disk"
        return Finding(Level.WARNING, where, "persistence", "append-only file, never flushed", remedy)
    return Finding(Level.FINE, where, "persistence", f"append-only file, appendfsync {policy or 'not reported'}")


def _disk(where: str, info: Mapping[str, str]) -> list[Finding]:
    """Check the room on the disk of a Redis on this machine; of another one nothing is known here."""
    try:
        # Redis works in the directory of its files.
        usage = shutil.disk_usage(f"/proc/{int(info['process_id'])}/cwd")
    except (KeyError, ValueError, OSError):
        return []
    needed = max(2 * int(info.get("used_memory", 0)), int(_DISK * usage.total))
    found = f"{_mib(usage.free)} of {_mib(usage.total)} are free"
    if usage.free >= needed:
        return [Finding(Level.FINE, where, "disk", found)]
    remedy = (
        "make room: a rewrite of the append-only file needs as much again, and a Redis that cannot write serves nobody"
    )
    return [Finding(Level.WARNING, where, "disk", found, remedy)]


def _replicas(where: str, info: Mapping[str, str], needed: str, lag: str) -> Finding:
    found = f"{info.get('role', '?')}, {info.get('connected_slaves', '0')} replicas"
    if info.get("role") != "master":
        remedy = "name the master: only it takes writes (redis+sentinel:// finds it)"
        return Finding(Level.PROBLEM, where, "role", found, remedy)
    if needed.isdigit() and int(needed) and lag.isdigit() and int(lag) > 1:
        remedy = "CONFIG SET min-replicas-max-lag 1: for so many seconds a master that is cut off accepts writes, which are lost"
        return Finding(Level.WARNING, where, "role", f"{found}, min-replicas-max-lag {lag}", remedy)
    return Finding(Level.FINE, where, "role", found)


async def _functions(where: str, master: RedisNode) -> Finding:
    """Check whether functions may be called, and loaded if this version's library is missing, which has this version's code."""
    whole, none = library(lua_directory(), keys.prefix()), family(keys.prefix())
    # A function that does not exist is called, and an empty library is refused where another would be loaded.
    listed, read, called, loaded = await master.send(
        [
            ("FUNCTION LIST", "LIBRARYNAME", whole.name, "WITHCODE"),
            ("FCALL_RO", none, "0"),
            ("FCALL", none, "0"),
            ("FUNCTION LOAD", f"#!lua name={none}\n"),
        ]
    )
    # Who may load functions is a frontend's user, or may do everything; the others only read.
    writes = not is_forbidden(loaded)
    there = isinstance(listed, list) and listed
    needed = [listed, read, *([called] if writes else []), *([] if there else [loaded])]
    refused = [str(reply) for reply in needed if is_forbidden(reply)]
    if there and library_code(listed) != whole.text:
        other = OtherCode(whole.name)
        return Finding(Level.PROBLEM, where, "functions", other.fault, other.remedy)
    if not refused:
        return Finding(
            Level.FINE, where, "functions", "are allowed, and have this version's code" if there else "are allowed"
        )
    remedy = (
        "allow the user of frontends +fcall, +fcall_ro, +function|list and +function|load: calls as scripts cost Redis "
        "twice as much (REDIS_PACKAGING)"
    )
    return Finding(Level.WARNING, where, "functions", f"are not available: {refused[0][:200]}", remedy)


async def _latency(where: str, master: RedisNode) -> Finding:
    taken = []
    for _ in range(_PINGS):
        began = time.perf_counter()
        await master.send([("PING",)])
        taken.append((time.perf_counter() - began) * 1000)
    median, worst = sorted(taken)[_PINGS // 2], max(taken)
    found = f"{median:.1f} ms, at worst {worst:.1f} ms"
    if median < _SLOW_MS:
        return Finding(Level.FINE, where, "answers in", found)
    remedy = "put frontends near Redis; look for slow commands of others (SLOWLOG GET), swapping and large forks"
    return Finding(Level.WARNING, where, "answers in", found, remedy)


async def _clocks(masters: Mapping[str, RedisNode]) -> list[Finding]:
    """Compare the clocks of the masters with each other, and with this machine's: locks and delays depend on them."""
    times: Sequence[Any] = await asyncio.gather(*(master.send([("TIME",)]) for master in masters.values()))
    reported = [int(reply[0]) * 1000 + int(reply[1]) // 1000 for (reply,) in times if isinstance(reply, list)]
    reported.append(int(time.time() * 1000))
    apart = max(reported) - min(reported)
    if apart < _CLOCKS_APART_MS:
        return [Finding(Level.FINE, "all", "clocks", f"within {_CLOCKS_APART_MS} ms, as this machine's")]
    remedy = (
        "run NTP on all of them, and here: times that publishers and schedules name are compared with Redis's clock"
    )
    return [Finding(Level.WARNING, "all", "clocks", f"{apart} ms apart, this machine's among them", remedy)]
