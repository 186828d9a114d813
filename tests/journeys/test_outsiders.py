"""Third-party clients: whatever they can do with a pubsub service, they can do with this one."""

import asyncio
import json
import secrets
from pathlib import Path
from typing import Any

from tests.doors.amqp import event_hubs
from tests.doors.amqp.served import AmqpFrontend
from tests.doors.frontend import HASH, PASSWORD
from tests.journeys.conftest import Join
from tests.journeys.service import DOMAIN, Service

OUTSIDERS = Path(__file__).parent / "outsiders"
QUEUEING_ENABLED = "{urn:xmpp:pubsub:queueing:0}enabled"
TOOLS = Path(__file__).resolve().parents[2] / ".venv" / "tools"


async def told(*command: str | Path) -> dict[str, Any]:
    """Run a client; return its report."""
    pipe = asyncio.subprocess.PIPE
    child = await asyncio.create_subprocess_exec(*command, stdout=pipe, stderr=pipe)
    try:
        out, err = await asyncio.wait_for(child.communicate(), 90)
    except TimeoutError:
        child.kill()
        raise
    assert child.returncode == 0, err.decode()
    found: dict[str, Any] = json.loads(out)
    return found


async def test_aioxmpp(service: Service, account: tuple[str, str]) -> None:
    """The PubSubClient of aioxmpp creates, configures, affiliates, publishes, browses, subscribes, retracts and deletes."""
    node = f"aioxmpp-{secrets.token_hex(4)}"
    python = TOOLS / "aioxmpp" / "bin" / "python"
    assert python.exists(), "aioxmpp is missing: make .venv/.tools"
    port = str(service.ejabberd.c2s_port)
    did = await told(python, OUTSIDERS / "with_aioxmpp.py", "127.0.0.1", port, *account, DOMAIN, node)
    # The first of many that other tests have created.
    assert did.pop("nodes") > 0
    assert {"PUBLISH_OPTIONS", "LEASED_SUBSCRIPTION", "META_DATA"} <= set(did.pop("features"))
    assert did == {
        "title": ["Jobs"],
        "affiliations": {account[0]: "owner", "friend@localhost": "publisher"},
        "precondition": "conflict",
        "browsed": ["i1", "i2"],
        "newest": ["i2"],
        "subscribed": "subscribed",
        "credit": ["1"],
        "delivered": [node, "i1", "Job"],
        "retracted": [node, "i1"],
        "next": "i2",
        "deleted": [node, f"xmpp:{DOMAIN}?;node=other"],
    }


async def test_xmpp_client(service: Service) -> None:
    """The client @xmpp/client of npm does the same by stanzas of its own, and pages, releases, and subscribes for a time."""
    node = f"xmpp-js-{secrets.token_hex(4)}"
    place = (str(service.ejabberd.c2s_port), service.ejabberd.anonymous, DOMAIN, node)
    did = await told("node", OUTSIDERS / "with_xmpp_client.mjs", TOOLS / "node_modules", *place)
    assert did == {
        "title": "Jobs",
        "affiliations": ["owner", "publisher"],
        "listed": True,
        "counted": True,
        "browsed": [["i1", "i2"], ["i3"]],
        "without_options": "not-acceptable",
        "leased": True,
        "delivered": ["i1", "a < b & 'c'"],
        "unlocked": "unlock",
        "again": "i1",
        "retracted": "i1",
        "next": "i2",
        "reconfigured": "configuration",
        "deleted": ["delete", f"xmpp:{DOMAIN}?;node=other"],
    }


async def test_rhea(service: Service, join: Join) -> None:
    """E2, E12, E13, E16, E22 to E24, E26 to E28: npm's rhea sends, resumes, steals, is refused, drains, and works a queue."""
    owner = await join()
    node, queue = await owner.queue({QUEUEING_ENABLED: "0"}), await owner.queue({})
    with AmqpFrontend(service.redis.url, AMQP_PASSWORDS=f"{owner.bare}:{HASH}") as frontend:
        place = (str(frontend.port), owner.bare, PASSWORD, node, queue)
        did = await told("node", OUTSIDERS / "with_rhea.mjs", TOOLS / "node_modules", *place)
    annotations = [f"event-streams-{name}" for name in ("offset", "partition", "timestamp")]
    assert did == {
        "sent": ["accepted"] * 5,
        "elsewhere": "amqp:not-found",
        "begun": ["a", "b"],
        "told": ["text/plain", 12, annotations],
        "after": ["c", "d", "e"],
        "from": ["b", "c", "d", "e"],
        "keyed": ["e"],
        "owned": ["a"],
        "same_epoch": "amqp:resource-locked",
        "stolen": ["amqp:link:stolen", 4, "a"],
        "refused": ["amqp:not-found", "amqp:not-found", "amqp:invalid-field", "amqp:not-implemented"],
        "drained": [["a", "b", "c", "d", "e"], 0],
        "worked": [["one", 0], ["two", 0], ["two", 1], ["three", 0]],
        "dead": ["three", "no such page"],
    }


async def test_event_hubs(service: Service, join: Join) -> None:
    """E2, E14, E16, E19, E22, E27, E28: npm's @azure/event-hubs does all that it can; Python's SDK beside it sees the same."""
    owner = await join()
    hub = await owner.queue({QUEUEING_ENABLED: "0", "stanzaq#partitions": "3"})
    keys = f"sensors {owner.bare} {event_hubs.KEY}\n"
    keyed = [*(f"customer-{number}" for number in range(10)), "Łódź, ul. Piotrkowska", "客户"]
    with AmqpFrontend(service.redis.url, AMQP_EVENT_HUBS_KEYS=keys, AMQP_PASSWORDS="") as frontend:
        place = event_hubs.address(frontend, hub, "sensors")

        def sent() -> None:
            with event_hubs.sending(place) as client:
                event_hubs.send(client, "from", "Python", partition_id="2")

        def found(count: int) -> list[tuple[str, str]]:
            with event_hubs.reading(place) as reader:
                reader.until(lambda it: len(it.events) == count)
                return [(number, event_hubs.body(event)) for number, event in reader.events]

        await asyncio.to_thread(sent)
        did = await told("node", OUTSIDERS / "with_event_hubs.mjs", TOOLS / "node_modules", place, "2", *keyed)
        laters = did.pop("laters")
        events = await asyncio.to_thread(found, 36 + 2 * len(keyed) + laters)
    assert did == {
        "hub": [["0", "1", "2"], True],
        "ids": ["0", "1", "2"],
        "empty": True,
        "buffered": list(range(30)),
        "others": ["Python", "from"],
        "order": [["a", "b", "c"], True],
        "whole": [{"size": 12}, "k", "application/json", {"colour": "red", "size": 12}],
        "properties": [False, True, True],
        "places": ["c", "bc", "c", "bc", "abc", "later", "later"],
        "owner": "ReceiverDisconnectedError",
        "thief": "abc",
        "refused": ["ServiceCommunicationError"] * 2 + ["MessageTooLargeError"] * 2 + ["UnauthorizedError"] * 2,
    }
    texts = [
        "from",
        "Python",
        '{"size":12}',
        *["later"] * laters,
        *(f'"{each}"' for each in "abc"),
        *map(str, range(30)),
        *keyed * 2,
    ]
    assert sorted(text.strip('"') for _, text in events) == sorted(text.strip('"') for text in texts)
    # E14: a key has one partition, whether this SDK hashes it because it buffers, or leaves it to the service.
    assert len({(number, text.strip('"')) for number, text in events if text.strip('"') in keyed}) == len(keyed)
    assert [text for number, text in events if number == "2"][:2] == ["from", "Python"]
    assert [text.strip('"') for number, text in events if number == "0"][:3] == ["a", "b", "c"]
