"""Groups of tokens over HTTP and AMQP: what their affiliations let do, and which subscriptions they keep.

Owners change affiliations at a third process, the core of this one, which sees no tokens.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from secrets import token_hex
from typing import Any, Final

import httpx
import pytest
from proton import Message
from proton.utils import BlockingReceiver, LinkDetached, SendException

from broker import codec
from broker.model.commands import Affiliate, Configure, Declare, ManageSubscribers, Publish, Stats, Subscribe
from broker.model.items.items import Envelope
from broker.model.items.qos import Qos
from broker.model.names import Jid
from broker.model.nodes.pull_subscriptions import new_pull_name, pull_jid
from broker.model.nodes.subscriptions import Change
from broker.model.problems import CoreUnavailable, Problem
from broker.model.results import Counted, Declared, Done, Published, Subscribed
from broker.model.roles import Said
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings, NodeCreation
from frontends.logins.tokens import LEEWAY_SECONDS
from frontends.tools.servers.redis import RedisServer, valkey_binary
from tests.contract.conftest import Door
from tests.doors.amqp.served import AmqpFrontend, consumer, producer
from tests.doors.frontend import ALICE, HASH
from tests.doors.rest.served import RestFrontend, client, problem
from tests.doors.tokens import PEM, TRUSTED, signed
from tests.waiting import PATIENCE_SECONDS

OWNER: Final = Jid(ALICE)
CAROL: Final = Jid("carol@example.org")
SETTINGS: Final = {
    "DEFAULT_ACCESS_MODEL": "whitelist",
    "JWT_KEYS": PEM,
    "JWT_GROUP_CLAIM": "realm_access.groups",
    **TRUSTED,
}
ITEM: Final = codec.pack(Envelope(b"<x/>"))
PASSWORDS: Final = f"{OWNER}:{HASH}\n{CAROL}:{HASH}\n"


@pytest.fixture(scope="module")
def redis() -> Iterator[RedisServer]:
    """Provide a server for these tests alone."""
    with RedisServer(binary=valkey_binary()) as server:
        yield server


@pytest.fixture(scope="module")
def rest(redis: RedisServer) -> Iterator[RestFrontend]:
    """Provide HTTP."""
    with RestFrontend(redis.url, HTTP_PASSWORDS=PASSWORDS, **SETTINGS) as found:
        yield found


@pytest.fixture(scope="module")
def amqp(redis: RedisServer) -> Iterator[AmqpFrontend]:
    """Provide AMQP."""
    with AmqpFrontend(redis.url, AMQP_PASSWORDS=PASSWORDS, **SETTINGS) as found:
        yield found


@pytest.fixture
async def core(redis: RedisServer) -> AsyncIterator[RedisCore]:
    """Provide a core that knows no tokens."""
    core = RedisCore(CommandSettings(redis_url=redis.url, node_creation=NodeCreation.ANYONE), Door())
    await core.start()
    yield core
    await core.stop()


async def made(core: RedisCore, groups: dict[str, str], **options: str) -> str:
    """Make a queue with an item, and with affiliations of groups."""
    node = f"jobs-{token_hex(4)}"
    fields = {name.replace("__", "#"): (value,) for name, value in options.items()}
    assert await core.ask(Declare(node, OWNER, fields)) == Declared(node)
    if groups:
        await affiliated(core, node, groups)
    if "pubsub#node_type" not in fields:
        assert isinstance(await core.ask(Publish(node, OWNER, None, ITEM, 4)), Published)
    return node


async def affiliated(core: RedisCore, node: str, changes: dict[str, str]) -> None:
    """Let the owner change affiliations."""
    assert await core.ask(Affiliate(node, OWNER, {Jid(name): each for name, each in changes.items()})) == Done()


async def count(core: RedisCore, node: str) -> tuple[int, int]:
    """Return how many subscribers a queue has, and how many items are held."""
    counted = await core.ask(Stats(node, OWNER))
    assert isinstance(counted, Counted)
    return counted.subscribers, counted.in_flight


def token(*groups: str, jid: str = CAROL, **claims: Any) -> str:  # noqa: ANN401
    """Sign a token of groups; each is newer than those before it."""
    issued = {"iat": time.time() - 5}
    return signed(sub=jid, realm_access={"groups": [each.removeprefix("group:") for each in groups]}, **issued | claims)


def ask(rest: RestFrontend, bearer: str, method: str, path: str, body: object = None) -> httpx.Response:
    """Send a request with a token."""
    with client(rest, Authorization=f"Bearer {bearer}", Accept="application/json") as http:
        return http.request(method, path, json=body)


def leased(rest: RestFrontend, bearer: str, *destinations: str) -> str:
    """Subscribe over HTTP, and return the path of the subscription."""
    answer = ask(rest, bearer, "POST", "/subscriptions", {"destinations": list(destinations), "prefetch": 1})
    assert answer.status_code == 201, answer.text
    return answer.headers["Location"].removeprefix(rest.url)


TEAM, LEADS, BOTS, OUT = "group:queue-team", "group:/leads", "group:bots", "group:out"
RIGHTS: Final = {TEAM: "member", LEADS: "owner", BOTS: "publish-only", OUT: "outcast"}


@pytest.mark.parametrize(
    ("groups", "outcome"),
    [
        ((), (None, (403, 403, 403, 403))),
        (("example.org", "Queue-Team"), (None, (403, 403, 403, 403))),
        ((TEAM,), ("member", (200, 403, 201, 403))),
        ((BOTS,), (None, (403, 201, 403, 403))),
        ((BOTS, TEAM), ("publisher", (200, 201, 201, 403))),
        ((TEAM, LEADS), ("owner", (200, 201, 201, 200))),
        ((LEADS, OUT), (None, (403, 403, 403, 403))),
    ],
)
async def test_rights(
    core: RedisCore,
    rest: RestFrontend,
    amqp: AmqpFrontend,
    groups: tuple[str, ...],
    outcome: tuple[str | None, tuple[int, ...]],
) -> None:
    """The groups of a token together give what its account may do, at both doors, and on lists."""
    node = await made(core, RIGHTS)
    bearer = token(*groups)
    standing, may = outcome

    def check() -> None:
        requests: list[tuple[str, str, object]] = [
            ("GET", f"/queues/{node}", None),
            ("POST", f"/queues/{node}", {"a": 1}),
            ("POST", "/subscriptions", {"destinations": [node]}),
            ("PATCH", f"/affiliations/{node}", {"affiliations": {"group:new": "member"}}),
        ]
        for wanted, (method, path, body) in zip(may, requests, strict=True):
            answer = ask(rest, bearer, method, path, body)
            assert answer.status_code == wanted, (method, path, answer.text)
        shown = {
            each["name"]: each["standing"] for each in ask(rest, bearer, "GET", "/overview?limit=200").json()["queues"]
        }
        assert shown.get(node) == standing
        connection = amqp.connect(CAROL, bearer)
        for code, attach in (
            (may[1], lambda: producer(connection, node).send(Message(body="x"))),
            (may[2], lambda: consumer(connection, node)),
        ):
            assert succeeds(attach) is (code < 300)
        connection.close()

    await asyncio.to_thread(check)


def succeeds(attach: Callable[[], object]) -> bool:
    """Return whether a link is let in."""
    try:
        attach()
    except (LinkDetached, SendException):
        return False
    return True


async def test_own_and_domain(core: RedisCore, rest: RestFrontend) -> None:
    """An account's own affiliation counts before those of its groups, and these before its domain's."""
    node = await made(core, {OUT: "outcast", TEAM: "member", "example.org": "publisher"})

    def may(*groups: str) -> tuple[int, int]:
        bearer = token(*groups)
        return (
            ask(rest, bearer, "GET", f"/queues/{node}").status_code,
            ask(rest, bearer, "POST", f"/queues/{node}", {}).status_code,
        )

    assert await asyncio.to_thread(may) == (200, 201)
    assert await asyncio.to_thread(may, TEAM) == (200, 403)
    assert await asyncio.to_thread(may, OUT) == (403, 403)
    await affiliated(core, node, {CAROL: "publish-only"})
    assert await asyncio.to_thread(may, OUT, TEAM) == (403, 201)


async def test_changes_elsewhere(core: RedisCore, rest: RestFrontend, amqp: AmqpFrontend) -> None:
    """An owner's changes elsewhere leave subscriptions by a group alone while it has access, and end them when it has not."""
    node = await made(core, {TEAM: "member"})
    bearer = token(TEAM)
    lease = await asyncio.to_thread(leased, rest, bearer, node)
    assert (await asyncio.to_thread(ask, rest, bearer, "GET", lease)).json()["messages"]
    link: BlockingReceiver = await asyncio.to_thread(lambda: consumer(amqp.connect(CAROL, bearer), node, credit=1))
    assert isinstance(await core.ask(Publish(node, OWNER, None, ITEM, 4)), Published)
    await asyncio.to_thread(link.receive, PATIENCE_SECONDS)
    for changes in ({"group:other": "member"}, {"group:other": "none", "dave@example.org": "member"}):
        await affiliated(core, node, changes)
    assert await core.ask(Configure(node, OWNER, {"pubsub#title": ("T",)})) == Done()
    assert await count(core, node) == (2, 2)
    await affiliated(core, node, {TEAM: "none"})
    assert await count(core, node) == (0, 0)
    assert (await asyncio.to_thread(ask, rest, bearer, "GET", lease)).status_code == 403
    with pytest.raises(LinkDetached):
        await asyncio.to_thread(link.receive, PATIENCE_SECONDS)


async def test_barred(core: RedisCore, rest: RestFrontend) -> None:
    """A group can be barred from an open queue; its subscriptions end, and those of others stay."""
    node = await made(core, {}, pubsub__access_model="open")
    theirs = await asyncio.to_thread(leased, rest, token(TEAM), node)
    others = await asyncio.to_thread(leased, rest, token(LEADS, jid="dave@example.org"), node)
    await affiliated(core, node, {TEAM: "outcast"})
    assert (await count(core, node))[0] == 1
    assert (await asyncio.to_thread(ask, rest, token(TEAM), "GET", theirs)).status_code != 200
    assert (await asyncio.to_thread(ask, rest, token(LEADS, jid="dave@example.org"), "GET", others)).status_code == 200


async def test_a_newer_token(core: RedisCore, rest: RestFrontend, amqp: AmqpFrontend) -> None:
    """Who has lost a group by a newer token gets nothing more by what it has begun; an older token is no way back."""
    node = await made(core, {TEAM: "member"})
    older = token(TEAM, iat=time.time() - 5)
    lease = await asyncio.to_thread(leased, rest, older, node)

    def lose() -> None:
        newer = token("other")
        for bearer in (newer, older):
            assert problem(ask(rest, bearer, "GET", lease))[0] == 403
            assert problem(ask(rest, bearer, "GET", f"/queues/{node}"))[0] == 403
        connection = amqp.connect(CAROL, older)
        link = consumer(connection, node, credit=0)
        amqp.connect(CAROL, newer).close()
        link.flow(1)
        with pytest.raises(LinkDetached):
            link.receive(PATIENCE_SECONDS)
        connection.close()

    await asyncio.to_thread(lose)


async def test_an_ended_token(core: RedisCore, rest: RestFrontend) -> None:
    """When a token has ended its groups count no more: neither for a login without one, nor for what its account has begun."""
    node = await made(core, {TEAM: "member"})
    ends = int(time.time()) + 2
    bearer = token(TEAM, exp=ends - LEEWAY_SECONDS)
    lease = await asyncio.to_thread(leased, rest, bearer, node)
    await affiliated(core, node, {"group:other": "member"})
    assert (await count(core, node))[0] == 1
    while time.time() < ends:  # noqa: ASYNC110  (the clock tells nobody)
        await asyncio.sleep(0.02)

    def come() -> None:
        assert ask(rest, bearer, "GET", lease).status_code == 401
        with client(rest, CAROL) as http:
            assert problem(http.get(lease))[0] == problem(http.get(f"/queues/{node}"))[0] == 403

    await asyncio.to_thread(come)
    # What it holds stays until its locks end, unless the group loses access.
    await affiliated(core, node, {"group:other": "none"})
    assert (await count(core, node))[0] == 1
    await affiliated(core, node, {TEAM: "none"})
    assert (await count(core, node))[0] == 0


async def test_an_older_token_elsewhere(redis: RedisServer, core: RedisCore) -> None:
    """A change judges subscriptions by the newest token that any frontend has seen, in whatever order they were seen."""
    node, jid = await made(core, {TEAM: "member"}), Jid("frank@example.org")
    seen = RedisCore(CommandSettings(redis_url=redis.url, node_creation=NodeCreation.ANYONE), None, "rest")
    now, lease = time.time(), pull_jid(jid, new_pull_name(60))
    try:
        await seen.note_token(jid, Said(None, now, now + 60, (Jid(TEAM),)))
        assert isinstance(await seen.ask(Subscribe(node, jid, lease, 1, Qos.PULLED, lease_ms=60_000)), Subscribed)
        await core.note_token(jid, Said(None, now - 10, now + 30, ()))
        await affiliated(core, node, {"group:other": "member"})
        assert (await count(core, node))[0] == 1
        await core.note_token(jid, Said(None, now + 1, now + 30, ()))
        await affiliated(core, node, {"group:other": "none"})
        assert (await count(core, node))[0] == 0
    finally:
        await seen.stop()


async def test_through_a_collection(core: RedisCore, rest: RestFrontend) -> None:
    """What a group holds through a collection stays when the tree changes elsewhere, and ends with its affiliation."""
    above = await made(core, {TEAM: "member"}, pubsub__node_type="collection")
    node = await made(core, {TEAM: "member"}, pubsub__collection=above)
    bearer = token(TEAM)
    lease = await asyncio.to_thread(leased, rest, bearer, above)
    held = await asyncio.to_thread(ask, rest, bearer, "GET", f"{lease}?wait=20")
    assert len(held.json()["messages"]) == 1

    await affiliated(core, node, {"group:other": "member"})
    assert (await count(core, node))[1] == 1
    await affiliated(core, node, {TEAM: "none"})
    assert (await count(core, node))[1] == 0


async def test_over_xmpp(redis: RedisServer, core: RedisCore) -> None:
    """Nobody has groups over XMPP: nothing that was asked for there is made or kept by a token, wherever that has come."""
    node = await made(core, {TEAM: "member"}, pubsub__access_model="authorize")
    seen = RedisCore(CommandSettings(redis_url=redis.url, node_creation=NodeCreation.ANYONE), None, "rest")
    jid = Jid(f"{CAROL}/phone")
    try:
        await seen.note_token(CAROL, Said(None, time.time(), time.time() + 60, (Jid(TEAM),)))
        pending = await core.ask(Subscribe(node, jid, jid, 1))
        assert isinstance(pending, Subscribed) and pending.state.value == "pending"
        await affiliated(seen, node, {"group:other": "member"})
        assert (await count(core, node))[0] == 0
        # An approval gives it an affiliation of its own; without that the group keeps nothing.
        await seen.ask(ManageSubscribers(node, OWNER, (Change(jid, "", "subscribed"),)))
        assert (await count(core, node))[0] == 1
        await affiliated(seen, node, {CAROL: "none"})
        assert (await count(core, node))[0] == 0
    finally:
        await seen.stop()


async def test_bad_names(core: RedisCore, rest: RestFrontend) -> None:
    """A group without a name, or one that cannot have an affiliation, is refused in one sentence."""
    node = await made(core, {})

    def check() -> None:
        with client(rest) as http:
            for name in ("group:", "group:two words", "group:" + "x" * 201, "Group:x"):
                answer = http.patch(f"/affiliations/{node}", json={"affiliations": {name: "member"}})
                assert problem(answer)[0] == 400 and answer.json()["detail"].count(".") == 0, answer.text

    await asyncio.to_thread(check)
    for name in ("group:", "group:two words"):
        refused = await core.ask(Affiliate(node, OWNER, {Jid(name): "member"}))
        assert refused.problem is Problem.NOT_ACCEPTABLE and refused.detail == f"{name} is neither a JID nor group:NAME"  # type: ignore[union-attr]


async def test_told_later(redis: RedisServer, core: RedisCore, monkeypatch: pytest.MonkeyPatch) -> None:
    """While Redis is away a token is taken all the same; its groups are noted with a later request."""
    node = await made(core, {TEAM: "member"})
    seen = RedisCore(CommandSettings(redis_url=redis.url, node_creation=NodeCreation.ANYONE), None, "rest")
    said = Said(None, time.time(), time.time() + 60, (Jid(TEAM),))
    jid = Jid("erin@example.org")

    async def unavailable(_lines: object) -> None:
        msg = "away"
        raise CoreUnavailable(msg)

    try:
        with monkeypatch.context() as away:
            away.setattr(seen._server, "commands", unavailable)
            await seen.note_token(jid, said)
        lease = pull_jid(jid, new_pull_name(60))
        assert isinstance(await seen.ask(Subscribe(node, jid, lease, 1, Qos.PULLED, lease_ms=60_000)), Subscribed)
        await seen.note_token(jid, said)
        await affiliated(core, node, {"group:other": "member"})
        assert (await count(core, node))[0] == 1
    finally:
        await seen.stop()
