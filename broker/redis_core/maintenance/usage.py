"""Writes the processor time of this process and of the Redis masters once a minute. Must not know who reads it."""

import time
from collections.abc import Iterable

from broker import keys
from broker.model.problems import Forbidden
from broker.redis_core.info import read_info
from broker.redis_core.metrics import Tally
from broker.redis_core.redis_client.client import Server
from broker.scaling.usage import MINUTE_MS, MINUTES, REDIS, Usage, read_all

_PAGE = 1_000


class UsageSamples:
    """The samples of one frontend."""

    def __init__(self, server: Server, kind: str, name: str, tally: Tally) -> None:
        """Sample the process as a door of this name; nothing is written before `note`."""
        self._server = server
        self._kind = kind
        self._name = name
        self._tally = tally
        self._noted_minute = 0

    async def note(self, now_ms: int) -> None:
        """Write the sample of this minute unless it is written; the masters' unless another frontend has done it."""
        minute = now_ms // MINUTE_MS
        if minute == self._noted_minute:
            return
        if not self._noted_minute:
            await self._forget_old(now_ms)
        own = Usage(self._kind, self._name, now_ms, int(time.process_time() * 1000), self._tally.counts["acknowledged"])
        await self._write([own, *await self._masters(now_ms)])
        self._noted_minute = minute

    async def _write(self, samples: Iterable[Usage]) -> None:
        words = [word for each in samples for word in (each.field, each.value)]
        await self._server.command("HSET", keys.of_service("process_usage"), *words)

    async def _masters(self, now_ms: int) -> list[Usage]:
        """Return the masters' samples; with the last of them Redis knows that all of this minute are there."""
        mark = Usage(REDIS, "", now_ms, 0)
        noted = await self._server.command("HGET", keys.of_service("process_usage"), mark.field)
        if noted and int(noted.split()[0]) // MINUTE_MS == now_ms // MINUTE_MS:
            return []
        try:
            reports = await self._server.everywhere("INFO", "cpu")
        except Forbidden:
            # The user may not ask, which is logged where Redis's memory is asked for.
            return []
        return [*(Usage(REDIS, name, now_ms, _cpu_ms(report)) for name, report in reports.items()), mark]

    async def _forget_old(self, now_ms: int) -> None:
        """Remove the samples of processes that ended more than an hour ago."""
        cursor = b"0"
        while True:
            cursor, flat = await self._server.command("HSCAN", keys.of_service("process_usage"), cursor, "COUNT", _PAGE)
            samples = read_all(zip(flat[::2], flat[1::2], strict=True))
            old = [each.field for each in samples if each.at_ms < now_ms - MINUTES * MINUTE_MS]
            if old:
                await self._server.command("HDEL", keys.of_service("process_usage"), *old)
            if cursor == b"0":
                return


def _cpu_ms(report: bytes) -> int:
    """Return the processor time in INFO cpu."""
    said = read_info(report)
    return int(1000 * sum(float(said.get(name, 0)) for name in ("used_cpu_user", "used_cpu_sys")))
