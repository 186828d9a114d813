"""One queue through two doors: items sent over HTTP are worked over XMPP, and the other way round."""

import asyncio
import time
from base64 import b64decode

from broker.model.items.items import XML
from tests.doors.frontend import HASH
from tests.doors.rest.served import RestFrontend, client
from tests.journeys.client import STANZAQ, Delivery
from tests.journeys.conftest import Join
from tests.journeys.service import Service

PROMPT_SECONDS = 10
"""Two heartbeats of a frontend, and time for a busy machine."""
_HALF, _ALL = 50, 350


async def test_sent_over_http_worked_over_xmpp(service: Service, join: Join) -> None:
    """An item of any form reaches a worker promptly; its owner has the same name at both doors."""
    owner, worker = await join(), await join()
    node = await owner.queue({})
    with RestFrontend(service.redis.url, HTTP_PASSWORDS=f"{owner.bare}:{HASH}") as frontend:
        await asyncio.to_thread(_sends, frontend, owner.bare, node)
        assert (await worker.subscribe(node, 10)).error == ""
        found = [await worker.next(Delivery) for _ in range(4)]
        assert [each.payload.tag for each in found] == [
            "{urn:example:jobs}job",
            "{urn:xmpp:json:0}json",
            f"{{{STANZAQ}}}data",
            f"{{{STANZAQ}}}data",
        ]
        assert (found[0].payload.text, found[1].payload.text) == ("one", '{"two": 2}')
        assert b64decode(found[2].payload.text or "") == b"\0\xff" and found[2].payload.get("type") == "image/png"
        assert b64decode(found[3].payload.text or "") == b"<four>"
        for each in found:
            assert (await worker.retract(node, each.item)).error == ""
        began = time.monotonic()
        await asyncio.to_thread(_sends_one, frontend, owner.bare, node)
        assert (await worker.next(Delivery)).item == "late"
        assert time.monotonic() - began < PROMPT_SECONDS
        assert await asyncio.to_thread(_states, frontend, owner.bare, node) == {"late": "locked"}
        assert service.faults() == []


async def test_sent_over_xmpp_worked_over_http(service: Service, join: Join) -> None:
    """R1: an item of an XMPP client is a message with its XML; a lease gets at once what no worker has."""
    owner, worker = await join(), await join()
    node = await owner.queue({})
    assert (await owner.publish(node, "i1")).error == ""
    with RestFrontend(service.redis.url, HTTP_PASSWORDS=f"{owner.bare}:{HASH}") as frontend:
        body, kind = await asyncio.to_thread(_content, frontend, owner.bare, node, "i1")
        assert kind == XML and body.startswith(b"<") and b"xmlns=" in body
        lease = await asyncio.to_thread(_subscribes, frontend, owner.bare, node)
        assert await asyncio.to_thread(_works, frontend, owner.bare, lease) == ["i1"]
        waiting = asyncio.create_task(asyncio.to_thread(_works, frontend, owner.bare, lease))
        await asyncio.sleep(0.3)
        began = time.monotonic()
        assert (await owner.publish(node, "i2")).error == ""
        assert await waiting == ["i2"] and time.monotonic() - began < PROMPT_SECONDS
        assert (await worker.subscribe(node, 1)).error == ""
        for item in ("i3", "i4"):
            assert (await owner.publish(node, item)).error == ""
        had = (await worker.next(Delivery)).item
        assert {had, *await asyncio.to_thread(_works, frontend, owner.bare, lease)} == {"i3", "i4"}
    assert service.faults() == []


def _sends(frontend: RestFrontend, jid: str, node: str) -> None:
    with client(frontend, jid) as http:
        for kind, body in (
            (XML, b"<job xmlns='urn:example:jobs'>one</job>"),
            ("application/json", b'{"two": 2}'),
            ("image/png", b"\0\xff"),
            (XML, b"<four>"),
        ):
            assert http.post(f"/queues/{node}", content=body, headers={"Content-Type": kind}).status_code == 201


def _sends_one(frontend: RestFrontend, jid: str, node: str) -> None:
    with client(frontend, jid) as http:
        assert http.post(f"/queues/{node}?guid=late", content=b"x").status_code == 200


def _states(frontend: RestFrontend, jid: str, node: str) -> dict[str, str]:
    with client(frontend, jid) as http:
        page = http.get(f"/queues/{node}", headers={"Accept": "application/json"}).json()
        return {message["id"]: message["state"] for message in page["messages"]}


def _subscribes(frontend: RestFrontend, jid: str, node: str, prefetch: int = 1) -> str:
    with client(frontend, jid) as http:
        made = http.post("/subscriptions", json={"destinations": node, "prefetch": prefetch})
        assert made.status_code == 201
        return made.headers["Location"]


def _works(frontend: RestFrontend, jid: str, lease: str) -> list[str]:
    """Fetch messages, and acknowledge them."""
    with client(frontend, jid) as http:
        found = http.get(f"{lease}?wait=10", headers={"Accept": "application/json"}, timeout=15).json()["messages"]
        assert all(http.delete(message["href"]).status_code == 200 for message in found)
        return [message["id"] for message in found]


def _content(frontend: RestFrontend, jid: str, node: str, item: str) -> tuple[bytes, str]:
    with client(frontend, jid) as http:
        answer = http.get(f"/contents/{node}/{item}")
        return answer.content, answer.headers["Content-Type"]
