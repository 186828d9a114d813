"""Lists frontends for administrators and disconnects them. Must not know how a frontend ends, nor which deliveries it leaves."""

import json
import os
import re
import socket
from collections.abc import Callable
from dataclasses import replace
from importlib.metadata import version
from typing import Final

from broker import keys
from broker.model.commands import Disconnect, Frontends
from broker.model.names import bare_jid
from broker.model.problems import Problem
from broker.model.results import Disconnected, FrontendList, FrontendStatus, Refused, Result
from broker.redis_core.records.validation import Rules
from broker.redis_core.redis_client.client import Server, Value
from broker.store_format import FORMAT

MAX_LISTED: Final = 1_000
DOOR_BEAT_MS: Final = 1_000
"""Interval between heartbeats of a door; a door is dead after three missed ones."""

DOOR_SHOWN_MS: Final = 3_600_000
"""How long a dead door is listed: nobody takes over from a door, so nobody removes it."""

_REMOVE_BATCH: Final = 1_000

DISCONNECT_KEPT_MS: Final = 86_400_000
"""How long a disconnect request is kept: the watchdog has killed a frontend that hangs for longer."""

_FORBIDDEN: Final = Refused(Problem.FORBIDDEN, "only administrators may see frontends, or disconnect them")
_UNKNOWN: Final = Refused(Problem.ITEM_NOT_FOUND, "no frontend has such a name")
_SENDS_NOTHING: Final = Refused(
    Problem.UNSUPPORTED, "the frontend sends nothing that others could take over: end its process"
)
_NAME: Final = re.compile(r"[0-9a-f]{8}", re.ASCII)


class Instances:
    """Lists and disconnects frontends."""

    def __init__(self, server: Server, rules: Rules) -> None:
        """Read the list that heartbeats keep."""
        self._server = server
        self._rules = rules
        self._names = [keys.of_service(name) for name in server.operations["list_frontends"].keys]

    async def list(self, command: Frontends) -> Result:
        """List frontends and doors."""
        if not self._rules.roles.lets(command):
            return _FORBIDDEN
        answer = await self._server.run(self._server.write_call("list_frontends", self._names, {"now": ""}))
        heard = [FrontendStatus(each.name.decode(), each.ago_ms, each.by.decode()) for each in answer.frontends]
        return FrontendList(await self._add_descriptions((*heard, *await self._doors())))

    async def _add_descriptions(self, listed: tuple[FrontendStatus, ...]) -> tuple[FrontendStatus, ...]:
        """Add what each frontend said of itself."""
        if not listed:
            return ()
        names = [each.name for each in listed]
        (seconds, _), said = await self._server.commands(
            [("TIME",), ("HMGET", keys.of_service("frontend_details"), *names)]
        )
        return tuple(_add_description(each, text, int(seconds) * 1000) for each, text in zip(listed, said, strict=True))

    async def _doors(self) -> tuple[FrontendStatus, ...]:
        (seconds, micros), found = await self._server.commands(
            [("TIME",), ("ZRANGE", keys.of_service("http_amqp_frontends"), 0, MAX_LISTED - 1, "WITHSCORES")]
        )
        now = int(seconds) * 1000 + int(micros) // 1000
        doors = (_door(member, now - int(at)) for member, at in found)
        return tuple(each for each in doors if each.ago_ms < DOOR_SHOWN_MS)

    async def disconnect(self, command: Disconnect) -> Result:
        """Request the end of a frontend; it ends when its next heartbeat tells it."""
        if not self._rules.roles.lets(command):
            return _FORBIDDEN
        if not _NAME.fullmatch(command.frontend):
            return _UNKNOWN
        if any(each.name == command.frontend for each in await self._doors()):
            return _SENDS_NOTHING
        told: dict[str, Value] = {
            "frontend": command.frontend,
            "by": bare_jid(command.sender),
            "keep_ms": DISCONNECT_KEPT_MS,
            "most": MAX_LISTED,
        }
        call = self._server.write_call("disconnect_frontend", self._names, {"now": "", **told})
        return Disconnected(listed=bool((await self._server.run(call)).count))


class DoorHeartbeat:
    """Registers a frontend that only serves requests, so that administrators see it; nothing else depends on it."""

    def __init__(self, server: Server, name: str, now_ms: Callable[[], float]) -> None:
        """Register `name` by Redis's time; nothing is sent before `beat`."""
        self._server = server
        self._name = name
        self._now_ms = now_ms
        self._told_ms = 0

    async def beat(self) -> None:
        """Renew the registration at most once an interval; the first call removes doors that are no longer listed."""
        now = int(self._now_ms())
        if now < self._told_ms + DOOR_BEAT_MS:
            return
        names = keys.of_service("http_amqp_frontends")
        if not self._told_ms:
            old = ("ZRANGEBYSCORE", names, "-inf", now - DOOR_SHOWN_MS, "LIMIT", 0, _REMOVE_BATCH)
            if forgotten := await self._server.command(*old):
                await self._server.command("ZREM", names, *forgotten)
        await self._server.command("ZADD", names, now, self._name)
        self._told_ms = now

    async def leave(self) -> None:
        """Remove the registration."""
        if self._told_ms:
            await self._server.command("ZREM", keys.of_service("http_amqp_frontends"), self._name)


class FrontendDetails:
    """Tells administrators where a frontend runs, and since when; nothing else depends on it."""

    def __init__(self, server: Server, name: str, door: str, now_ms: Callable[[], float], drains: float) -> None:
        """Know the frontend, Redis's time, and how many seconds it may drain; nothing is sent before `register`."""
        self._server = server
        self._name = name
        self._door = door
        self._now_ms = now_ms
        self._drains = drains
        self._text = ""

    async def register(self) -> None:
        """Write the details; remove those of frontends that are listed no more."""
        self._text = self._text or json.dumps(
            {
                "host": socket.gethostname(),
                "pid": os.getpid(),
                "version": version("stanzaq"),
                "door": self._door,
                "format": FORMAT,
                "drains": self._drains,
                "started": int(self._now_ms()),
            }
        )
        key = keys.of_service("frontend_details")
        _, known, frontends, doors = await self._server.commands(
            [
                ("HSET", key, self._name, self._text),
                ("HKEYS", key),
                ("ZRANGE", keys.of_service("frontends"), 0, -1),
                ("ZRANGE", keys.of_service("http_amqp_frontends"), 0, -1),
            ]
        )
        listed = {*frontends, *(each.rpartition(b" ")[2] for each in doors), self._name.encode()}
        if gone := set(known) - listed:
            await self._server.command("HDEL", key, *gone)

    async def leave(self) -> None:
        """Remove the details."""
        if self._text:
            await self._server.command("HDEL", keys.of_service("frontend_details"), self._name)


def read_format(details: bytes | None) -> tuple[int, float]:
    """Return the format that a frontend keeps, and how many seconds it may drain, by its details; 0 if it does not say."""
    try:
        said = json.loads(details or b"{}")
        return int(said.get("format", 0)), float(said.get("drains", 0))
    except (ValueError, TypeError, AttributeError):
        return 0, 0.0


def _add_description(one: FrontendStatus, text: bytes | None, now_ms: int) -> FrontendStatus:
    if text is None:
        return one
    try:
        said = json.loads(text)
        up_ms = max(0, now_ms - int(said["started"]))
        return replace(one, host=str(said["host"]), pid=int(said["pid"]), version=str(said["version"]), up_ms=up_ms)
    except (ValueError, TypeError, KeyError):
        # Another version may have written them.
        return one


def _door(member: bytes, ago_ms: int) -> FrontendStatus:
    door, _, name = member.decode().partition(" ")
    return FrontendStatus(name, ago_ms, "", door)
