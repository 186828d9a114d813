"""What a process that cannot send leaves to the frontends: partitions to visit at once, and notices to tell.

The commands of `stanzaq` change queues, and so does the RESTful door, and they have no stream to anybody. They never stand in
the list of frontends, are handed no deliveries, and what they would have to say waits here until a frontend's heartbeat takes
it. Must not know which commands there are.
"""

import json
from collections.abc import Callable, Coroutine, Iterable, Iterator, Sequence
from typing import Any, Final, get_args

import structlog
from pydantic import TypeAdapter

from broker import keys
from broker.model.items import Delivery, Notice
from broker.model.names import Partition
from broker.redis_core.redis_client.client import Server, Value
from broker.redis_core.redis_client.wakeup import wakeup_commands

log = structlog.get_logger()

MOST_NOTICES: Final = 10_000
KEPT_SECONDS: Final = 3_600
"""Notices are told for information: with no frontend for an hour they are of no use to anybody."""

_KINDS: Final[dict[str, TypeAdapter[Notice]]] = {kind.__name__: TypeAdapter(kind) for kind in get_args(Notice)}


def written(notice: Notice) -> bytes:
    """Write a notice, readable in redis-cli."""
    kind = type(notice).__name__
    return json.dumps([kind, _KINDS[kind].dump_python(notice, mode="json")]).encode()


def read(text: bytes) -> Notice | None:
    """Read what `written` wrote; None for what another version of the program wrote."""
    try:
        name, values = json.loads(text)
        return _KINDS[name].validate_python(values)
    except (ValueError, KeyError, TypeError) as fault:
        log.warning("a notice was not understood", error=str(fault))
        return None


def understood(texts: Iterable[bytes]) -> Iterator[Notice]:
    """Read those of several that are notices to this version."""
    for text in texts:
        notice = read(text)
        if notice is not None:
            yield notice


class Relay:
    """Stands in for a door where there is none."""

    def __init__(self, server: Server, background: Callable[[Callable[[], Coroutine[Any, Any, Any]]], None]) -> None:
        """Leave word by `server`, on tasks that `background` runs."""
        self._server = server
        self._background = background
        self._due: dict[Partition, int] = {}
        self._notices: list[Notice] = []

    def deliver(self, delivery: Delivery) -> None:
        """Refuse: no script hands out anything to whoever has no name."""
        msg = f"{delivery.partition} handed {delivery.item_id} to a process that cannot send"
        raise AssertionError(msg)

    def notify(self, notice: Notice) -> None:
        """Leave a notice to be told."""
        self._soon()
        self._notices.append(notice)

    def announce(self, partition: Partition, due_ms: int) -> None:
        """Say when a partition needs a visit."""
        self._soon()
        self._due[partition] = min(due_ms, self._due.get(partition, due_ms))

    def congested(self) -> bool:
        """Tell that a script may go on: it hands out to those alone who come for it."""
        return False

    def flushed(self) -> bool:
        """Tell that nothing is left to send."""
        return True

    def _soon(self) -> None:
        # What comes in one turn of the loop goes together.
        if not (self._due or self._notices):
            self._background(self._leave)

    async def _leave(self) -> None:
        due, notices = self._due, self._notices
        self._due, self._notices = {}, []
        waiting, visits = keys.of_service("notices"), keys.of_service("due")
        lines: list[Sequence[Value]] = [("ZADD", visits, "LT", at, str(partition)) for partition, at in due.items()]
        if notices:
            lines += [
                ("RPUSH", waiting, *map(written, notices[-MOST_NOTICES:])),
                ("LTRIM", waiting, -MOST_NOTICES, -1),
                ("EXPIRE", waiting, KEPT_SECONDS),
            ]
        lines += wakeup_commands()
        await self._server.commands(lines)
