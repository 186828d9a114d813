"""`stanzaq doctor`, as an operator calls it, and the frontend that refuses to serve: on good servers and bad ones."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import redis

from broker.redis_core.redis_client import diagnostics
from broker.redis_core.redis_client.diagnostics import Finding, Level, examine
from broker.scripts.location import lua_directory
from broker.scripts.packaging import library
from broker.store_format import FORMAT
from frontends.tools.servers.cluster import RedisCluster
from frontends.tools.servers.process import free_port
from frontends.tools.servers.redis import RedisServer, redis_binary, valkey_binary
from frontends.tools.servers.sentinels import RedisSentinels
from tests.doors.frontend import ALICE, HASH
from tests.operations import as_user, make_user
from tests.waiting import PATIENCE_SECONDS

GOOD = {"appendonly": "yes", "maxmemory": "256mb"}


def cli(*words: str, **settings: str) -> subprocess.CompletedProcess[str]:
    """Run a command with these settings and no others."""
    own = {name: value for name, value in os.environ.items() if not name.startswith("STANZAQ_")}
    given = {**own, "COLUMNS": "200", **{f"STANZAQ_{name}": value for name, value in settings.items()}}
    command = [sys.executable, "-m", "frontends.cli", *words]
    return subprocess.run(command, env=given, capture_output=True, text=True, check=False, timeout=60)


def command(server: RedisServer, *words: str) -> None:
    """Send a server a command."""
    with redis.Redis.from_url(server.url) as client:
        client.execute_command(*words)


def said(done: subprocess.CompletedProcess[str]) -> str:
    """Return a command's complaint, in one line."""
    return " ".join(done.stderr.replace("│", " ").split())


def kept(server: RedisServer) -> list[Any]:
    """Return Redis's keys of the queue."""
    with redis.Redis.from_url(server.url, decode_responses=True) as client:
        return sorted(client.scan_iter("sq:*"))


def examined(url: str, code: int) -> dict[str, Any]:
    """Examine a Redis; return the findings by name, the worst of each."""
    done = cli("doctor", "--json", REDIS_URL=url)
    assert done.returncode == code, done
    ranked = sorted(
        json.loads(done.stdout.splitlines()[-1])["findings"], key=lambda one: [*Level].index(Level(one["level"]))
    )
    return {one["what"]: one for one in ranked}


def test_as_it_should_be() -> None:
    """All is fine: exit code 0, and every finding without a remedy."""
    with RedisServer(options=GOOD) as server:
        found = examined(server.url, 0)
        assert {
            "version",
            "maxmemory-policy",
            "memory",
            "persistence",
            "role",
            "functions",
            "format",
            "answers in",
            "disk",
            "clocks",
            "owners",
        } == found.keys()
        # The disk of this machine may be full.
        assert "are free" in found.pop("disk")["found"]
        del found["answers in"]
        assert {one["level"] for one in found.values()} == {"fine"} and not any(one["remedy"] for one in found.values())
        assert found["persistence"]["found"] == "append-only file, appendfsync everysec"
        command(server, "CONFIG", "SET", "appendfsync", "no")
        never = examined(server.url, 0)["persistence"]
        assert never["level"] == "warning" and "appendfsync everysec" in never["remedy"]
        table = cli("doctor", REDIS_URL=server.url)
        assert table.returncode == 0 and "maxmemory-policy" in table.stdout


_ALL_OF_THEM = """
import json, os, sys
import frontends.cli
from stanzaq.command.launch import main
for words in json.loads(sys.argv[1]):
    child = os.fork()
    if not child:
        sys.argv[1:] = words
        main()
        sys.exit()
    print("ends with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), file=sys.stderr)
"""
"""Runs commands, each in a process; what they import is imported once."""


def test_output_that_cannot_be_written() -> None:
    """On a full disk a command ends with one line that says so, whatever it prints."""
    commands = (["doctor"], ["doctor", "--json"], ["node", "create", "a", "--json"], ["--version"])
    with RedisServer(options=GOOD) as server, Path("/dev/full").open("w") as full:
        settings = {"STANZAQ_REDIS_URL": server.url, "STANZAQ_ADMINS": ALICE}
        done = subprocess.run(
            [sys.executable, "-c", _ALL_OF_THEM, json.dumps(commands)],
            env=os.environ | settings,
            stdout=full,
            stderr=subprocess.PIPE,
            text=True,
            check=True,
            timeout=100,
        )
    said = ["stanzaq: the output cannot be written: No space left on device", "ends with 1"]
    assert done.stderr.splitlines() == said * len(commands)


def test_evicts() -> None:
    """A Redis that evicts is a problem, and so is one that is nearly full or not persistent; each has a remedy."""
    with RedisServer(options={"maxmemory-policy": "allkeys-lru", "maxmemory": "3mb"}) as server:
        found = examined(server.url, 1)
        levels = {name: found[name]["level"] for name in ("maxmemory-policy", "persistence")}
        assert levels == {"maxmemory-policy": "problem", "persistence": "warning"}
        assert (
            "noeviction" in found["maxmemory-policy"]["remedy"] and "appendonly yes" in found["persistence"]["remedy"]
        )


def test_a_disk_that_cannot_be_written(tmp_path: Path) -> None:
    """A snapshot that failed is a problem, whether there is an append-only file or not."""
    gone = tmp_path / "gone"
    gone.mkdir()
    options = {**GOOD, "enable-protected-configs": "yes"}
    with RedisServer(options=options) as server, redis.Redis.from_url(server.url, decode_responses=True) as client:
        client.config_set("dir", str(gone))
        gone.rmdir()
        client.bgsave()
        ends = time.monotonic() + PATIENCE_SECONDS
        while client.info("persistence")["rdb_last_bgsave_status"] == "ok":
            assert time.monotonic() < ends
            time.sleep(0.02)
        found = examined(server.url, 1)["persistence"]
        assert (found["level"], found["found"]) == ("problem", "failed: the last snapshot") and "MISCONF" in found[
            "remedy"
        ]


def test_a_master_that_is_cut_off() -> None:
    """Where writes need a replica, one that was heard ten seconds ago is none."""
    with RedisServer(options={**GOOD, "min-replicas-to-write": "1"}, port=0) as master:
        late = examined(master.url, 0)["role"]
        assert late["level"] == "warning" and "min-replicas-max-lag 1" in late["remedy"]
        command(master, "CONFIG", "SET", "min-replicas-max-lag", "1")
        assert examined(master.url, 0)["role"]["level"] == "fine"


async def test_a_wrong_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The clock of a single master is compared with this machine's."""
    clock = time.time
    monkeypatch.setattr(time, "time", lambda: clock() - 5)
    with RedisServer(options=GOOD) as server:
        (found,) = [each for each in await diagnostics.examine(server.url, 5.0) if each.what == "clocks"]
        assert found.level is Level.WARNING and re.match("[45]... ms apart", found.found) and "NTP" in found.remedy


def test_replica_and_nobody() -> None:
    """A replica takes no writes; an address where nobody listens is one finding and no traceback."""
    with RedisServer(options=GOOD, port=0) as master, RedisServer(options=GOOD) as server:
        command(server, "REPLICAOF", "127.0.0.1", str(master.port))
        assert examined(server.url, 1)["role"]["level"] == "problem"
    port = free_port()
    found = examined(f"redis://127.0.0.1:{port}/0", 1)
    assert found.keys() == {"connection"} and found["connection"]["remedy"]
    assert found["connection"]["found"] == f"Redis at 127.0.0.1:{port} cannot be reached: connection refused"


def test_not_allowed() -> None:
    """A user that may not ask INFO is told so."""
    with RedisServer(options=GOOD, port=0) as server:
        command(server, "ACL", "SETUSER", "blind", "on", ">secret", "~*", "+ping")
        found = examined(f"redis://blind:secret@127.0.0.1:{server.port}/0", 0)
        assert found["INFO"]["level"] == "warning"


@pytest.mark.parametrize("binary", [valkey_binary, redis_binary])
async def test_functions_are_forbidden(tmp_path: Path, binary: Callable[[], Path]) -> None:
    """A user whose frontends would use scripts is told which right is missing; what is loaded need not be loaded again."""
    whole = library(lua_directory())
    with RedisServer(tmp_path, binary=binary()) as server, redis.Redis.from_url(server.url) as client:
        for missing in ("", "fcall", "fcall_ro", "function|list", "function|load"):
            make_user(server.url, "stanzaq", "+ping", "+config|get", *([f"-{missing}"] if missing else []))
            found = await functions(server)
            assert (found.level is Level.FINE) is (not missing)
            assert not missing or (f"'{missing}'" in found.found and f"+{missing}" in found.remedy)
        assert client.function_list() == []
        client.function_load(whole.text)
        assert (await functions(server)).level is Level.FINE


async def functions(server: RedisServer) -> Finding:
    """Return what is found of functions, as the user of frontends."""
    (found,) = (one for one in await examine(as_user(server.url, "stanzaq"), 2.0) if one.what == "functions")
    return found


def test_cluster(redis_cluster: RedisCluster) -> None:
    """Every master of a cluster is examined, and their clocks are compared."""
    done = cli("doctor", "--json", REDIS_URL=redis_cluster.url)
    found = json.loads(done.stdout.splitlines()[-1])["findings"]
    assert len({one["where"] for one in found if one["what"] == "version"}) == 3
    assert [one["level"] for one in found if one["what"] == "clocks"] == ["fine"]


def test_sentinels(redis_sentinels: RedisSentinels) -> None:
    """The master that sentinels name is examined."""
    done = cli("doctor", "--json", REDIS_URL=redis_sentinels.url)
    assert [
        one["found"].split(",")[0]
        for one in json.loads(done.stdout.splitlines()[-1])["findings"]
        if one["what"] == "role"
    ] == ["master"]


@pytest.mark.parametrize(
    ("told", "level"),
    [
        ({"redis_version": "6.2.14"}, Level.PROBLEM),
        ({"redis_version": "7.0.0"}, Level.FINE),
        ({"redis_version": "7.2.4", "valkey_version": "9.1.0"}, Level.FINE),
        ({}, Level.FINE),
    ],
)
def test_versions(told: dict[str, str], level: Level) -> None:
    """Redis before 7.0 does not know `#!lua`; a server without a version is not judged."""
    assert diagnostics._version("Redis", told).level is level


def test_no_frontend_on_what_evicts() -> None:
    """A frontend refuses with a sentence and exit code 2, unless it is told to serve."""
    with RedisServer(options={"maxmemory-policy": "volatile-lru"}) as server:
        settings = {"REDIS_URL": server.url, "XMPP_DOMAIN": "q.localhost", "XMPP_SECRET": "s"}
        settings["XMPP_SERVER"] = f"127.0.0.1:{free_port()}"
        done = cli("serve", "xmpp", **settings)
        assert done.returncode == 2
        assert "maxmemory-policy is volatile-lru" in done.stderr and "ALLOW_EVICTION" in done.stderr
        with pytest.raises(subprocess.TimeoutExpired):
            subprocess.run(
                [sys.executable, "-m", "frontends.cli", "serve", "xmpp"],
                env={
                    **os.environ,
                    **{f"STANZAQ_{name}": text for name, text in settings.items()},
                    "STANZAQ_ALLOW_EVICTION": "true",
                },
                capture_output=True,
                check=False,
                timeout=4,
            )


_SECRETS = f"{ALICE}:{HASH}"


def _needed(door: str) -> dict[str, str]:
    """Return the settings that a door needs to start now: its port is reserved for a minute."""
    match door:
        case "xmpp":
            return {"XMPP_DOMAIN": "q.localhost", "XMPP_SECRET": "s", "XMPP_SERVER": "127.0.0.1:1"}
        case "rest":
            return {"HTTP_BIND": f"127.0.0.1:{free_port()}", "HTTP_PASSWORDS": _SECRETS}
        case _:
            return {"AMQP_BIND": f"127.0.0.1:{free_port()}", "AMQP_PASSWORDS": _SECRETS}


def test_another_format() -> None:
    """Each door and command refuses a store of an older or a newer format, with both versions and the remedy."""
    with RedisServer(options=GOOD) as server:

        def refused(found: int, remedy: str, code: int, *words: str, **settings: str) -> None:
            """Check that a command changes nothing, and says why."""
            before = kept(server)
            done = cli(*words, REDIS_URL=server.url, **settings)
            told = f"Redis holds a store of format {found}, and this version of stanzaq keeps format {FORMAT}: "
            assert done.returncode == code and told in said(done) and remedy in said(done), done
            assert kept(server) == before

        command(server, "ZADD", "sq:{service}:all_nodes", "1", "jobs")
        remedy = "delete its keys, sq:*, or use another Redis"
        for door in ("xmpp", "rest", "amqp"):
            refused(0, remedy, 2, "serve", door, **_needed(door))
        refused(0, remedy, 1, "node", "list")
        finding = examined(server.url, 1)["format"]
        assert finding["found"] == f"0, and this version keeps {FORMAT}" and remedy in finding["remedy"]
        command(server, "HSET", "sq:{service}:store", "format", str(FORMAT + 1))
        refused(FORMAT + 1, f"that keeps format {FORMAT + 1}", 1, "node", "list")
