"""One queue through ejabberd and over AMQP: an item is the same at both doors."""

import asyncio
from base64 import b64decode
from typing import Any

from proton import Message, symbol

from tests.doors.amqp.served import AmqpFrontend, With, annotations, consumer, one, producer
from tests.doors.frontend import HASH
from tests.journeys.client import STANZAQ, Delivery
from tests.journeys.conftest import Join
from tests.journeys.service import Service

SHIM = "http://jabber.org/protocol/shim"


async def test_crosses(service: Service, join: Join) -> None:
    """Issue 10: a worker over XMPP gets XML of AMQP as elements, JSON by XEP-0335, bytes in base64; and the other way round."""
    owner, worker = await join(), await join()
    node = await owner.queue({})
    with AmqpFrontend(service.redis.url, AMQP_PASSWORDS=f"{owner.bare}:{HASH}") as frontend:
        await asyncio.to_thread(_sends, frontend, owner.bare, node)
        assert (await worker.subscribe(node, 10)).error == ""
        found = [await worker.next(Delivery) for _ in range(4)]
        assert [each.payload.tag for each in found] == [
            "{urn:example:jobs}job",
            "order",
            "{urn:xmpp:json:0}json",
            f"{{{STANZAQ}}}data",
        ]
        assert (found[0].payload.text, found[1].payload[0].tag, found[2].payload.text) == ("é", "line", '{"two": 2}')
        assert b64decode(found[3].payload.text or "") == b"\0\xff" and found[3].payload.get("type") == "image/png"
        for each in found:
            headers = {header.get("name"): header.text for header in each.message.iter(f"{{{SHIM}}}header")}
            assert headers == {"colour": "red", "size": "12"}
        for payload in ("<json xmlns='urn:xmpp:json:0'>[1]</json>", "<job xmlns='urn:example:jobs'>é</job>"):
            assert (await owner.publish(node, payload=payload)).error == ""
        assert await asyncio.to_thread(_reads, frontend, owner.bare, node) == [
            ("application/json", b"[1]"),
            ("application/xml", "<job xmlns='urn:example:jobs'>é</job>".encode()),
        ]
    assert service.faults() == []


def _sends(frontend: AmqpFrontend, jid: str, node: str) -> None:
    connection = frontend.connect(jid)
    sender = producer(connection, node)
    for body, kind in (
        ("<job xmlns='urn:example:jobs'>é</job>".encode(), "application/xml"),
        (b"<?xml version='1.0'?>\n<order><line/></order>\n", "text/xml"),
        (b'{"two": 2}', "application/json"),
        (b"\0\xff", "image/png"),
    ):
        sender.send(Message(body=body, inferred=True, content_type=kind, properties={"colour": "red", "size": 12}))
    connection.close()


def _reads(frontend: AmqpFrontend, jid: str, node: str) -> list[tuple[str, bytes]]:
    """Read the log after the first four entries, without consuming anything."""
    connection = frontend.connect(jid)
    receiver = consumer(connection, node, [With(copies=True), annotations(offset=symbol("@earliest"))])
    came = [one(receiver) for _ in range(6)][4:]
    connection.close()
    bodies: list[Any] = [each.body for each in came]
    return [(str(each.content_type), bytes(body)) for each, body in zip(came, bodies, strict=True)]
