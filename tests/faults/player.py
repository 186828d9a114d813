"""A publisher or a worker as a program, which a test can kill. Plain XMPP; must not know which fault comes.

Each connection is a new anonymous account, so an old one is told apart from the new one.
"""

import argparse
import asyncio
import contextlib
import random
import signal
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from itertools import count
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

from slixmpp.xmlstream.xmlstream import NotConnectedError

from tests.faults.facts import Fact, Notebook, What, now_ms
from tests.journeys.client import STANZAQ, STANZAS, Answer, Client, Delivery, Ended, rows

CREDIT: Final = 10
RATE: Final = 10
"""Items a second of one publisher; in the soak ring it is twice as much."""

TRY_SECONDS: Final = 1.5
"""After so long a request is sent again, with its id: the frontend that had it may be dead. So it is with a connection."""

FORGETFUL_BELOW_SECONDS: Final = 10
"""With longer locks nobody lets one expire: such a test checks that nothing waits for an expiry."""

POISON: Final = "poison"
"""Workers send items of this name to the dead letters."""

ALL_BELOW: Final = {"pubsub#subscription_type": "items", "pubsub#subscription_depth": "all"}
"""How a worker subscribes to a collection."""

_TEXT: Final = f".//{{{STANZAS}}}text"
_LOOK_SECONDS: Final = 0.05
_PAUSE_SECONDS: Final = 0.3
_UNANSWERED_MOST: Final = 200
_SIZES: Final = (1, 1, 5, 1, 3)
"""How many items go in a request of a publisher, in turn, or at most in a delivery."""

_GATHER_SECONDS: Final = 0.05
_ENDS: Final = {"ack": (What.ACKNOWLEDGING, What.ACKNOWLEDGED), "release": (What.RELEASING, What.RELEASED)}


class Player:
    """Common to publishers and workers: a connection that is replaced when it breaks, and repeated requests."""

    def __init__(self, port: int, service: str, accounts: str, notebook: Notebook) -> None:
        """Prepare to connect."""
        self._make: Callable[[], Client] = lambda: Client(port, service, accounts)
        self._notebook = notebook
        self._numbers = count(1)

    def note(self, what: What, **about: str | int) -> None:
        """Record what happened just now."""
        self._notebook.note(Fact(what, now_ms(), **about))  # type: ignore[arg-type]

    async def connect(self) -> Client:
        """Connect, trying until it is done."""
        while True:
            client = self._make()
            try:
                async with asyncio.timeout(TRY_SECONDS):
                    await client.open()
                    client.present()
                    # Its own reconnect must not be mistaken for the same connection.
                    client._wanted = False
            except (TimeoutError, NotConnectedError):
                await _closed(client)
            else:
                return client

    async def surely(self, client: Client, payload: str) -> Answer | None:
        """Repeat a request until it and its rows have final answers; None when the connection is gone."""
        name = f"r{next(self._numbers)}"
        while client.up:
            with contextlib.suppress(TimeoutError, NotConnectedError):
                answer = await client.ask(payload, request=name, seconds=TRY_SECONDS)
                if not any(map(passing, [answer, *rows(answer)])):
                    return answer
                await asyncio.sleep(_PAUSE_SECONDS)
        return None


class Publisher(Player):
    """Publishes at a constant rate; unanswered items are published again on the next connection."""

    async def run(self, name: str, queues: Sequence[str], rate: float) -> None:
        """Publish to the queues in turn until told to stop, and then until all are answered."""
        stopping = asyncio.Event()
        asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
        self._client = await self.connect()
        room = asyncio.Semaphore(_UNANSWERED_MOST)
        keeper = asyncio.create_task(self._keep())
        async with asyncio.TaskGroup() as group:
            for number in count(1):
                many = _SIZES[number % len(_SIZES)]
                items = [
                    f"{POISON if (number + part) % 29 == 0 else 'job'}-{name}-{number}-{part}" for part in range(many)
                ]
                for _ in items:
                    await room.acquire()
                queue = queues[number % len(queues)]
                group.create_task(self._publish(queue, items, room))
                with contextlib.suppress(TimeoutError):
                    await asyncio.wait_for(stopping.wait(), many / rate)
                    break
        keeper.cancel()
        await _closed(self._client)

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(_LOOK_SECONDS)
            if not self._client.up:
                await _closed(self._client)
                self._client = await self.connect()

    async def _publish(self, node: str, items: Sequence[str], room: asyncio.Semaphore) -> None:
        inside = "".join(f"<item id='{item}'><job xmlns='urn:x' name='{item}'/></item>" for item in items)
        payload = (
            f"<pubsub xmlns='http://jabber.org/protocol/pubsub'><publish node='{node}'>{inside}</publish></pubsub>"
            if len(items) == 1
            else f"<publish xmlns='{STANZAQ}' node='{node}'>{inside}</publish>"
        )
        while (answer := await self.surely(self._client, payload)) is None:  # noqa: ASYNC110  (asks again)
            await asyncio.sleep(_LOOK_SECONDS)
        assert {each.error for each in (answer, *rows(answer))} == {""}, ET.tostring(answer.element)
        for item in items:
            self.note(What.PUBLISHED, item=item)
            room.release()


class Worker(Player):
    """Acknowledges most of its items, releases some, and lets a few locks expire."""

    async def run(self, node: str, queues: Sequence[str], lock_seconds: float, seed: str) -> None:
        """Work for ever on a queue or a collection of `queues`, with a new connection after each that breaks."""
        self._node, self._options = node, ALL_BELOW if [node] != queues else {}
        self._lock_seconds = lock_seconds
        self._random = random.Random(seed)
        self._batches: dict[str, dict[str, tuple[str, Delivery, str]]] = {}
        while True:
            client = await self.connect()
            async with asyncio.TaskGroup() as group:
                tasks = [group.create_task(self._receive(client, group)), group.create_task(_forget(client))]
                await self._subscribe(client)
                while client.up:  # noqa: ASYNC110  (the client tells nobody)
                    await asyncio.sleep(_LOOK_SECONDS)
                for task in tasks:
                    task.cancel()
            await _closed(client)

    async def _subscribe(self, client: Client) -> None:
        options = {**self._options, "stanzaq#batch": str(self._random.choice(_SIZES))}
        while client.up:
            with contextlib.suppress(TimeoutError, NotConnectedError):
                async with asyncio.timeout(TRY_SECONDS):
                    answer = await client.subscribe(self._node, CREDIT, options=options)
                if answer.error == "":
                    return
                await asyncio.sleep(_PAUSE_SECONDS)

    async def _receive(self, client: Client, group: asyncio.TaskGroup) -> None:
        seen: set[tuple[str, int]] = set()
        while True:
            delivery = await client.next(Delivery, seconds=1e6)
            self.note(
                What.RECEIVED,
                who=client.jid,
                item=delivery.item,
                token=delivery.token,
                attempt=delivery.attempt,
                expires_ms=_expires_ms(delivery.lock),
            )
            if (delivery.item, delivery.token) not in seen:
                seen.add((delivery.item, delivery.token))
                group.create_task(self._work(client, delivery))

    async def _work(self, client: Client, delivery: Delivery) -> None:
        chance = self._random.random()
        await asyncio.sleep(chance / 50)
        if delivery.item.startswith(POISON):
            await self._release(client, delivery, "dead-letter='true' reason='poison'")
        elif chance < 0.05:
            await self._release(client, delivery, "")
        elif chance < 0.07 and self._lock_seconds < FORGETFUL_BELOW_SECONDS:
            if chance < 0.06:
                # Too late on purpose; the item's next holder must not be disturbed.
                await asyncio.sleep(self._lock_seconds + 0.5)
                await self._acknowledge(client, delivery)
        else:
            await self._acknowledge(client, delivery)

    async def _acknowledge(self, client: Client, delivery: Delivery) -> None:
        if not await self._gathered(client, delivery, "ack", ""):
            opening = f"<retract node='{delivery.node}'>"
            await self._end(client, delivery, *_ENDS["ack"], opening, "")

    async def _release(self, client: Client, delivery: Delivery, hint: str) -> None:
        if not await self._gathered(client, delivery, "release", hint):
            inside = f"<hint xmlns='{STANZAQ}' {hint}/>" if hint else ""
            opening = f"<unlock xmlns='urn:xmpp:pubsub:queueing:0' node='{delivery.node}'>"
            await self._end(client, delivery, *_ENDS["release"], opening, inside)

    async def _gathered(self, client: Client, delivery: Delivery, row: str, hint: str) -> bool:
        """Leave every other lock to a batch, which goes a moment after its first row; returns False for the others."""
        batch = self._batches.setdefault(delivery.node, {})
        if self._random.random() < 0.5 or delivery.item in batch:
            return False
        batch[delivery.item] = (row, delivery, hint)
        if len(batch) == 1:
            await asyncio.sleep(_GATHER_SECONDS)
            await self._settle(client, delivery.node, self._batches.pop(delivery.node))
        return True

    async def _settle(self, client: Client, node: str, batch: Mapping[str, tuple[str, Delivery, str]]) -> None:
        if await self._retracted(client, node, batch):
            return
        inside = ""
        for item, (row, delivery, hint) in batch.items():
            inside += f"<{row} id='{item}' token='{delivery.token}' {hint}/>"
            self.note(_ENDS[row][0], who=client.jid, item=item, token=delivery.token)
        answer = await self.surely(client, f"<settle xmlns='{STANZAQ}' node='{node}'>{inside}</settle>")
        if answer is None:
            return
        assert answer.error == "", ET.tostring(answer.element)
        problems = {each.element.get("id"): each.error for each in rows(answer)}
        for item, (row, delivery, _) in batch.items():
            error = problems.get(item, "")
            what = What.REFUSED if error else _ENDS[row][1]
            self.note(what, detail=error, who=client.jid, item=item, token=delivery.token)

    async def _retracted(self, client: Client, node: str, batch: Mapping[str, tuple[str, Delivery, str]]) -> bool:
        """Acknowledge every other batch without a release by one standard retract, which carries out all or nothing."""
        if len(batch) == 1 or self._random.random() < 0.5 or any(row != "ack" for row, _, _ in batch.values()):
            return False
        inside = ""
        for item, (_, delivery, _) in batch.items():
            inside += f"<item id='{item}' token='{delivery.token}'/>"
            self.note(What.ACKNOWLEDGING, who=client.jid, item=item, token=delivery.token)
        retract = f"<retract node='{node}'>{inside}</retract>"
        answer = await self.surely(client, f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{retract}</pubsub>")
        if answer is None or answer.error:
            # Of a refused one, each lock may be another's or still the worker's.
            return answer is None
        for item, (_, delivery, _) in batch.items():
            self.note(What.ACKNOWLEDGED, who=client.jid, item=item, token=delivery.token)
        return True

    async def _end(self, client: Client, delivery: Delivery, wanted: What, done: What, opening: str, hint: str) -> None:  # noqa: PLR0917
        about: dict[str, str | int] = {"who": client.jid, "item": delivery.item, "token": delivery.token}
        closing = opening.partition(" ")[0].replace("<", "</") + ">"
        self.note(wanted, **about)
        answer = await self.surely(
            client,
            f"<pubsub xmlns='http://jabber.org/protocol/pubsub'>{opening}"
            f"<item id='{delivery.item}' token='{delivery.token}'/>{hint}{closing}</pubsub>",
        )
        if answer is not None:
            self.note(done if answer.error == "" else What.REFUSED, detail=answer.error, **about)


def passing(answer: Answer) -> bool:
    """Return whether the same request may succeed later; a lost lock says so too, but is lost (Q25)."""
    # The XMPP server answers for a component that is away; with `s2s_access: none` this is its error.
    absent = answer.error == "auth forbidden" and answer.element.findtext(_TEXT, "").startswith("Access denied")
    return absent or (answer.error.startswith("wait") and "unexpected-request" not in answer.error)


async def _forget(client: Client) -> None:
    """Drop the notices from the client's list; deliveries and answers suffice here."""
    while True:
        await client.next(Ended, seconds=1e6)
        client.heard.clear()


async def _closed(client: Client) -> None:
    with contextlib.suppress(TimeoutError, NotConnectedError):
        await asyncio.wait_for(client.close(), TRY_SECONDS)


def _expires_ms(lock: Element) -> int:
    return round(datetime.fromisoformat(lock.get("expires", "")).timestamp() * 1000)


def main() -> None:
    """Run as the command line says."""
    parser = argparse.ArgumentParser()
    parser.add_argument("part", choices=["publisher", "worker"])
    for name in ("directory", "name", "port", "service", "accounts", "node", "queues", "lock_seconds", "seed", "rate"):
        parser.add_argument(f"--{name}", required=True)
    chosen = parser.parse_args()
    notebook = Notebook(Path(chosen.directory) / f"{chosen.name}.facts")
    queues = chosen.queues.split(",")
    where = (int(chosen.port), chosen.service, chosen.accounts, notebook)
    if chosen.part == "publisher":
        asyncio.run(Publisher(*where).run(chosen.name, queues, float(chosen.rate)))
    else:
        seed = f"{chosen.seed}/{chosen.name}"
        asyncio.run(Worker(*where).run(chosen.node, queues, float(chosen.lock_seconds), seed))


if __name__ == "__main__":
    main()
