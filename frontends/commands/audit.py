"""`stanzaq audit`: prints who changed what, or was refused. Must not know who writes that."""

import json
import time
from collections.abc import AsyncIterator, Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from broker import codec
from broker.model import audit, offsets, times
from broker.model.commands import Read
from broker.model.problems import Problem
from broker.model.results import Replay
from frontends.commands.runner import ADMINISTRATOR, Unwilling, ask, complain, misuse, run, table, tell
from frontends.terminal import Config

if TYPE_CHECKING:
    from broker.redis_core.core import RedisCore

_COLUMNS = ("at", "who", "from", "command", "node", "outcome", "what")
_PAGE = 200


def audit_list(
    since: Annotated[
        str, typer.Option(help="Begin, e.g. 2026-12-01T09:00:00Z, or 7d for a week ago. Default: everything.")
    ] = "",
    config: Config = None,
    *,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print each entry as one line of JSON, to keep or export.")
    ] = False,
) -> None:
    """Print administrative changes, and refused ones: who, from where, what, before and after.

    Example: stanzaq audit --since 7d --json > audit.jsonl
    """
    start = _read_start(since)
    rows: list[tuple[str, ...]] = []

    async def show(core: "RedisCore") -> None:
        async for entry in _entries(core, start):
            if as_json:
                tell(entry)
            else:
                rows.append(_row(entry))

    try:
        run(config, show)
    except _NoAudit:
        complain(
            "there is no audit: set STANZAQ_AUDIT=true for all frontends and commands, and changes are written from then on"
        )
    if not as_json:
        table(_COLUMNS, rows)


class _NoAudit(Exception):  # noqa: N818  (named after the state of the service)
    """Nothing was ever written."""


async def _entries(core: "RedisCore", start: str) -> AsyncIterator[dict[str, Any]]:
    """Read the entries of the service from a start on; what others may have published there is left out."""
    more = True
    while more:
        try:
            page = await ask(core, Read(audit.NODE, ADMINISTRATOR, 0, start, _PAGE), Replay)
        except Unwilling as fault:
            if fault.refused.problem is Problem.NODE_NOT_FOUND:
                raise _NoAudit from None
            raise
        for event in page.events:
            if event.publisher == audit.SERVICE:
                yield json.loads(codec.unpack(event.envelope).body)
        start, more = f">{page.after}", page.more


def _read_start(text: str) -> str:
    if not text:
        return offsets.EARLIEST
    ago_ms = times.duration_ms(text)
    try:
        return str(times.read_moment(text) if ago_ms is None else int(time.time() * 1000) - ago_ms)
    except ValueError:
        misuse(f"--since: {text[:60]!r} is neither a time, e.g. 2026-12-01T09:00:00Z, nor a length of time, e.g. 7d")


def _row(entry: Mapping[str, Any]) -> tuple[str, ...]:
    """Return an entry as cells."""
    place = " ".join(filter(None, (entry["door"], entry["address"])))
    return (entry["at"], entry["who"], place, entry["command"], entry["node"], entry["outcome"], _describe(entry))


def _describe(entry: Mapping[str, Any]) -> str:
    """Say what has changed, or why nothing has; of what leaves no trace there, what was asked."""
    if "detail" in entry:
        return str(entry["detail"] or entry["problem"])
    before, after = entry.get("before", {}), entry.get("after", {})
    changes = []
    for section in sorted({*before, *after}):
        old, new = before.get(section, {}), after.get(section, {})
        changes += [f"{name}: {old.get(name, '')} → {new.get(name, '')}" for name in sorted({*old, *new})]
    return ", ".join(changes) or json.dumps({**entry["what"], **entry.get("result", {})}, ensure_ascii=False)
