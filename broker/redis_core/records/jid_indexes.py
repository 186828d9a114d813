"""Indexes from a bare JID to its nodes. They may have outdated entries and are checked against the nodes' own records.

An entry is noted before the change that it stands for, and again when it is done. A change that happens elsewhere may leave an
outdated entry: before a JID is refused for lack of room, such entries are removed. Must not know what any entry means.
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from broker import keys
from broker.model.frozen import frozen
from broker.model.names import Jid
from broker.redis_core.redis_client.client import Line, Server, Value

MOST_PER_JID = 1_000
"""Entries of one index of a JID by default."""

COMING_MS: Final = 60_000
"""How long a noted change may take: longer than any call, or an operation that Redis runs late."""

CHECKED_MS: Final = 5_000
"""How long a checked entry is not checked again: repeated requests must not cost a check each time."""

IDLE_PRESENCE_SECONDS: Final = 3_600
"""How long the presence of a JID without subscriptions is kept."""

_CHECK_BATCH: Final = 200
_MAX_CHECKED: Final = 1_000
_BATCH: Final = 1_000

Entry = tuple[Jid, str]
"""A bare JID and one entry of its index."""

TrueEntries = Callable[[Sequence[Entry]], Awaitable[set[Entry]]]
"""Returns the entries that are true by the records of nodes and partitions."""


@frozen
class Noted:
    """When an entry was noted (Redis's ms), whether it `existed` before, and how many `others` the index had."""

    at_ms: int
    existed: bool
    others: int


class Index:
    """One of the indexes, for all JIDs."""

    def __init__(self, server: Server, name: str, *, evicts: bool = False) -> None:
        """Keep entries of JIDs; beyond their room, `evicts` drops the oldest one, else new ones are refused."""
        self._server = server
        self._name = name
        self._evicts = evicts

    async def note(
        self, entries: Sequence[Entry], true_entries: TrueEntries, most: int | None = None, client: str = ""
    ) -> list[Noted | None]:
        """Note entries before their change; returns None for an entry without room, when all others are true.

        A JID has room for `most` entries, if given. `client` is the program of a new subscription.
        """
        noted = await self._note(entries, "coming", most, client)
        for place, entry in enumerate(entries):
            if noted[place] is None and (await self._tidy(entry[0], true_entries) or self._evicts):
                noted[place] = (await self._note([entry], "evict" if self._evicts else "coming", most, client))[0]
        return noted

    async def note_done(self, entries: Sequence[Entry], client: str | None = None) -> None:
        """Note that a change is done, even if its entry was removed meanwhile; a subscription by `client`, empty for no name."""
        await self._note(entries, "settled" if client is None else "subscribed", client=client or "")

    async def remove(self, entries: Iterable[Entry], upto_ms: int | None = None) -> None:
        """Remove outdated entries: those noted up to a time, or without one all that are not just being made."""
        upto = "" if upto_ms is None else upto_ms
        await self._remove([(jid, member, upto) for jid, member in entries])

    async def members(self, jid: Jid) -> list[str]:
        """Return all entries of a bare JID; some may be outdated."""
        found = await self._server.command("ZRANGE", keys.of_jid(self._name, jid), 0, -1)
        return [member.decode() for member in found]

    async def check(self, entries: Sequence[Entry], true_entries: TrueEntries) -> set[Entry]:
        """Remove those entries that are outdated; returns those whose change is still under way, which cannot be told yet."""
        if not entries:
            return set()
        asked = [("ZSCORE", keys.of_jid(self._name, jid), member) for jid, member in entries]
        found = zip(entries, await self._server.commands(asked), strict=True)
        scores = {entry: int(float(score)) for entry, score in found if score is not None}
        now_ms = await self._server.now_ms()
        coming = {entry for entry, score in scores.items() if score < COMING_MS - now_ms}
        settled = {entry: abs(score) for entry, score in scores.items() if entry not in coming}
        true = await true_entries(list(settled)) if settled else set()
        await self._remove([(*entry, noted) for entry, noted in settled.items() if entry not in true])
        return coming

    async def _tidy(self, jid: Jid, true_entries: TrueEntries) -> bool:
        """Check entries that were not checked lately, oldest first, until one is removed; returns whether one was.

        Checked entries are stamped, so the next caller without room continues after them.
        """
        now_ms = await self._server.now_ms()
        key = keys.of_jid(self._name, jid)
        oldest = ("ZRANGEBYSCORE", key, COMING_MS - now_ms, now_ms - CHECKED_MS, "WITHSCORES", "LIMIT", 0, _CHECK_BATCH)
        for _ in range(_MAX_CHECKED // _CHECK_BATCH):
            found = {(jid, member.decode()): abs(int(score)) for member, score in await self._server.command(*oldest)}
            if not found:
                return False
            true = await true_entries(list(found))
            over = [(*entry, noted) for entry, noted in found.items() if entry not in true]
            if true:
                stamps = [value for _jid, member in true for value in (now_ms, member)]
                await self._server.command("ZADD", key, "XX", "GT", *stamps)
            if over:
                await self._remove(over)
                return True
        return False

    async def _note(
        self, entries: Sequence[Entry], kind: str, room: int | None = None, client: str = ""
    ) -> list[Noted | None]:
        most = MOST_PER_JID if room is None else room
        fixed: dict[str, Value] = {"now": "", "kind": kind, "most": most, "client": client}
        replies = await self._run(
            [self._call("add_to_index", jid, {**fixed, "member": member}) for jid, member in entries]
        )
        return [
            Noted(int(each.now_ms), bool(each.before), each.others) if each.code == b"ok" else None for each in replies
        ]

    async def _remove(self, removed: Sequence[tuple[Jid, str, Value]]) -> None:
        rows: dict[Jid, list[dict[str, Value]]] = {}
        for jid, member, upto in removed:
            rows.setdefault(jid, []).append({"member": member, "upto": upto})
        await self._run([self._call("remove_from_index", jid, {}, theirs) for jid, theirs in rows.items()])

    async def _run(self, calls: Sequence[Line]) -> list[Any]:
        replies: list[Any] = []
        for first in range(0, len(calls), _BATCH):
            replies += await self._server.run_all(calls[first : first + _BATCH])
        for reply in replies:
            if isinstance(reply, Exception):
                raise reply
        return replies

    def _call(self, name: str, jid: Jid, fixed: Mapping[str, Value], rows: Sequence[Mapping[str, Value]] = ()) -> Line:
        names = [keys.of_jid(key, jid) for key in self._server.operations[name].keys]
        every: dict[str, Value] = {"index": self._name, "idle_seconds": IDLE_PRESENCE_SECONDS}
        return self._server.write_call(name, names, {**every, **fixed}, rows)
