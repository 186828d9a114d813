"""Passes work of processes that cannot send to the frontends: due partitions and notices.

The commands of `stanzaq` and the HTTP door change queues without a stream to anybody. They are not in the list of frontends and
receive no deliveries; their notices wait in Redis for a frontend's heartbeat. Must not know which commands there are.
"""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, get_args

import structlog
from pydantic import TypeAdapter

from broker import keys
from broker.model.items.items import Delivery, Notice
from broker.model.names import Partition
from broker.model.problems import CoreUnavailable, OperationDefect
from broker.redis_core.records.store import in_pages
from broker.redis_core.redis_client.client import Server, Value
from broker.redis_core.redis_client.failure_log import FailureLog

log = structlog.get_logger()

MOST_NOTICES: Final = 10_000
KEPT_SECONDS: Final = 3_600
"""Notices are for information: after an hour without a frontend they are useless."""

_PAUSE_SECONDS: Final = 0.5

_KINDS: Final[dict[str, TypeAdapter[Notice]]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Notice)}


def encode(notice: Notice) -> bytes:
    """Encode a notice as JSON, readable in redis-cli."""
    kind = type(notice).__name__
    # A record's roles belong to the process that judges by it.
    told = _KINDS[kind].dump_python(notice, mode="json", exclude={"record": {"role_lets", "groups_of"}})
    return json.dumps([kind, told]).encode()


def decode(text: bytes) -> Notice | None:
    """Decode a notice; None for one that another version of the program wrote."""
    try:
        name, values = json.loads(text)
        return _KINDS[name].validate_python(values)
    except (ValueError, KeyError, TypeError) as fault:
        log.warning("a notice was not understood", error=str(fault))
        return None


def decode_all(texts: Iterable[bytes]) -> Iterator[Notice]:
    """Return the notices that this version understands."""
    for text in texts:
        notice = decode(text)
        if notice is not None:
            yield notice


class Relay:
    """The outlet of a process that has no door."""

    def __init__(self, server: Server, background: Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]) -> None:
        """Write to `server`, in tasks that `background` runs."""
        self._server = server
        self._background = background
        self._due: dict[Partition, int] = {}
        self._notices: list[Notice] = []
        self._wakes = False
        self._leaving = False
        self._failures = FailureLog("nothing can be left for the frontends")

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Fail: operations hand out nothing to a process without a name."""
        msg = f"{batch[0].partition} handed {batch[0].item_id} to a process that cannot send"
        raise AssertionError(msg)

    def notify(self, notice: Notice) -> None:
        """Leave a notice for a frontend."""
        self._notices.append(notice)
        self._wakes = True
        self._schedule()

    def announce(self, partition: Partition, due_ms: int, *, wake: bool) -> None:
        """Leave a due partition for a frontend, and wake one if it must not wait for its next heartbeat."""
        self._due[partition] = min(due_ms, self._due.get(partition, due_ms))
        self._wakes |= wake
        self._schedule()

    def congested(self) -> bool:
        """Return False: operations hand out to pulling subscribers only, so nothing waits to be sent."""
        return False

    def flushed(self) -> bool:
        """Return True: nothing is left to send."""
        return True

    def _schedule(self) -> None:
        # One write for all notices of one turn of the event loop.
        if not self._leaving:
            self._leaving = True
            self._background(self._leave)

    async def _leave(self) -> None:
        """Write what there is, again until Redis takes it."""
        try:
            while self._due or self._notices:
                due, notices, wakes = self._due, self._notices[-MOST_NOTICES:], self._wakes
                self._due, self._notices, self._wakes = {}, [], False
                try:
                    await self._write(due, notices, wakes=wakes)
                except (CoreUnavailable, OperationDefect) as fault:
                    self._failures.report(fault)
                    for partition, at in due.items():
                        self._due[partition] = min(at, self._due.get(partition, at))
                    self._notices = notices + self._notices
                    self._wakes |= wakes
                    await asyncio.sleep(_PAUSE_SECONDS)
                else:
                    self._failures.note_success()
        finally:
            self._leaving = False

    async def _write(self, due: Mapping[Partition, int], notices: Sequence[Notice], *, wakes: bool) -> None:
        fixed: dict[str, Value] = {"wake": "1" if wakes else "", "most": MOST_NOTICES, "kept_seconds": KEPT_SECONDS}
        rows: list[dict[str, Value]] = [{"kind": "due", "text": str(each), "at": at} for each, at in due.items()]
        rows += [{"kind": "notice", "text": encode(each), "at": 0} for each in notices]
        names = [keys.of_service(name) for name in self._server.operations["leave_work"].keys]
        for page in in_pages(rows) if rows else [rows]:
            await self._server.run(self._server.write_call("leave_work", names, fixed, page))
