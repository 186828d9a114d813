"""Writes who changed what, or was refused: an entry of the log `stanzaq/audit` and a log line for each administrative command.

A note of the command is stored before it is carried out, and goes when its entry is in the log. What is left of a process that
died, or while nothing could be published, any frontend publishes later; how such a command ended may be unknown. The change
itself never depends on any of this. Must not know what any command does, nor any door.
"""

import contextlib
import json
import secrets
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, fields, is_dataclass
from enum import Enum
from functools import partial
from typing import Any, Final

import structlog

from broker import codec, keys
from broker.model import audit
from broker.model.commands import Associate, Command, Dissociate, Publish, SetQuota
from broker.model.items.items import Envelope
from broker.model.nodes.nodes import form_values
from broker.model.nodes.options import MAX_PAYLOAD_BYTES, AccessModel, Dedupe, NodeConfig
from broker.model.problems import CoreUnavailable
from broker.model.results import Declared, Refused, Result, refusal_of
from broker.model.times import moment
from broker.redis_core.nodes.service import NodeService
from broker.redis_core.quotas.stored import Quotas
from broker.redis_core.records.store import NodeStore
from broker.redis_core.redis_client.client import Server
from broker.redis_core.registry.rows import ROWS

log = structlog.get_logger()

MOST_NOTES: Final = 10_000
"""Notes that are kept at once. Beyond them an entry that cannot be published is lost, which the log says."""

ABANDONED_MS: Final = 60_000
"""The age of a note whose command has ended, or whose process has died."""

_MOST_LISTED: Final = 100
"""Values of one list that an entry names."""

_PAGE: Final = 100

_CONFIG: Final = NodeConfig(
    queueing=False,
    title="Administrative changes",
    access_model=AccessModel.WHITELIST,
    dedupe=Dedupe.IGNORE,
    dedupe_seconds=3_600,
    retention_seconds=365 * 86_400,
    retention_bytes=268_435_456,
)

Carry = Callable[[Any], Awaitable[Result]]
"""Carries out a command."""

State = dict[str, dict[str, Any]]
"""What a command may change, by section: options, affiliations, quota."""


@dataclass(slots=True)
class _Entry:
    """An entry: its name, what it tells, whether a note of it is stored, and whether it is in the log."""

    name: str
    told: dict[str, Any]
    noted: bool = False
    written: bool = False


class Audit:
    """The audit of one process."""

    def __init__(  # noqa: PLR0913, PLR0917  (each a part of the core)
        self,
        server: Server,
        store: NodeStore,
        quotas: Quotas,
        nodes: NodeService,
        ask: Callable[[Command], Awaitable[Result]],
        door: str,
    ) -> None:
        """Read states from `store` and `quotas`, make the log by `nodes`, and publish by `ask` what comes from `door`."""
        self._server = server
        self._store = store
        self._quotas = quotas
        self._nodes = nodes
        self._ask = ask
        self._door = door

    def watch(self, work: Mapping[type, Carry]) -> dict[type, Carry]:
        """Return what carries out commands, with the audit around those that administer."""
        return {kind: partial(self.carry_out, each) if ROWS[kind].administers else each for kind, each in work.items()}

    async def carry_out(self, carry: Carry, command: Any) -> Result:  # noqa: ANN401  (any administrative command)
        """Carry out a command, and write that into the audit."""
        entry = await self._begin(command)
        try:
            result = await carry(command)
        except CoreUnavailable as fault:
            result = Refused(fault.problem, fault.detail)
        await self._end(entry, command, result)
        return result

    async def finish(self) -> None:
        """Publish the entries of notes that nobody publishes any more."""
        cursor, now_ms = b"0", await self._server.now_ms()
        while True:
            cursor, flat = await self._server.command("HSCAN", _notes(), cursor, "COUNT", _PAGE)
            for name, text in zip(flat[::2], flat[1::2], strict=True):
                entry = _Entry(name.decode(), json.loads(text), noted=True)
                if now_ms - entry.told["ms"] >= ABANDONED_MS and not await self._write(entry):
                    # Neither will the others.
                    return
            if int(cursor) == 0:
                return

    async def _begin(self, command: Any) -> "_Entry":  # noqa: ANN401
        """Note that a command will be carried out, and what is there before."""
        told = {
            "ms": int(time.time() * 1000),
            "who": command.sender,
            "door": self._door,
            "address": audit.ADDRESS.get(),
            "command": type(command).__name__,
            "node": getattr(command, "node", None) or "",
            "what": _arguments(command),
            "outcome": "unknown",
        }
        entry = _Entry(secrets.token_hex(6), told)
        try:
            told["before"] = await self._state(command)
            await self._note(entry)
        except CoreUnavailable as fault:
            log.warning("a change cannot be noted for the audit", command=told["command"], error=str(fault))
        return entry

    async def _end(self, entry: "_Entry", command: Any, result: Result) -> None:  # noqa: ANN401
        """Write how a command has ended."""
        told = entry.told
        if refused := refusal_of(result):
            how = "unknown" if refused.problem.is_ours else "refused"
            told |= {"outcome": how, "problem": refused.problem.value, "detail": refused.detail}
        else:
            told |= {"outcome": "done", "result": _plain(result)}
        if isinstance(result, Declared):
            told["node"] = result.node
        shown = {name: value for name, value in told.items() if name not in {"ms", "who", "before"}}
        log.info("administered", subscriber=told["who"], **shown)
        with contextlib.suppress(CoreUnavailable):
            told["before"], told["after"] = _compare(told.get("before", {}), await self._state(command, told["node"]))
        with contextlib.suppress(CoreUnavailable):
            if not await self._write(entry):
                await self._note(entry)
        if not (entry.noted or entry.written):
            log.error("an audit entry is lost", subscriber=told["who"], command=told["command"], node=told["node"])

    async def _note(self, entry: "_Entry") -> None:
        """Keep an entry until it is published, unless too many are kept."""
        if not entry.noted and await self._server.command("HLEN", _notes()) >= MOST_NOTES:
            return
        await self._server.command("HSET", _notes(), entry.name, json.dumps(entry.told))
        entry.noted = True

    async def _write(self, entry: "_Entry") -> bool:
        """Publish an entry, once, and drop its note; False if that cannot be done now."""
        told = {"at": moment(entry.told["ms"]), **entry.told}
        del told["ms"]
        body = _encode(told)
        item = codec.pack(Envelope(body, "application/json"))
        # A command that took long may have been found abandoned: how it ended then is an entry of its own.
        name = f"{entry.name}-{told['outcome']}"
        try:
            if not await self._make_log():
                log.error("the audit cannot be written: its node belongs to another", node=audit.NODE)
                return False
            result = await self._ask(Publish(audit.NODE, audit.SERVICE, name, item, len(body)))
            if refused := refusal_of(result):
                log.warning("an audit entry waits", problem=refused.problem.value, detail=refused.detail)
                return False
            entry.written = True
            if entry.noted:
                await self._server.command("HDEL", _notes(), entry.name)
        except CoreUnavailable as fault:
            log.warning("an audit entry waits", error=str(fault))
        return entry.written

    async def _make_log(self) -> bool:
        """Make the log if there is none; returns whether it is the service's."""
        record = await self._store.read(audit.NODE)
        if record is None:
            await self._nodes.make(audit.NODE, audit.SERVICE, _CONFIG)
            record = await self._store.read(audit.NODE)
        return record is not None and record.creator == audit.SERVICE

    async def _state(self, command: Any, node: str = "") -> State:  # noqa: ANN401
        """Return what a command may change, as it is now."""
        if isinstance(command, SetQuota):
            quota = (await self._quotas.read()).get(command.subject)
            return {"quota": quota.limits_by_name()} if quota else {}
        moved = command.child if isinstance(command, Associate | Dissociate) else ""
        name = moved or node or getattr(command, "node", None)
        record = await self._store.read(name) if name else None
        if record is None:
            return {}
        options = form_values(record.name, record.config) | {"pubsub#collection": record.parent}
        return {"options": options, "affiliations": {jid: each.value for jid, each in record.affiliations.items()}}


def _compare(before: State, after: State) -> tuple[State, State]:
    """Return of two states what differs."""
    old, new = State(), State()
    for section in sorted({*before, *after}):
        was, is_now = before.get(section, {}), after.get(section, {})
        changed = [name for name in sorted({*was, *is_now}) if was.get(name) != is_now.get(name)]
        for told, values in ((old, was), (new, is_now)):
            if differing := {name: values[name] for name in changed if name in values}:
                told[section] = differing
    return old, new


def _encode(told: dict[str, Any]) -> bytes:
    """Write an entry; of one that is too large to be published, without what was asked and changed."""
    body = json.dumps(told, ensure_ascii=False).encode()
    if len(body) <= MAX_PAYLOAD_BYTES:
        return body
    left = {name: value for name, value in told.items() if name not in {"what", "before", "after", "result"}}
    return json.dumps({**left, "what": {"bytes": len(body)}}, ensure_ascii=False).encode()


def _notes() -> str:
    return keys.of_service("audit_notes")


def _arguments(command: Any) -> dict[str, Any]:  # noqa: ANN401
    """Return what a command says besides its sender and its node."""
    plain: dict[str, Any] = _plain(command)
    return {name: value for name, value in plain.items() if name not in {"sender", "node"}}


def _plain(value: Any) -> Any:  # noqa: ANN401
    """Return a value as JSON has it: without payloads, without what is not said, of long lists the first values."""
    match value:
        case Enum():
            return value.value
        case _ if is_dataclass(value):
            named = {each.name: getattr(value, each.name) for each in fields(value)}
            return {name: _plain(part) for name, part in named.items() if part not in (None, "", (), b"")}
        case Mapping():
            return {str(name): _plain(part) for name, part in value.items()}
        case bytes():
            return f"{len(value)} bytes"
        case tuple() | list():
            more = [f"and {len(value) - _MOST_LISTED} more"] if len(value) > _MOST_LISTED else []
            return [*map(_plain, value[:_MOST_LISTED]), *more]
    return value
