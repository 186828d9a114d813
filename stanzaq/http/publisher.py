"""Sends items over HTTP. Must not look into payloads."""

import asyncio
import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from stanzaq.errors import StanzaqError
from stanzaq.http import messages
from stanzaq.http.connection import HttpConnection
from stanzaq.transport.gatherer import Gatherer
from stanzaq.transport.interface import Outcome, Outgoing, Save, Schedule, Scheduling

_PAUSE_SECONDS: Final = 0.5

_WAIT_SECONDS: Final = 10
"""How long one request waits for an end: less than the time in which any request must be answered."""

_MOST_WAIT: Final = 10
"""The most replies that requests wait for, half as many as are sent at once: of more of them each is asked for at intervals."""

_ASKED_A_SECOND: Final = 100
"""The most requests a second for replies that are many."""

Trace = tuple[tuple[str, str], ...]
"""The trace headers of a request, which are those of all its items."""


class HttpPublishing:
    """Sends items over a connection, those of one turn of the event loop, one node and one trace together."""

    def __init__(self, connection: HttpConnection) -> None:
        """Send over a connection."""
        self._connection = connection
        self._gatherer = Gatherer(self._send)

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        node, item, what = outgoing.node, outgoing.item, f"publish to {outgoing.node}"
        said, traced = messages.message(item, outgoing.content, outgoing.headers, outgoing.hints)
        if await self._gatherer.ask((node, tuple(traced.items())), item, json.dumps(said), what) is None:
            path = messages.batch_path(node)
            await self._connection.ask(what, "POST", path, [said], messages.read_refused_item, traced)

    async def _send(self, where: tuple[str, Trace], items: Mapping[str, str]) -> messages.HttpOutcomes | None:
        """Send items of one node and one trace once: without an answer each is sent by itself, so that one cannot stop others.

        Raises StanzaqError if they are refused together.
        """
        node, traced = where
        path, body = messages.batch_path(node), messages.batch_body(items.values())
        said = await self._connection.ask(f"publish to {node}", "POST", path, body, headers=dict(traced), once=True)
        return None if said is None else messages.outcomes(items, said)


class HttpSender:
    """The transport of a publisher with an account of the RESTful Queue."""

    def __init__(self, connection: HttpConnection) -> None:
        """Use a connection, which may be a worker's."""
        self._connection = connection
        self._publishing = HttpPublishing(connection)
        self._awaited = 0
        self._closed = asyncio.Event()

    async def run(self) -> None:
        """Wait for `close`: requests connect as needed."""
        await self._closed.wait()

    async def publish(self, outgoing: Outgoing) -> None:
        """Send an item until it is answered. Raises StanzaqError if the service refuses it."""
        await self._publishing.publish(outgoing)

    async def cancel(self, node: str, item: str) -> bool:
        """Cancel an item; False if there is none. Raises StanzaqError if the service refuses."""
        path, body = messages.cancellation(node, item)
        try:
            await self._connection.ask(f"cancel {item}", "POST", path, body, messages.read_refused_item)
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return False
        return True

    def reply(self, node: str, item: str) -> Callable[[], Awaitable[Outcome]]:
        """Return what waits for the end of an item."""
        return partial(self._wait_for_end, node, item)

    async def _wait_for_end(self, node: str, item: str) -> Outcome:
        self._awaited += 1
        try:
            while True:
                path = messages.ended_path(node, item, _WAIT_SECONDS if self._awaited <= _MOST_WAIT else 0)
                found = messages.read_end(await self._connection.ask(f"find the end of {item}", "GET", path))
                if found is not None:
                    return found
                # The service answers at once where another publish of the id has taken the item's place.
                await asyncio.sleep(max(_PAUSE_SECONDS, self._awaited / _ASKED_A_SECOND))
        finally:
            self._awaited -= 1

    async def outcome(self, node: str, item: str) -> Outcome:
        """Read how an item has ended. Raises StanzaqError, `item-not-found` if that is not kept or is others' to read."""
        path, what = messages.ended_path(node, item, 0), f"read the end of {item}"
        found = messages.read_end(await self._connection.ask(what, "GET", path))
        if found is None:
            msg = f"cannot {what}: item-not-found"
            raise StanzaqError(msg, "item-not-found")
        return found

    async def schedule(self, request: Scheduling) -> Schedule:
        """Make or replace a schedule. Raises StanzaqError if the service refuses."""
        path, body = messages.schedule_path(request.node, request.id), messages.schedule(request)
        return Schedule.read(await self._connection.ask(f"schedule {request.id}", "PUT", path, body))

    async def schedules(self, node: str) -> list[Schedule]:
        """List the schedules of a node. Raises StanzaqError if the service refuses."""
        found, path = list[Schedule](), messages.schedules_path(node)
        while path:
            page = await self._connection.ask(f"list schedules of {node}", "GET", path)
            found += map(Schedule.read, page["schedules"])
            path = page.get("next", "")
        return found

    async def switch_schedule(self, node: str, name: str, *, paused: bool) -> Schedule:
        """Pause or resume a schedule. Raises StanzaqError if the service refuses."""
        path, what = messages.schedule_path(node, name), "pause" if paused else "resume"
        return Schedule.read(await self._connection.ask(f"{what} {name}", "PATCH", path, {"paused": paused}))

    async def unschedule(self, node: str, name: str) -> bool:
        """Delete a schedule; False if there is none. Raises StanzaqError if the service refuses."""
        try:
            await self._connection.ask(f"delete {name}", "DELETE", messages.schedule_path(node, name))
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return False
        return True

    async def options(self, node: str) -> dict[str, str] | None:
        """Return the options of a node, None if there is none. Raises StanzaqError, `forbidden` if it has other owners."""
        try:
            said = await self._connection.ask(f"read {node}", "GET", f"{messages.queue_path(node)}?limit=1")
        except StanzaqError as error:
            if error.condition != "item-not-found":
                raise
            return None
        if "options" not in said and said["is_queue"]:
            msg = f"cannot read {node}: forbidden (only its owners see its options)"
            raise StanzaqError(msg, "forbidden")
        # A part of the tree without a node of its own has none either.
        found: dict[str, str] | None = said.get("options")
        return found

    async def create(self, node: str, options: Mapping[str, str]) -> None:
        """Create a node. Raises StanzaqError if the service refuses, `conflict` if the node exists."""
        await self._connection.ask(f"create {node}", "PUT", messages.queue_path(node), {"options": options})

    async def configure(self, node: str, options: Mapping[str, str]) -> None:
        """Change options of a node. Raises StanzaqError if the service refuses."""
        await self._connection.ask(f"change {node}", "PATCH", messages.queue_path(node), {"options": options})

    async def affiliations(self, node: str) -> dict[str, str]:
        """Return the affiliations with a node, by bare JID or domain. Raises StanzaqError if the service refuses."""
        what = f"list the affiliations with {node}"
        said = await self._connection.ask(what, "GET", messages.affiliations_path(node))
        found: dict[str, str] = said["affiliations"]
        return found

    async def affiliate(self, node: str, changes: Mapping[str, str]) -> None:
        """Change affiliations, all of them or none. Raises StanzaqError if the service refuses."""
        what, path = f"change any affiliation with {node}", messages.affiliations_path(node)
        await self._connection.ask(what, "PATCH", path, {"affiliations": changes})

    async def requests(self, node: str) -> list[str]:
        """Return who waits for an approval. Raises StanzaqError if the service refuses."""
        said = await self._connection.ask(f"list the requests at {node}", "GET", messages.requests_path(node))
        return [each["jid"] for each in said["requests"]]

    async def decide(self, node: str, jid: str, *, allow: bool) -> None:
        """Approve or refuse the requests of an account. Raises StanzaqError if the service refuses."""
        what, path = f"decide the request of {jid}", messages.requests_path(node)
        await self._connection.ask(what, "POST", path, {"jid": jid, "allow": allow})

    async def publish_once(self, outgoing: Outgoing, save: Save) -> None:  # noqa: ARG002  (there is one step)
        """Send an item until it is answered: for hours the service knows a repeat by the item's id."""
        await self.publish(outgoing)

    async def close(self) -> None:
        """Disconnect."""
        self._closed.set()
        await self._connection.close()
