"""What each role may do at each door: the column `role` of the registry, which docs/access.md tells in words.

The XMPP door takes part without its server: its translators over a core of this process.
"""

import asyncio
import re
from collections.abc import AsyncIterator, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from secrets import token_hex
from typing import Any, Final
from xml.etree import ElementTree as ET

import pytest
from proton import Message
from proton.utils import BlockingConnection
from pydantic import SecretStr

from broker.model.commands import admin, items, log, nodes, schedules, subscriptions
from broker.model.names import Jid
from broker.model.nodes.schedules import Schedule
from broker.model.problems import Problem
from broker.model.results import Declared, Published, Refused, Unaffiliated
from broker.model.roles import Role, read_roles
from broker.redis_core.commands import admin_parts, dependency_parts, internal
from broker.redis_core.core import RedisCore
from broker.redis_core.registry.rows import ROLES
from broker.settings import NodeCreation, Settings
from frontends.tools.servers.redis import RedisServer, valkey_binary
from frontends.xmpp import namespaces as ns
from frontends.xmpp import requests
from frontends.xmpp.stanzas import Iq, Question
from tests.contract.conftest import Door
from tests.doors.amqp.served import AmqpFrontend, With, consumer, producer
from tests.doors.frontend import HASH
from tests.doors.rest.served import RestFrontend, client

SERVICE: Final = "queue.example.org"
OWNER, WAITS = Jid("owner@example.net"), "waits"
NOBODY: Final = "nobody"
ROLE_LINES: Final = "viewer@example.org viewer\noperators.example.org operator\nadmin@example.org admin\n"
ACCOUNTS: Final = {
    NOBODY: Jid("nobody@example.org"),
    "viewer": Jid("viewer@example.org"),
    "operator": Jid("any@operators.example.org"),
    "admin": Jid("admin@example.org"),
}
_PAGE: Final = (Path(__file__).parents[2] / "docs" / "access.md").read_text()
_ROWS: Final = re.findall(r"^\| ([^|]+) \|((?: (?:yes|no) \|){3})$", _PAGE, re.MULTILINE)
LOOK, RUN, CHANGE = (words for words, _ in _ROWS)

REQUESTS: Final[dict[str, list[Any]]] = {
    LOOK: [
        items.Browse("n", OWNER, (), 10),
        log.Read("n", OWNER, 0, "earliest", 1),
        log.Partitions("n", OWNER),
        subscriptions.ListSubscribers("n", OWNER),
        subscriptions.ListRequests("n", OWNER),
        nodes.Describe("n", OWNER, as_owner=True),
        nodes.Stats("n", OWNER),
        nodes.Children("n", OWNER),
        schedules.ListSchedules("n", OWNER, 10),
        admin.InspectItems("n", OWNER, (), 10),
        admin.ShowHistory("n", OWNER),
        admin.ListEnds("n", OWNER, 10),
        admin.Frontends(OWNER),
        admin.ListQuotas(OWNER),
    ],
    RUN: [
        nodes.Configure("n", OWNER, {"stanzaq#state": ("paused",)}),
        schedules.PauseSchedule("n", OWNER, "s", paused=True),
        admin.Release("n", OWNER, (), Jid("worker@example.net")),
        admin.MoveItems("n", OWNER, None, (), "", 10),
        items.Cancel("n", OWNER, WAITS),
        nodes.Purge("n", OWNER),
    ],
    CHANGE: [
        nodes.Configure("n", OWNER, {"pubsub#title": ("T",)}),
        items.Publish("n", OWNER, None, b"x", 1),
        subscriptions.Affiliate("n", OWNER, {Jid("new@example.net"): "member"}),
        subscriptions.ManageSubscribers("n", OWNER, ()),
        subscriptions.Approve("n", OWNER, Jid("new@example.net"), "", allow=False),
        subscriptions.SendPending("n", OWNER),
        schedules.PutSchedule("n", OWNER, Schedule("more", every_ms=3_600_000), b"x", 1),
        schedules.RemoveSchedule("n", OWNER, "s"),
        nodes.Associate("c", OWNER, "n"),
        nodes.Dissociate("c", OWNER, "n"),
        admin.SetQuota(OWNER, "example.net", None),
        admin.ImportItem("n", OWNER, None, b"x", OWNER, "t"),
        admin.RestoreNode("n", OWNER, 0, check=True),
        admin.Erase("n", OWNER, 0, Jid("gone@example.net")),
        admin.NoteErasure(OWNER, Jid("gone@example.net")),
        admin.Disconnect(OWNER, "?"),
        nodes.Declare(None, OWNER, {}),
        nodes.Delete("n", OWNER),
    ],
}
"""Commands of each row of docs/access.md, in an order in which all can be carried out."""

WIDER: Final = {nodes.Nodes, admin.Overview, subscriptions.ListPending, items.ReadOutcome}
"""Commands that everybody may give, and whose answer is about what is another's too for who has the role."""

PARTS: Final = {
    admin_parts.InspectPartition: admin.InspectItems,
    admin_parts.MoveFromPartition: admin.MoveItems,
    dependency_parts.PublishDependent: items.Publish,
    internal.LogExtent: log.Partitions,
}
"""Parts of commands, which need the role of the whole."""


def expected(account: str, command: Any) -> bool:  # noqa: ANN401  (any command)
    """Return whether a role is enough for a command, by the table."""
    needed = ROLES[type(command)]
    least = needed(command) if callable(needed) else needed
    return account != NOBODY and Role[account.upper()] >= least


def test_documented() -> None:
    """docs/access.md says for each command which role is needed, and names none that is not in the table."""
    for row, words in _ROWS:
        said = dict(zip(("viewer", "operator", "admin"), re.findall("yes|no", words), strict=True))
        for command in REQUESTS[row]:
            assert {role: ("no", "yes")[expected(role, command)] for role in said} == said, command
    known = {type(command) for row in REQUESTS.values() for command in row}
    assert set(ROLES) == known | WIDER | set(PARTS)
    assert all(ROLES[kind] is Role.VIEWER for kind in WIDER)
    assert all(ROLES[part] is ROLES[whole] for part, whole in PARTS.items())


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture
async def core(redis: RedisServer) -> AsyncIterator[RedisCore]:
    """Provide a core where nobody but an administrator makes nodes."""
    settings = Settings(
        redis_url=redis.url,
        xmpp_domain=SERVICE,
        xmpp_secret=SecretStr("s"),
        roles=read_roles(ROLE_LINES),
        admins=(OWNER,),
        node_creation=NodeCreation.ADMINS,
    )
    core = RedisCore(settings, Door())
    await core.start()
    yield core
    await core.stop()


async def make(core: RedisCore) -> tuple[str, str]:
    """Make a closed queue of a stranger with an item and a schedule, and a collection."""
    node = f"jobs-{token_hex(4)}"
    assert await core.ask(nodes.Declare(node, OWNER, {})) == Declared(node)
    above = {"pubsub#node_type": ("collection",)}
    # An affiliation that lets do less takes nothing from a role.
    barred = {ACCOUNTS[each]: "outcast" for each in ("viewer", "operator", "admin")}
    assert await core.ask(nodes.Declare(f"{node}-all", OWNER, above)) == Declared(f"{node}-all")
    assert isinstance(await core.ask(items.Publish(node, OWNER, WAITS, b"x", 1)), Published)
    assert not isinstance(await core.ask(subscriptions.Affiliate(f"{node}-all", OWNER, barred)), Refused)
    put = schedules.PutSchedule(node, OWNER, Schedule("s", every_ms=3_600_000), b"x", 1)
    assert not isinstance(await core.ask(put), Refused)
    return node, f"{node}-all"


def is_refused(outcome: object) -> bool:
    """Return whether somebody may not do something; another refusal is of what is asked."""
    rights = {Problem.FORBIDDEN, Problem.CLOSED_NODE, Problem.APPROVAL_REQUIRED}
    return isinstance(outcome, Refused | Unaffiliated) and outcome.problem in rights


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_each_command(core: RedisCore, account: str) -> None:
    """Each command of the table, by each role: on a node of others an owner's affiliation is not needed, and none gained."""
    node, above = await make(core)
    names = {"n": node, "c": above}
    for row, commands in REQUESTS.items():
        for command in commands:
            given = replace(command, sender=Jid(f"{ACCOUNTS[account]}/x"))
            if name := names.get(getattr(command, "node", None) or ""):
                given = replace(given, node=name)
            if isinstance(given, nodes.Associate | nodes.Dissociate):
                given = replace(given, child=node)
            outcome = await core.ask(given)
            assert is_refused(outcome) is not expected(account, command), (row, command, outcome)
    overview = await core.ask(admin.Overview(ACCOUNTS[account], 0, 100))
    shown = {each.record.name: each.standing for each in overview.nodes}  # type: ignore[union-attr]
    assert shown.get(above) == {NOBODY: None, "admin": "owner"}.get(account, account)
    listed = await core.ask(nodes.Nodes(ACCOUNTS[account]))
    assert (above in listed.nodes) is (account != NOBODY)  # type: ignore[union-attr]


FORM: Final = f"<x xmlns='{ns.FORM}' type='submit'><field var='pubsub#queue_requests'><value>1</value></field></x>"

XMPP: Final = {
    nodes.Describe: ("get", ns.PUBSUB_OWNER, "<configure node='{}'/>"),
    items.Browse: ("get", ns.PUBSUB, "<items node='{}'/>"),
    subscriptions.ListSubscribers: ("get", ns.PUBSUB_OWNER, "<subscriptions node='{}'/>"),
    nodes.Purge: ("set", ns.PUBSUB_OWNER, "<purge node='{}'/>"),
    subscriptions.Affiliate: (
        "set",
        ns.PUBSUB_OWNER,
        "<affiliations node='{}'><affiliation jid='x@example.net' affiliation='member'/></affiliations>",
    ),
    items.Publish: ("set", ns.PUBSUB, "<publish node='{}'><item><a xmlns='urn:a'/></item></publish>"),
    subscriptions.Subscribe: (
        "set",
        ns.PUBSUB,
        f"<subscribe node='{{}}' jid='JID'/><options>{FORM}</options>",
    ),
    nodes.Delete: ("set", ns.PUBSUB_OWNER, "<delete node='{}'/>"),
}
"""Requests over XMPP, by their commands."""


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_over_xmpp(core: RedisCore, account: str) -> None:
    """Requests over XMPP; what lasts, a subscription, needs an affiliation."""
    node, _above = await make(core)
    jid = ACCOUNTS[account]
    for kind, (way, space, inside) in XMPP.items():
        asked = inside.format(node).replace("JID", f"{jid}/x")
        iq = ET.fromstring(f"<iq type='{way}'><pubsub xmlns='{space}'>{asked}</pubsub></iq>")
        question = requests.read(Iq("1", way, Jid(f"{jid}/x"), SERVICE, iq))
        assert isinstance(question, Question) and type(question.command) is kind
        may = kind in ROLES and expected(account, question.command)
        assert is_refused(await core.ask(question.command)) is not may, kind


HTTP: Final[list[tuple[type, str, str, object]]] = [
    (nodes.Stats, "GET", "/queues/{}", None),
    (admin.ShowHistory, "GET", "/histories/{}", None),
    (nodes.Describe, "GET", "/affiliations/{}", None),
    (subscriptions.ListRequests, "GET", "/requests/{}", None),
    (subscriptions.ListSubscribers, "GET", "/subscribers/{}", None),
    (admin.InspectItems, "GET", "/surveys/{}", None),
    (schedules.ListSchedules, "GET", "/schedules/{}", None),
    (admin.Frontends, "GET", "/frontends", None),
    (admin.ListQuotas, "GET", "/quotas", None),
    (schedules.PauseSchedule, "PATCH", "/schedule/{}/s", {"paused": True}),
    (nodes.Purge, "POST", "/purges/{}", None),
    (items.Publish, "POST", "/queues/{}", {"a": 1}),
    (subscriptions.Affiliate, "PATCH", "/affiliations/{}", {"affiliations": {"new@example.net": "member"}}),
    (admin.SetQuota, "PUT", "/quotas/example.net", {"nodes": 7}),
    (nodes.Delete, "DELETE", "/queues/{}", None),
]
"""Requests over HTTP, which the page makes too, with the command that needs a role."""


@pytest.fixture(scope="module")
def rest(redis: RedisServer) -> Iterator[RestFrontend]:
    """Provide HTTP with an account of each role."""
    passwords = "\n".join(f"{each}:{HASH}" for each in ACCOUNTS.values())
    settings = {"DEFAULT_ACCESS_MODEL": "whitelist", "HTTP_PASSWORDS": passwords, "ROLES": ROLE_LINES}
    with RestFrontend(redis.url, **settings) as found:
        yield found


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_over_http(core: RedisCore, rest: RestFrontend, account: str) -> None:
    """The same over HTTP, also the state of a queue, which an operator may change, among its options, which it may not."""
    node, _above = await make(core)

    def ask() -> None:
        with client(rest, ACCOUNTS[account]) as http:
            for options, least in ({"stanzaq#state": "running"}, Role.OPERATOR), ({"pubsub#title": "T"}, Role.ADMIN):
                answer = http.patch(f"/queues/{node}", json={"options": options})
                may = account != NOBODY and Role[account.upper()] >= least
                assert answer.status_code == (200 if may else 403), answer.text
            for kind, method, path, body in HTTP:
                needed = ROLES[kind]
                assert isinstance(needed, Role)
                may = account != NOBODY and Role[account.upper()] >= needed
                answer = http.request(method, path.format(node), json=body)
                assert (answer.status_code != 403) is may, (method, path, answer.text)
                assert answer.status_code < 500 and (answer.is_success or not may), (method, path, answer.text)

    await asyncio.to_thread(ask)


@pytest.mark.parametrize("account", ACCOUNTS)
async def test_over_amqp(core: RedisCore, redis: RedisServer, account: str) -> None:
    """Over AMQP a viewer reads copies, an admin publishes, and nobody works on items by a role."""
    node, _above = await make(core)
    passwords = f"{ACCOUNTS[account]}:{HASH}"
    settings = {"DEFAULT_ACCESS_MODEL": "whitelist", "AMQP_PASSWORDS": passwords, "ROLES": ROLE_LINES}

    def use(kind: type, connection: BlockingConnection) -> None:
        match kind:
            case items.Publish:
                producer(connection, node).send(Message(body="x"))
            case _:
                consumer(connection, node, With(copies=kind is items.Browse))

    def ask_all() -> None:
        with AmqpFrontend(redis.url, **settings) as frontend:
            for kind in (items.Browse, items.Publish, subscriptions.Subscribe):
                needed = ROLES.get(kind)
                may = account != NOBODY and isinstance(needed, Role) and Role[account.upper()] >= needed
                assert frontend.lets(ACCOUNTS[account], partial(use, kind)) is may, kind

    await asyncio.to_thread(ask_all)
