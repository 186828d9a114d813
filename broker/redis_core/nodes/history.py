"""Counts of nodes over the last hour: one sample for each minute in which something happened, so idle nodes cost nothing.

Each frontend that counts a node writes the sample of the minute; the last one stays. Must not know who counts, or when.
"""

import contextlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import astuple
from typing import Final

from broker import keys
from broker.model.commands import ShowHistory, Stats
from broker.model.problems import CoreUnavailable
from broker.model.results import Counted, History, Refused, Result, Sample
from broker.redis_core.commands.internal import Ask
from broker.redis_core.records.store import NodeStore
from broker.redis_core.redis_client.client import Server
from broker.redis_core.registry.admission import admit

MINUTE_MS: Final = 60_000
MINUTES: Final = 60
_HOUR_MS: Final = MINUTES * MINUTE_MS


class Histories:
    """Writes and returns samples."""

    def __init__(self, server: Server, store: NodeStore, ask: Ask) -> None:
        """Count the present items by `ask`."""
        self._server = server
        self._store = store
        self._ask = ask

    async def note(self, now_ms: int, counts: Mapping[str, Counted]) -> None:
        """Write what nodes hold now: the sample of this minute replaces the one of an hour ago."""
        field = now_ms // MINUTE_MS % MINUTES
        lines = [
            ("HSET", keys.of_node("hour", node), field, " ".join(map(str, astuple(_sample(now_ms, counted)))))
            for node, counted in counts.items()
        ]
        # When Redis has no memory left, the sample of this minute is missing.
        with contextlib.suppress(CoreUnavailable):
            await self._server.commands(lines)

    async def show(self, command: ShowHistory) -> Result:
        """Return the samples of the last hour, the counts when it began, and the counts of now."""
        record = await admit(self._store, command, command.node)
        if isinstance(record, Refused):
            return record
        counted = await self._ask(Stats(command.node, command.sender))
        if isinstance(counted, Refused):
            return counted
        assert isinstance(counted, Counted)
        now_ms = await self._store.now_ms()
        kept = await self._server.command("HGETALL", keys.of_node("hour", command.node))
        # A sample that is older than the node belongs to a deleted node of the same name.
        samples = sorted(
            (each for each in _readable(kept.values()) if each.at_ms > record.created_ms), key=lambda each: each.at_ms
        )
        began_ms = now_ms - _HOUR_MS
        before = [each for each in samples if each.at_ms <= began_ms][-1:]
        if record.created_ms > began_ms:
            before = [Sample(record.created_ms, 0, 0, 0, 0, 0, 0)]
        within = [each for each in samples if each.at_ms > began_ms]
        return History((*before, *within, _sample(now_ms, counted)))


def _sample(now_ms: int, counted: Counted) -> Sample:
    return Sample(
        now_ms,
        counted.waiting,
        counted.in_flight,
        counted.oldest_ms,
        counted.published,
        counted.finished,
        counted.attempts,
    )


def _readable(texts: Iterable[bytes]) -> Iterator[Sample]:
    """Read samples; skips those of another form, which another version may have written."""
    for text in texts:
        with contextlib.suppress(ValueError, TypeError):
            yield Sample(*map(int, text.split()))
