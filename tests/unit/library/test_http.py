"""The transport over HTTP: accounts, requests and replies, with a simulated service."""

import asyncio
import itertools
import json
import logging
import socket
import ssl
import subprocess
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from contextlib import asynccontextmanager
from importlib.metadata import version
from typing import Any

import pytest
from aiohttp import web
from hypothesis import given
from hypothesis import strategies as st

from stanzaq import Publisher, StanzaqError, Worker, schemes
from stanzaq.http import messages
from stanzaq.http.connection import HttpConnection
from stanzaq.http.publisher import HttpSender
from stanzaq.http.worker import HttpTransport
from stanzaq.retry import Release
from stanzaq.transport.account import HttpAccount
from stanzaq.transport.interface import Content, Delivery, Hints, Lock, Outgoing
from tests.certificates import Authority
from tests.references import uncollected
from tests.unit.library.test_runs import prepare
from tests.waiting import PATIENCE_SECONDS

Answers = Callable[[web.Request], Awaitable[web.StreamResponse]]

MESSAGE = {
    "id": "one",
    "href": "/subscriptions/S/messages/one?lock=3-17-0badcafe",
    "queue": "jobs",
    "token": 17,
    "attempt": 2,
    "max_attempts": 20,
    "expires": "2026-01-01T00:01:00Z",
    "lock_seconds": 60,
    "published": "2026-01-01T00:00:00Z",
    "content_type": "image/png",
    "base64": "AP8=",
    "headers": {"colour": "red"},
    "group_key": "k",
    **{name: f"/{name}" for name in ("release", "renew", "dead_letter")},
}


@pytest.mark.parametrize(
    ("url", "user", "origin"),
    [
        ("https://queue.example.org", "", "https://queue.example.org"),
        ("https://a%40example.org@queue.example.org:8443/", "a@example.org", "https://queue.example.org:8443"),
        ("https://a@example.org@queue.example.org", "a@example.org", "https://queue.example.org"),
        ("http://a@[::1]:8080", "a", "http://[::1]:8080"),
    ],
)
def test_accounts(url: str, user: str, origin: str) -> None:
    """The URL has the service and, if need be, the user."""
    account = schemes.account(url, None, "secret", None, "required")
    assert isinstance(account, HttpAccount) and (account.user, account.origin) == (user, origin)


@pytest.mark.parametrize(
    ("url", "more", "told"),
    [
        ("http://queue.example.org", {}, "http is taken on loopback alone"),
        ("https://a:b@queue.example.org", {}, "give the password as STANZAQ_PASSWORD or password="),
        ("https://queue.example.org/path", {}, "write https://USER@queue.example.org"),
        ("https://queue.example.org", {"service": "x"}, "service= and address= are for XMPP"),
        ("https://queue.example.org", {"address": "x:1"}, "service= and address= are for XMPP"),
        ("https://queue.example.org", {"tls": "disabled"}, "contradicts https"),
    ],
)
def test_no_accounts(url: str, more: dict[str, Any], told: str) -> None:
    """An invalid account is refused with its remedy, for workers as for publishers."""
    for kind in (Worker, Publisher):
        with pytest.raises(ValueError, match=told):
            kind(url, **more)


def test_authorization(monkeypatch: pytest.MonkeyPatch) -> None:
    """RFC 7617, RFC 6750: a user has a password, the rest a token or nothing."""
    monkeypatch.delenv("STANZAQ_PASSWORD", raising=False)
    assert HttpAccount("", "ü", "a:b").authorization() == "Basic w7w6YTpi"
    assert HttpAccount("", "", lambda: "token").authorization() == "Bearer token"
    assert HttpAccount("", "", None).authorization() == ""
    with pytest.raises(StanzaqError, match="there is no password: set STANZAQ_PASSWORD"):
        HttpAccount("", "a", None).authorization()
    monkeypatch.setenv("STANZAQ_PASSWORD", "token")
    assert HttpAccount("", "", None).authorization() == "Bearer token"


async def test_the_extra_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without aiohttp the error says what to install."""
    monkeypatch.setattr(schemes, "find_spec", lambda _: None)
    worker = Worker("https://queue.example.org")
    worker.task("jobs")(lambda _: None)
    with pytest.raises(StanzaqError, match=r"pip install 'stanzaq\[http\]'"):
        await worker.serve()
    with pytest.raises(StanzaqError, match=r"pip install 'stanzaq\[http\]'"):
        async with Publisher("https://queue.example.org"):
            pass


def test_delivery() -> None:
    """A held message is a delivery under its lock."""
    delivery = messages.delivery(MESSAGE)
    assert delivery.lock == Lock("jobs", "one", 17) and delivery.lock.partition == 3
    assert (delivery.content, delivery.key) == (Content(b"\0\xff", "image/png"), "k")
    assert (delivery.deadline - delivery.published).total_seconds() == 60


@pytest.mark.parametrize(
    ("hints", "told"),
    [
        (Hints(), {}),
        (Hints("k", 1.6, 0, 0.2), {"group_key": "k", "delay": 2, "priority": 0, "ttl": 1}),
        (Hints(after=(("", "a b"), ("n#", "%")), regardless=True), {"after": "a%20b n%23#%25", "regardless": True}),
        (Hints(keep=True), {"keep": True}),
        (Hints(confirm="replicated"), {"confirm": "replicated"}),
        (Hints(at=0.5), {"at": "1970-01-01T00:00:00.500000+00:00"}),
    ],
)
def test_message(hints: Hints, told: dict[str, Any]) -> None:
    """An item is sent as text or base64, with the hints that are given, in whole seconds."""
    headers = {"A b": "c", "traceparent": "00-1"}
    one, traced = messages.message("one", Content("ü".encode(), "text/plain"), headers, hints)
    assert traced == {"traceparent": "00-1"}
    assert one == {"text": "ü", "content_type": "text/plain", "guid": "one", "headers": {"A b": "c"}, **told}
    one, _ = messages.message("one", Content(b"\xff", "image/png"), {}, hints)
    assert one == {"base64": "/w==", "content_type": "image/png", "guid": "one", **told}


@pytest.mark.parametrize("wrong", ["00\n1", "00-1é", "\x00"])
async def test_no_trace(wrong: str) -> None:
    """What is no trace is left out: such an item could not be sent, and would stay in an outbox for ever."""

    async def answers(request: web.Request) -> web.StreamResponse:
        (one,) = await request.json()
        assert "traceparent" not in request.headers and one["headers"] == {"a": "b"}
        assert request.headers["User-Agent"] == f"stanzaq/{version('stanzaq')} ({socket.gethostname()})"
        return results((201, ""))

    async with played(answers) as connection:
        sender = HttpSender(connection)
        await sender.publish(outgoing("one", a="b", traceparent=wrong))
        await sender.close()


def test_releases() -> None:
    """A reason is one line of the length that the service takes."""
    assert messages.release(Release("a\nb" + "c" * 300, 1.6)) == ("release", {"reason": "a b" + "c" * 197, "delay": 2})
    assert messages.release(Release("no", dead=True)) == ("dead_letter", {"reason": "no"})


@given(st.lists(st.integers(0, 80)))
def test_events(cuts: list[int]) -> None:
    """Events are read wherever the stream is cut; comments say nothing."""
    stream = b':\n\nevent: message\ndata: {"a": "\xc3\xbc\\n\\n"}\n\n:\n\nevent: end\ndata: {}\n\n'
    parser, places = messages.Events(), [0, *sorted(cuts), len(stream)]
    found = [event for start, end in itertools.pairwise(places) for event in parser.feed(stream[start:end])]
    assert found == [("message", {"a": "ü\n\n"}), ("end", {})]


@asynccontextmanager
async def played(
    answers: Answers,
    tls: ssl.SSLContext | None = None,
    **account: Any,  # noqa: ANN401
) -> AsyncIterator[HttpConnection]:
    """Serve what a function answers, and give a connection to it."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answers)
    runner = web.AppRunner(application)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await site.start()
    url = ("https" if tls else "http") + "://{}:{}".format(*runner.addresses[0][:2])
    connection = HttpConnection(HttpAccount(url, **{"user": "a", "password": "b", **account}))
    try:
        yield connection
    finally:
        await connection.close()
        await runner.cleanup()


def problem(status: int, detail: str, **headers: str) -> web.Response:
    """Answer with a problem document."""
    text = json.dumps({"type": "urn:x", "title": "x", "status": status, "detail": detail})
    return web.Response(status=status, text=text, headers=headers, content_type="application/problem+json")


def test_a_used_up_quota() -> None:
    """A queue's owner that has used up a quota: the item is sent again, as over XMPP after an error of type `wait`."""
    told = messages.refusal(507, b'{"detail": "3 items in all nodes"}', 1.0)
    assert (told.condition, told.passing, told.seconds) == ("resource-constraint", True, 1.0)


@pytest.mark.parametrize(
    ("status", "passing"),
    [(408, True), (500, True), (502, True), (522, True), (599, True), (501, False), (505, False), (422, False)],
)
def test_faults_of_others(status: int, passing: bool) -> None:  # noqa: FBT001  (a value)
    """A fault of the service may pass, as over XMPP, and so may a gateway's, whatever its code; what nobody can do is refused."""
    assert messages.refusal(status, b"<html>").passing is passing


def test_time_to_wait_of_one_result() -> None:
    """A publish is a batch of one: it waits as long as its result says before it is repeated."""
    told = messages.read_refused_item({"results": [{"status": 429, "detail": "wait 7 s", "retry_after": 7}]})
    assert told is not None and told.passing and told.seconds == 7


async def test_repeated_until_answered(caplog: pytest.LogCaptureFixture) -> None:
    """Temporary errors, errors of a gateway and broken connections are waited out, and reported."""
    caplog.set_level(logging.INFO, "stanzaq")
    count = 0

    async def answers(request: web.Request) -> web.StreamResponse:
        nonlocal count
        count += 1
        if count == 1:
            return problem(503, "the node is full", **{"Retry-After": "0"})
        if count == 2:
            return web.Response(status=502, text="<html>")
        if count == 3:
            assert request.transport is not None
            request.transport.abort()
        return web.json_response({"path": request.raw_path, "body": await request.json()})

    async with played(answers) as connection:
        said = await connection.ask("publish to a", "POST", messages.batch_path("a/b %"), [1])
    assert said == {"path": "/batches/a%2Fb%20%25", "body": [1]}
    assert "cannot publish to a: service-unavailable (the node is full); trying again" in caplog.text
    assert "no connection to http://127.0.0.1:" in caplog.text and "connected to http://" in caplog.text


@pytest.mark.parametrize(
    ("answer", "condition", "told"),
    [
        ((404, "there is no such node"), "item-not-found", r"cannot publish: item-not-found \(there is no such node\)"),
        ((409, ""), "conflict", "cannot publish: conflict$"),
        ((301, ""), "HTTP status 301", "cannot publish: HTTP status 301"),
        ((401, ""), "not-authorized", r"the service refuses a \(not-authorized\): correct the user or the password"),
        ((200, ""), "", r"is no stanzaq service: it answers 200 without JSON"),
    ],
)
async def test_refused(answer: tuple[int, str], condition: str, told: str) -> None:
    """A refusal has the condition that it has over XMPP, and is raised at once."""

    async def answers(_request: web.Request) -> web.StreamResponse:
        return web.Response(text="hello") if answer[0] == 200 else problem(*answer)

    async with played(answers) as connection:
        with pytest.raises(StanzaqError, match=told) as refused:
            await connection.ask("publish", "POST", "/")
    assert refused.value.condition == condition


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Give one that nobody knows."""
    return Authority(tmp_path_factory.mktemp("tls") / "authority")


async def test_tls(authority: Authority, monkeypatch: pytest.MonkeyPatch) -> None:
    """A certificate that is not trusted ends it at once, with the remedy; with its authority in OpenSSL's place it is trusted."""

    async def answers(_request: web.Request) -> web.StreamResponse:
        return web.json_response({"all": "well"})

    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*authority.sign("server"))
    async with played(answers, tls=context) as connection:
        with pytest.raises(
            StanzaqError, match=r"certificate is not trusted \(.*\): give the file of its authority in SSL_CERT_FILE"
        ):
            await connection.ask("publish", "POST", "/")

    def read(context: ssl.SSLContext) -> None:
        # As OpenSSL does with SSL_CERT_FILE; in tests it reads nothing.
        context.load_verify_locations(authority.certificate)

    monkeypatch.setattr(ssl.SSLContext, "set_default_verify_paths", read)
    async with played(answers, tls=context) as connection:
        assert await connection.ask("publish", "POST", "/") == {"all": "well"}


async def test_an_expired_token(caplog: pytest.LogCaptureFixture) -> None:
    """When a token is refused, the function is asked for a newer one, which is worth no warning."""
    tokens = iter(["old", "new"])

    async def answers(request: web.Request) -> web.StreamResponse:
        return web.json_response({}) if request.headers["Authorization"] == "Bearer new" else problem(401, "expired")

    async with played(answers, user="", password=lambda: next(tokens)) as connection:
        assert await connection.ask("publish", "POST", "/") == {}
    assert not caplog.records


async def test_a_token_that_cannot_be_had_now(caplog: pytest.LogCaptureFixture) -> None:
    """While the function fails, as an identity provider may, everything is tried again, the first time and later."""
    tokens: Iterator[Exception | str] = iter([OSError("no provider"), "old", ValueError("no key"), "new"])

    def given() -> str:
        found = next(tokens)
        if isinstance(found, Exception):
            raise found
        return found

    async def answers(request: web.Request) -> web.StreamResponse:
        return web.json_response({}) if request.headers["Authorization"] == "Bearer new" else problem(401, "expired")

    async with played(answers, user="", password=given) as connection:
        assert await connection.ask("publish", "POST", "/") == {}
    assert "there is no password: OSError('no provider'); trying again" in caplog.text


class Receiver:
    """Plays a worker: notes what it is told."""

    def __init__(self) -> None:
        """Begin with nothing."""
        self.held: dict[Lock, int] = {}
        self.ended: list[Lock] = []

    def deliver(self, delivery: Delivery) -> None:
        """Take an item."""
        self.held[delivery.lock] = self.held.get(delivery.lock, 0) + 1

    def lost(self, lock: Lock) -> None:
        """Lose a lock."""
        self.ended.append(lock)
        del self.held[lock]

    def deleted(self, node: str, item: str) -> None:
        """Never happens over HTTP."""

    def locks(self, node: str) -> set[Lock]:
        """Give the locks."""
        return {lock for lock in self.held if lock.node == node}

    def locks_of(self, node: str, item: str) -> list[Lock]:
        """Give those of an item."""
        return [lock for lock in self.held if (lock.node, lock.item) == (node, item)]


@asynccontextmanager
async def working(
    answers: Answers,
    credit: int = 5,
    **account: Any,  # noqa: ANN401
) -> AsyncIterator[tuple[HttpTransport, Receiver]]:
    """Run the transport of a worker of one node against a service that is played."""
    async with played(answers, **account) as connection:
        transport, receiver = HttpTransport(connection._account), Receiver()
        running = asyncio.create_task(transport.run(receiver, {"jobs": credit}, prepare))
        try:
            yield transport, receiver
        finally:
            await transport.close()
            running.cancel()
            await asyncio.wait({running})


async def until(holds: Callable[[], object]) -> None:
    """Wait for something that no event tells."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not holds():  # noqa: ASYNC110
            await asyncio.sleep(0.01)


def held(token: int, item: str = "one") -> dict[str, Any]:
    """Return a message under a lock."""
    href = f"/subscriptions/S/messages/{item}?lock=3-{token}-0badcafe"
    return {**MESSAGE, "id": item, "token": token, "href": href}


def event(token: int, item: str = "one") -> bytes:
    """Write the event of a message, under a lock."""
    return b"event: message\ndata: " + json.dumps(held(token, item)).encode() + b"\n\n"


async def test_streams() -> None:
    """A stream that is opened again repeats what is held, which is delivered once; what ended with its subscription is lost."""
    streams = [[event(1), event(1)], [event(1), event(2)], None, [event(3)]]
    asked: list[str] = []

    async def answers(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if request.method == "POST":
            return web.json_response({"href": "/subscriptions/S"}, status=201)
        if request.method == "DELETE":
            return web.json_response({})
        events = streams.pop(0) if streams else []
        if events is None:
            return problem(410, "the subscription has expired")
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for each in events:
            await answer.write(each)
        return answer

    async with working(answers) as (_transport, receiver):
        await until(lambda: Lock("jobs", "one", 3) in receiver.held)
        assert receiver.ended == [Lock("jobs", "one", 1), Lock("jobs", "one", 2)]
        assert receiver.held == {Lock("jobs", "one", 3): 1}
    assert asked.count("POST") == 2 and asked[-1] == "DELETE"


async def test_a_stream_whose_token_expires(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    """A worker opens it again with a newer token, keeps the subscription with its locks, and warns of nothing."""
    tokens = iter(["old", "new"])
    asked: list[str] = []
    go_on = asyncio.sleep
    monkeypatch.setattr("stanzaq.http.worker.asyncio.sleep", lambda seconds: go_on(min(seconds, 0.01)))

    async def answers(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if request.method != "GET":
            return web.json_response({"href": "/subscriptions/S"})
        is_new = request.headers["Authorization"] == "Bearer new"
        if not is_new and asked.count("GET") > 1:
            return problem(401, "the token has expired")
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(event(2 if is_new else 1, "two" if is_new else "one"))
        if not is_new:
            await answer.write(b'event: end\ndata: {"status": 401, "detail": "the token has expired"}\n\n')
        return answer

    async with working(answers, user="", password=lambda: next(tokens)) as (_transport, receiver):
        await until(lambda: Lock("jobs", "two", 2) in receiver.held)
        assert Lock("jobs", "one", 1) in receiver.held and asked.count("POST") == 1
    # That its last stream ends, as a service never ends one, is a warning.
    assert {record.getMessage().partition(": ")[2] for record in caplog.records} <= {
        "the stream ended; trying again until it answers"
    }


async def test_subscriptions_that_end_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker pauses, for longer each time, before it replaces a subscription that has ended before its first stream."""
    asked, pauses, go_on = list[str](), list[tuple[int, float]](), asyncio.sleep

    async def answers(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if request.method == "GET":
            return problem(410, "the subscription has expired")
        return web.json_response({"href": "/subscriptions/S"})

    async def sleep(seconds: float) -> None:
        pauses.extend([(asked.count("POST"), seconds)] if seconds > 0.2 else [])
        await go_on(min(seconds, 0.01))

    monkeypatch.setattr("stanzaq.http.worker.asyncio.sleep", sleep)
    async with working(answers):
        await until(lambda: asked.count("POST") > 3)
    assert [count for count, _ in pauses[:3]] == [1, 2, 3] and pauses[2][1] > pauses[0][1]


def cut_pauses(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Cut the pauses between attempts short; return how long they would have been."""
    pauses, go_on = list[float](), asyncio.sleep

    async def sleep(seconds: float) -> None:
        pauses.extend([seconds] if seconds > 0.2 else [])
        await go_on(min(seconds, 0.01))

    monkeypatch.setattr("stanzaq.http.connection.asyncio.sleep", sleep)
    return pauses


async def test_streams_that_break_while_quiet(monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker without items is back at once, however often a gateway has cut its stream: the pauses do not grow."""
    opened, pauses = list[str](), cut_pauses(monkeypatch)

    async def answers(request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return web.json_response({"href": "/subscriptions/S"})
        opened.append(request.path)
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(b":\n\n")
        return answer

    async with working(answers):
        await until(lambda: len(opened) > 6)
    assert max(pauses) <= 0.5


async def test_pauses_end_before_the_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    """While the service is away the pauses grow, but a worker is back before its subscription ends with its lease."""
    asked, pauses = list[Any](), cut_pauses(monkeypatch)

    async def answers(request: web.Request) -> web.StreamResponse:
        asked.append(await request.json() if request.method == "POST" else request.method)
        return problem(503, "away") if request.method == "GET" else web.json_response({"href": "/subscriptions/S"})

    async with working(answers):
        await until(lambda: len(asked) > 10)
    assert max(pauses[:2]) <= 1 < max(pauses) <= asked[0]["lease"] / 4


async def test_locks_that_are_over_without_a_word() -> None:
    """Nothing stays of a lock whose time was over, or whose end could not be told, once the worker has let go of it."""
    over = asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        if request.method != "GET":
            return web.json_response({"href": "/subscriptions/S"})
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        await answer.write(event(1))
        await over.wait()
        return answer

    async with working(answers) as (transport, receiver):
        await until(lambda: receiver.held)
        assert list(transport._addresses) == list(receiver.held)
        receiver.held.clear()
        await until(lambda: not transport._addresses)
        over.set()


async def test_stopped_while_it_subscribes() -> None:
    """A worker that stops before its subscription is answered ends that, and never comes for its messages."""
    asked: list[str] = []
    stopped = asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        asked.append(request.method)
        if request.method == "POST":
            await stopped.wait()
        return web.json_response({"href": "/subscriptions/S"})

    async with working(answers) as (transport, _receiver):
        await until(lambda: asked)
        await transport.pause()
        stopped.set()
        await until(lambda: len(asked) > 1)
    assert asked == ["POST", "DELETE"]


async def test_stopped_with_an_item_that_cannot_go_back(caplog: pytest.LogCaptureFixture) -> None:
    """A worker that stops returns all that it holds: what the service refuses of it hinders neither the others nor the end."""
    returned, over = list[str](), asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        if request.path == "/subscriptions":
            return web.json_response({"href": "/subscriptions/S"})
        if request.method == "DELETE":
            over.set()
            return web.json_response({})
        if request.method == "POST":
            returned.append(request.path)
            return problem(422, "no such reason") if len(returned) == 1 else web.json_response({})
        answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await answer.prepare(request)
        for token in (1, 2):
            await answer.write(event(token, f"m{token}"))
        await over.wait()
        return answer

    async with played(answers) as connection:
        transport, receiver = HttpTransport(connection._account), Receiver()
        running = asyncio.create_task(transport.run(receiver, {"jobs": 5}, prepare))
        await until(lambda: len(receiver.held) == 2)
        await transport.pause()
        await transport.close()
        await running
    assert len(returned) == 2 and "cannot give back m" in caplog.text


def outgoing(item: str, **headers: str) -> Outgoing:
    """Make an item."""
    return Outgoing(item, "n", item, Content(b"1", "application/json"), headers, Hints())


def results(*rows: tuple[int, str], more: Sequence[dict[str, Any]] = ()) -> web.Response:
    """Answer with a status and a detail for each message, and with further messages."""
    said = [{"status": status, "detail": detail} for status, detail in rows]
    return web.json_response({"results": said, "messages": list(more)})


async def test_publishes_of_one_turn() -> None:
    """Those of one trace share a request; what is refused for good is raised to its caller, what may pass is sent again alone."""
    asked: list[tuple[str, list[str]]] = []

    async def answers(request: web.Request) -> web.StreamResponse:
        items = [each["guid"] for each in await request.json()]
        asked.append((request.headers.get("traceparent", ""), items))
        refused = {"b": (409, "the node is closed"), "d": (507, "full")} if len(items) > 1 else {}
        return results(*(refused.get(item, (201, "")) for item in items))

    async with played(answers) as connection:
        sender = HttpSender(connection)
        items = [*map(outgoing, "abcd"), *(outgoing(item, traceparent="00-1") for item in "ef")]
        told = await asyncio.gather(*map(sender.publish, items), return_exceptions=True)
        await sender.close()
    assert [each for number, each in enumerate(told) if number != 1] == [None] * 5
    assert isinstance(told[1], StanzaqError) and told[1].condition == "conflict"
    assert str(told[1]) == "cannot publish to n: conflict (the node is closed)"
    assert sorted(asked) == [("", ["a", "b", "c", "d"]), ("", ["d"]), ("00-1", ["e", "f"])]


@pytest.mark.parametrize("count", [5, 50])
async def test_replies_hinder_nothing(count: int) -> None:
    """Guarantee 8: while a program waits for many replies it can publish, and each reply comes soon after its item has ended."""
    ended, asking, waiting = asyncio.Event(), list[str](), 0

    async def answers(request: web.Request) -> web.StreamResponse:
        nonlocal waiting
        if request.method == "POST":
            return results(*[(201, "")] * len(await request.json()))
        asking.append(request.path)
        if int(request.query.get("wait", 0)):
            waiting += 1
            await ended.wait()
            waiting -= 1
        is_over = ended.is_set() or request.path.endswith("/last")
        return web.json_response({"state": "dead" if is_over else "waiting", "reason": ""})

    async with played(answers) as connection:
        sender = HttpSender(connection)
        replies = [asyncio.ensure_future(sender.reply("n", str(number))()) for number in range(count)]
        await until(lambda: len(set(asking)) == count)
        await sender.publish(outgoing("one"))
        if count > 20:
            assert (await sender.reply("n", "last")()).state == "dead"
        assert 0 < waiting <= 20
        ended.set()
        assert [each.state for each in await asyncio.gather(*replies)] == ["dead"] * count
        await sender.close()


@pytest.mark.parametrize("status", [503, 0])
async def test_items_without_an_answer(status: int) -> None:
    """Items that get no answer together are sent one by one, so that none stops others, and without those that were cancelled."""
    asked: list[list[str]] = []
    lost = asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        items = [each["guid"] for each in await request.json()]
        asked.append(items)
        if len(items) == 1:
            return results((201, ""))
        await lost.wait()
        if status:
            return problem(status, "later")
        assert request.transport is not None
        request.transport.abort()
        return web.Response()

    async with played(answers) as connection:
        sender = HttpSender(connection)
        published = [asyncio.create_task(sender.publish(outgoing(item))) for item in "abc"]
        await until(lambda: asked)
        published[1].cancel()
        lost.set()
        await asyncio.wait(published)
        await sender.close()
    assert [task.cancelled() for task in published] == [False, True, False]
    assert asked[0] == ["a", "b", "c"] and sorted(asked[1:]) == [["a"], ["c"]]


@pytest.mark.parametrize("status", [200, 404, 408])
async def test_acknowledgements_of_one_turn(status: int) -> None:
    """They share a request of their subscription, each with its own outcome, which receives as many messages, once each.

    If that fails, they are sent one by one.
    """
    asked: list[tuple[str, str]] = []
    acknowledged, over = asyncio.Event(), asyncio.Event()

    async def answers(request: web.Request) -> web.StreamResponse:
        if request.path == "/subscriptions":
            return web.json_response({"href": "/subscriptions/S"})
        if request.method == "GET":
            answer = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
            await answer.prepare(request)
            for token in (1, 2, 3):
                await answer.write(event(token, f"m{token}"))
            await acknowledged.wait()
            # The stream repeats what it has not brought, and had something on its way.
            await answer.write(event(5, "m5") + event(6, "m6") + event(4, "m4"))
            await over.wait()
            return answer
        if request.path == "/subscriptions/S":
            return web.json_response({})
        asked.append((request.method, request.path_qs))
        if not request.path.endswith("/acknowledgements"):
            return problem(410, "ended") if "m2" in request.path else web.json_response({})
        if status != 200:
            return problem(status, "not so many")
        assert await request.json() == [
            f"/subscriptions/S/messages/m{token}?lock=3-{token}-0badcafe" for token in (1, 2, 3)
        ]
        return results((200, ""), (410, "ended"), (200, ""), more=[held(5, "m5"), held(6, "m6")])

    async with working(answers, credit=12) as (transport, receiver):
        await until(lambda: len(receiver.held) == 3)
        locks = sorted(receiver.held, key=lambda lock: lock.token)
        assert await asyncio.gather(*map(transport.acknowledge, locks)) == [True, False, True]
        # Its outcome is known: nothing is asked.
        assert await transport.acknowledge(locks[0]) is False
        assert len(receiver.held) == (5 if status == 200 else 3)
        acknowledged.set()
        await until(lambda: len(receiver.held) == 6)
        assert set(receiver.held.values()) == {1}
        over.set()
    together = ("POST", "/subscriptions/S/acknowledgements?next=3")
    alone = [("DELETE", f"/subscriptions/S/messages/m{token}?lock=3-{token}-0badcafe") for token in (1, 2, 3)]
    assert asked[0] == together and sorted(asked[1:]) == ([] if status == 200 else alone)


@pytest.mark.parametrize("why", ["refused", "no service"])
async def test_no_payload_is_kept(why: str) -> None:
    """Guarantee 6: once a request has failed, however, nothing keeps its body, not even until Python collects garbage."""

    async def answers(_request: web.Request) -> web.StreamResponse:
        return problem(403, "not yours")

    async with played(answers) as connection:
        if why == "no service":
            # Nobody listens at port 1.
            connection._account = HttpAccount("http://127.0.0.1:1", "a", "b")
        body = bytes(1_000)
        held = sys.getrefcount(body)
        with uncollected():
            asking = asyncio.create_task(connection.ask("publish", "POST", "/", Content(body, "image/png")))
            if why == "no service":
                await until(lambda: connection._is_lost)
                asking.cancel()
            await asyncio.wait({asking})
            del asking
            await until(lambda: sys.getrefcount(body) == held)


FORKED = """
import gc, json, os
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from stanzaq import sync

class Service(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        count = len(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        said = json.dumps({"results": [{"status": 201}] * count}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(said)))
        self.end_headers()
        self.wfile.write(said)

    def log_message(self, *_): pass

def forked(work):
    child = os.fork()
    if not child:
        work()
        os._exit(0)
    return child

server = ThreadingHTTPServer(("127.0.0.1", 0), Service)
service = forked(server.serve_forever)
try:
    publisher = sync.Publisher(f"http://a@127.0.0.1:{server.server_port}", password="b")
    publisher.publish("n", 1)

    def work():
        gc.collect()
        publisher.publish("n", 2)
        publisher.close()

    assert os.waitpid(forked(work), 0)[1] == 0
    publisher.publish("n", 3)
    publisher.close()
finally:
    os.kill(service, 9)
"""


def test_forked() -> None:
    """A forked process has connections of its own, and leaves those of its parent alone: its next request is answered."""
    done = subprocess.run([sys.executable, "-c", FORKED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
