"""Who may do what at each door: the table of docs/access.md, for nodes that are made with the service's defaults.

The XMPP door takes part without its server: its translators over a core of this process.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Final
from xml.etree import ElementTree as ET

import httpx
import pytest
from proton import Message
from pydantic import SecretStr

from broker.model.commands import Affiliate, Children, Declare, Describe, Publish, Stats, Subscribe
from broker.model.names import Jid
from broker.model.nodes.subscriptions import State
from broker.model.results import Declared, Described, Done, Published, Refused, Subscribed
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from frontends.tools.servers.redis import RedisServer, valkey_binary
from frontends.xmpp import namespaces as ns
from frontends.xmpp import requests
from frontends.xmpp.stanzas import Iq, Question
from tests.contract.conftest import Door
from tests.doors.amqp.served import AmqpFrontend, With, consumer, producer
from tests.doors.frontend import HASH
from tests.doors.rest.served import RestFrontend, client

SERVICE: Final = "queue.example.org"
STANDINGS: Final = ("owner", "publisher", "publish-only", "member", "none", "outcast")
SUBSCRIBE, READ, PUBLISH, SEE, OWN = "subscribe", "read", "publish", "see", "change"
DEFAULTS: Final = {"DEFAULT_ACCESS_MODEL": "whitelist", "NODE_CREATION": "local", "TRUSTED_DOMAINS": "example.com"}

_PAGE: Final = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
_ROWS: Final = re.findall(r"^\| (\w+)[^|]* \|((?: (?:yes|no) \|){6})$", _PAGE, re.MULTILINE)
TABLE: Final[dict[tuple[str, str], bool]] = {
    (row, standing): word == "yes"
    for row, words in _ROWS
    for standing, word in zip(STANDINGS, re.findall("yes|no", words), strict=True)
}
"""What the page says, by row and affiliation."""


def expected(row: str, standing: str, model: str) -> bool:
    """Return what the page says, and its sentences about the other access models."""
    if standing == "none" and model == "open" and row in {SUBSCRIBE, READ, SEE}:
        return TABLE[row, "member"]
    return TABLE[row, standing] or (standing == "none" and model == "authorize" and row == SEE)


def account(standing: str) -> Jid:
    """Return the account with an affiliation."""
    return Jid(f"{standing}@example.org")


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def rest(redis: RedisServer) -> Iterator[RestFrontend]:
    """Provide HTTP, with an account for each affiliation."""
    passwords = "\n".join(f"{account(each)}:{HASH}" for each in STANDINGS)
    passwords += f"\nstranger@elsewhere:{HASH}"
    with RestFrontend(redis.url, **DEFAULTS, HTTP_PASSWORDS=passwords, HTTP_ANONYMOUS="nobody@example.org") as found:
        yield found


@pytest.fixture(scope="module")
def amqp(redis: RedisServer) -> Iterator[AmqpFrontend]:
    """Provide AMQP likewise."""
    passwords = "\n".join(f"{account(each)}:{HASH}" for each in STANDINGS)
    with AmqpFrontend(redis.url, **DEFAULTS, AMQP_PASSWORDS=passwords) as found:
        yield found


@pytest.fixture
async def core(redis: RedisServer) -> AsyncIterator[RedisCore]:
    """Provide the core behind the XMPP door, with the service's defaults."""
    settings = Settings(
        redis_url=redis.url, xmpp_domain=SERVICE, xmpp_secret=SecretStr("s"), trusted_domains=(Jid("example.com"),)
    )
    core = RedisCore(settings, Door())
    await core.start()
    yield core
    await core.stop()


async def make(core: RedisCore, model: str) -> str:
    """Make a node with the defaults, or with another access model; each account gets its affiliation, and an item waits."""
    node, owner = f"jobs-{token_hex(4)}", account("owner")
    options = {} if model == "whitelist" else {"pubsub#access_model": (model,)}
    assert await core.ask(Declare(node, owner, options)) == Declared(node)
    changes = {account(each): each for each in STANDINGS[1:] if each != "none"}
    assert await core.ask(Affiliate(node, owner, changes)) == Done()
    assert isinstance(await core.ask(Publish(node, owner, "waits", b"x", 1)), Published)
    return node


async def over_xmpp(core: RedisCore, node: str, jid: Jid, row: str) -> list[bool]:
    """Return whether each request of a row succeeds over XMPP."""
    form = f"<x xmlns='{ns.FORM}' type='submit'><field var='pubsub#queue_requests'><value>1</value></field></x>"
    asked = {
        SUBSCRIBE: [
            ("set", ns.PUBSUB, f"<subscribe node='{node}' jid='{jid}/x'/><options>{form}</options>"),
        ],
        READ: [("get", ns.PUBSUB, f"<items node='{node}'/>")],
        PUBLISH: [("set", ns.PUBSUB, f"<publish node='{node}'><item><a xmlns='urn:a'/></item></publish>")],
        OWN: [
            ("get", ns.PUBSUB_OWNER, f"<configure node='{node}'/>"),
            ("get", ns.PUBSUB_OWNER, f"<affiliations node='{node}'/>"),
            ("get", ns.PUBSUB_OWNER, f"<subscriptions node='{node}'/>"),
            ("set", ns.PUBSUB_OWNER, f"<purge node='{node}'/>"),
        ],
    }
    if row == SEE:
        iq = ET.fromstring(f"<iq type='get'><query xmlns='{ns.DISCO_INFO}' node='{node}'/></iq>")
        question = requests.read(Iq("1", "get", Jid(f"{jid}/x"), SERVICE, iq))
        assert isinstance(question, Question)
        return [not isinstance(await core.ask(question.command), Refused)]
    outcomes = []
    for kind, space, inside in asked[row]:
        iq = ET.fromstring(f"<iq type='{kind}'><pubsub xmlns='{space}'>{inside}</pubsub></iq>")
        question = requests.read(Iq("1", kind, Jid(f"{jid}/x"), SERVICE, iq))
        assert isinstance(question, Question)
        outcome = await core.ask(question.command)
        # A request that waits for approval is no subscription.
        waits = isinstance(outcome, Subscribed) and outcome.state is State.PENDING
        outcomes.append(not isinstance(outcome, Refused) and not waits)
    return outcomes


def over_http(frontend: RestFrontend, node: str, jid: Jid, row: str) -> list[bool]:
    """Return whether each request of a row succeeds over HTTP."""
    asked: dict[str, list[tuple[str, str, object]]] = {
        SUBSCRIBE: [("POST", "/subscriptions", {"destinations": [node]})],
        READ: [("GET", f"/queues/{node}", None), ("GET", f"/histories/{node}", None)],
        PUBLISH: [("POST", f"/queues/{node}", {"a": 1})],
        OWN: [
            ("PATCH", f"/queues/{node}", {"options": {"pubsub#title": "T"}}),
            ("GET", f"/affiliations/{node}", None),
            ("PATCH", f"/affiliations/{node}", {"affiliations": {"new@example.org": "member"}}),
            ("GET", f"/requests/{node}", None),
            ("POST", f"/requests/{node}", {"jid": "new@example.org", "allow": False}),
            ("GET", f"/subscribers/{node}", None),
            ("GET", f"/surveys/{node}", None),
            ("GET", f"/schedules/{node}", None),
            ("POST", f"/purges/{node}", None),
        ],
    }
    with client(frontend, jid) as http:
        found = [http.request(method, path, json=body) for method, path, body in asked.get(row, [])]
    assert {each.status_code for each in found} <= {200, 201, 204, 403}, [each.text for each in found]
    return [each.is_success for each in found]


def over_amqp(frontend: AmqpFrontend, node: str, jid: Jid, row: str) -> list[bool]:
    """Return whether a link of a row is attached and used over AMQP."""
    attempt = partial(frontend.lets, jid)
    match row:
        case "subscribe":
            return [attempt(lambda to: consumer(to, node))]
        case "read":
            return [attempt(lambda to: consumer(to, node, With(copies=True)))]
        case "publish":
            return [attempt(lambda to: producer(to, node).send(Message(body="x")))]
    return []


@pytest.mark.parametrize("model", ["whitelist", "open", "authorize"])
async def test_rights(core: RedisCore, rest: RestFrontend, amqp: AmqpFrontend, model: str) -> None:
    """Each affiliation, each request, each door: what docs/access.md says; a new node is closed by default."""
    assert {row for row, _ in TABLE} == {SUBSCRIBE, READ, PUBLISH, SEE, OWN}
    node = await make(core, model)
    for row in (SEE, READ, PUBLISH, OWN, SUBSCRIBE):
        for standing in STANDINGS:
            jid, wanted = account(standing), expected(row, standing, model)
            for door, found in (
                ("xmpp", await over_xmpp(core, node, jid, row)),
                ("http", await asyncio.to_thread(over_http, rest, node, jid, row)),
                ("amqp", await asyncio.to_thread(over_amqp, amqp, node, jid, row)),
            ):
                assert set(found) <= {wanted}, (row, standing, door, found)


async def test_who_creates_nodes_over_xmpp(core: RedisCore) -> None:
    """By default accounts of the domain above the service's, and of trusted ones."""
    for jid, may in (
        ("new@example.org", True),
        ("new@example.com", True),
        ("new@sub.example.org", False),
        ("a@b", False),
    ):
        outcome = await core.ask(Declare(f"of-{jid}-{token_hex(4)}", Jid(jid), {}))
        assert isinstance(outcome, Declared) == may, outcome


def test_who_creates_nodes_over_http(rest: RestFrontend) -> None:
    """Whoever logs in, of any domain, but not the anonymous account."""
    with client(rest, Jid("stranger@elsewhere")) as http, httpx.Client(base_url=rest.url) as nobody:
        assert http.put(f"/queues/by-{token_hex(4)}").status_code == 201
        refused = nobody.put(f"/queues/by-{token_hex(4)}")
        assert (refused.status_code, "you may not create nodes here" in refused.text) == (403, True)


async def test_defaults_of_a_new_node(core: RedisCore) -> None:
    """The access model is written into the record of a node when it is made: another default changes no node."""
    closed, opened = await make(core, "whitelist"), await make(core, "open")
    shown = [(await core.ask(Describe(node, account("owner"), as_owner=True))) for node in (closed, opened)]
    assert [each.record.config.access_model.value for each in shown if isinstance(each, Described)] == [
        "whitelist",
        "open",
    ]


async def test_what_a_closed_node_tells(core: RedisCore, rest: RestFrontend) -> None:
    """Who may publish and not read learns no other account, no count and no child (A5)."""
    node = await make(core, "whitelist")
    told = await core.ask(Describe(node, account("publish-only"), as_owner=False))
    assert isinstance(told, Described) and not told.reads
    assert (set(told.record.affiliations), told.record.creator) == ({account("publish-only")}, None)
    assert isinstance(await core.ask(Stats(node, account("publish-only"))), Refused)
    assert isinstance(await core.ask(Children(node, account("none"))), Refused)
    with client(rest, account("publish-only")) as http:
        assert node not in http.get("/overview").text


async def test_requests_over_http(core: RedisCore, rest: RestFrontend) -> None:
    """An owner lists who asks, refuses one and approves another, who is a member then."""
    node = await make(core, "authorize")
    asking = [Jid(f"{name}@example.org/x") for name in ("one", "two")]
    for jid in asking:
        assert isinstance(await core.ask(Subscribe(node, jid, jid, 1)), Subscribed)

    def decide() -> None:
        with client(rest, account("owner")) as http:
            shown = http.get(f"/requests/{node}").json()
            assert {each["jid"] for each in shown["requests"]} == set(asking)
            for jid, allow in zip(asking, (False, True), strict=True):
                http.post(f"/requests/{node}", json={"jid": jid, "allow": allow}).raise_for_status()
            assert http.get(f"/requests/{node}").json() == {"requests": []}
            held = http.get(f"/affiliations/{node}").json()["affiliations"]
            assert held.get("two@example.org") == "member" and "one@example.org" not in held

    await asyncio.to_thread(decide)


@pytest.mark.parametrize(
    ("path", "body", "wrong"),
    [
        ("affiliations", {"affiliations": {"a@x": "king"}}, "each with one of member, none,"),
        ("affiliations", {"affiliations": {"a@x": []}}, "each with one of"),
        ("affiliations", {"affiliations": {}}, "an object of bare JIDs"),
        ("affiliations", {"affiliations": {"a@x/1": "member", "A@x": "member"}}, "two names stand for one bare JID"),
        ("affiliations", {"affiliations": {"@": "member"}}, "affiliations: "),
        ("affiliations", {"affiliations": {"owner@example.org": "none"}}, "a node keeps at least one owner"),
        ("affiliations", {"members": []}, "an object with some of affiliations"),
        ("requests", {"jid": "a@x"}, "name a jid, and allow as true or false"),
        ("requests", {"jid": "a@x", "allow": "yes"}, "name a jid, and allow as true or false"),
        ("requests", {"jid": "@", "allow": True}, "jid: "),
    ],
)
async def test_wrong_admissions(core: RedisCore, rest: RestFrontend, path: str, body: object, wrong: str) -> None:
    """Each is refused with what is wrong, and changes nothing."""
    node = await make(core, "whitelist")

    def attempt() -> None:
        with client(rest, account("owner")) as http:
            before = http.get(f"/affiliations/{node}").json()
            refused = http.request({"affiliations": "PATCH", "requests": "POST"}[path], f"/{path}/{node}", json=body)
            assert refused.status_code in {400, 406, 409, 422} and wrong in refused.json()["detail"], refused.text
            assert http.get(f"/affiliations/{node}").json() == before

    await asyncio.to_thread(attempt)
