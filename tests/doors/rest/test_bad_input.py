"""Wrong, too large or too slow requests are a clear error for their sender, and nothing for others."""

import os
import time
from collections.abc import Iterator
from contextlib import suppress

import httpx
import pytest

from frontends.rest.routes import ROUTES
from frontends.tools.servers.redis import RedisServer
from tests.doors.rest.raw import Line, asked
from tests.doors.rest.served import NO_TLS, RestFrontend, client, problem


@pytest.fixture(scope="module")
def strict(redis: RedisServer) -> Iterator[RestFrontend]:
    """Provide a frontend with short time-outs."""
    settings = {"HTTP_SLOW_SECONDS": "0.5", "HTTP_HEADER_BYTES": "4096", "HTTP_RATE": "5", "HTTP_BODY_BYTES": "300000"}
    with RestFrontend(redis.url, **settings) as frontend:
        yield frontend


@pytest.mark.parametrize(
    "target",
    [
        b"/queues/..",
        b"/queues/../queues/a",
        b"/queues/%2e%2e",
        b"/queues/a/%2E./b",
        b"/queues/.",
        b"/queues//a",
        b"/queues/",
        b"/queues/a%00b",
        b"/queues/%0d%0aX-Evil:%20yes",
        b"/queues/%ff",
        b"/queues/%zz",
        b"/queues/%",
        b"/queues/" + b"a" * 1_024,
        b"/queues/%E2%80%AE",
        b"/messages/a/..",
        b"/messages/a/%00",
        b"/contents/../etc/passwd",
        b"/queues/a?limit=%ff",
        b"/queues/a?limit=1&limit=2",
        b"/queues/a?" + b"a=1&" * 50,
    ],
)
def test_path_tricks(frontend: RestFrontend, alice: httpx.Client, target: bytes) -> None:
    """An ambiguous or empty path is refused and never guessed."""
    status, heard = asked(frontend, target, alice.headers["Authorization"])
    assert status == 400 and b"application/problem+json" in heard and b"X-Evil" not in heard


@pytest.mark.parametrize("target", [b"/", b"/etc/passwd", b"/queues%2Fa", b"/Queues", b"/messages", b"/messages/a"])
def test_no_such_path(frontend: RestFrontend, alice: httpx.Client, target: bytes) -> None:
    """A path of no resource is not found."""
    assert asked(frontend, target, alice.headers["Authorization"])[0] == 404


@pytest.mark.parametrize("name", ["a%2Fb", "a.b", "%C3%A9%20%26%3F%23", "a%2F%2Fb", "a%2F..%2Fb", "%25", "a@b:c"])
def test_names_of_all_kinds(alice: httpx.Client, frontend: RestFrontend, name: str) -> None:
    """Any queue name works as one segment, and in the links that the door writes."""
    authorization = alice.headers["Authorization"]
    assert asked(frontend, f"/queues/{name}".encode(), authorization, b"PUT")[0] in {200, 201}
    where = alice.post(f"{frontend.url}/queues/{name}", content=b"x").headers["Location"]
    assert asked(frontend, where.encode(), authorization)[0] == 200
    assert asked(frontend, f"/queues/{name}".encode(), authorization, b"DELETE")[0] == 200


def test_body_over_the_limit(alice: httpx.Client, queue: str) -> None:
    """A message may be as large as its queue allows, and a body as large as the door allows."""
    assert alice.post(queue, content=os.urandom(262_144)).status_code == 201
    assert problem(alice.post(queue, content=bytes(262_145))) == (413, "payload-too-big")
    assert problem(alice.post(queue, content=bytes(5_000_000))) == (413, "payload-too-big")
    alice.patch(queue, json={"options": {"pubsub#max_payload_size": 10}})
    assert problem(alice.post(queue, content=bytes(11))) == (413, "payload-too-big")


def test_endless_body(strict: RestFrontend, alice: httpx.Client) -> None:
    """A chunked body without an end is cut at the limit."""
    line = Line(strict)
    head = "POST /queues/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: {}\r\n\r\n"
    line.say(head.format(alice.headers["Authorization"]).encode())
    line.say((b"10000\r\n" + bytes(65_536) + b"\r\n") * 5)
    status, heard, seconds = line.hear()
    assert status in {0, 413} and seconds < 20
    assert not heard or b"payload-too-big" in heard


def test_slow_body(strict: RestFrontend, alice: httpx.Client) -> None:
    """A slow body is an error; a body that trickles gains no time."""
    line = Line(strict)
    head = "POST /queues/a HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\nAuthorization: {}\r\n\r\n"
    line.say(head.format(alice.headers["Authorization"]).encode())
    for _ in range(3):
        line.say(b"x")
        time.sleep(0.2)
    status, heard, _ = line.hear()
    assert status == 408 and b"too-slow" in heard and b"onnection: close" in heard


@pytest.mark.parametrize(("said", "status"), [(b"GET /queues HTTP/1.1\r\nHost", 408), (b"", 0)])
def test_slow_headers(strict: RestFrontend, said: bytes, status: int) -> None:
    """Headers without an end keep no connection for long, and neither does silence."""
    line = Line(strict)
    line.say(said)
    heard = line.hear()
    assert heard[0] == status and heard[2] < 20


def test_slow_second_request(strict: RestFrontend) -> None:
    """After a first request a connection has as little time for the next headers."""
    line = Line(strict)
    line.say(b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n")
    time.sleep(0.3)
    line.say(b"GET /openapi.json HTTP/1.1\r\nHo")
    status, heard, seconds = line.hear()
    assert status == 200 and b"408 Request Timeout" in heard and seconds < 20


@pytest.mark.parametrize(
    "head",
    [
        b"GET /openapi.json HTTP/1.1\nHost: x\n\n",
        b"GET /openapi.json HTTP/1.1\r\nHost: x\nA: b\r\n\r\n",
        b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nA: b\r\n c\r\n\r\n",
        b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nA: b\r\n\tc\r\n\r\n",
        b"GET /openapi.json HTTP/1.1\r\nHost: x\r\nA: b\r\n\n",
        b"POST /queues HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\nA: b\n\r\n",
    ],
)
@pytest.mark.parametrize("whole", [True, False])
def test_loose_lines(strict: RestFrontend, head: bytes, whole: bool) -> None:  # noqa: FBT001  (a parameter of pytest)
    """RFC 9112 §2.2, §5.2: a bare LF ends no line, and no line goes on in the next, also behind another request."""
    line = Line(strict)
    sound = b"GET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    # It is refused as soon as it is known.
    with suppress(OSError):
        for part in [sound + head] if whole else [sound, *(head[at : at + 7] for at in range(0, len(head), 7))]:
            line.say(part)
        line.end()
    _, heard, _ = line.hear()
    assert b"HTTP/1.1 400" in heard and heard.count(b"HTTP/1.1 200") == 1


@pytest.mark.parametrize("protocol", ["h2c", "websocket"])
@pytest.mark.parametrize(
    "body", ["Content-Length: 3\r\n\r\nabc", "Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n"]
)
@pytest.mark.parametrize("whole", [True, False])
def test_other_protocols(frontend: RestFrontend, alice: httpx.Client, protocol: str, body: str, whole: bool) -> None:  # noqa: FBT001  (a parameter of pytest)
    """RFC 9110 §7.8: who asks for another protocol, as Java's client does, goes on in this one, with its body."""
    queue = alice.post(f"{frontend.url}/queues").headers["Location"]
    head = f"HTTP/1.1\r\nHost: x\r\nAuthorization: {alice.headers['Authorization']}\r\nUpgrade: {protocol}\r\n"
    said = (
        f"POST {queue} {head}Connection: Upgrade\r\n{body}"
        f"GET {queue} {head}Connection: Upgrade, close\r\nAccept: application/json\r\n\r\n"
    ).encode()
    line = Line(frontend)
    for at in range(0, len(said), len(said) if whole else 1):
        line.say(said[at : at + (len(said) if whole else 1)])
    status, heard, _ = line.hear()
    assert status == 201 and b"HTTP/1.1 200 OK" in heard
    lease = alice.post(f"{frontend.url}/subscriptions", json={"destinations": [queue.rpartition("/")[2]]})
    (message,) = alice.get(f"{frontend.url}{lease.json()['href']}", headers={"Accept": "application/json"}).json()[
        "messages"
    ]
    assert alice.get(f"{frontend.url}{message['content_href']}").content == b"abc"


def test_impatience(frontend: RestFrontend) -> None:
    """Requests that do not wait for answers get theirs in order, up to so many; a line may wait no further."""
    line = Line(frontend)
    line.say(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" * 50 + b"GET / HTTP/1.1\r\n oops")
    _, heard, _ = line.hear()
    assert heard.count(b"HTTP/1.1 204") == 50 and heard.count(b"HTTP/1.1 ") == 51 and b"HTTP/1.1 400" in heard
    line = Line(frontend)
    line.say(b"OPTIONS * HTTP/1.1\r\nHost: x\r\n\r\n" * 500)
    _, heard, _ = line.hear()
    assert heard.count(b"HTTP/1.1 204") == 65 and heard.count(b"HTTP/1.1 ") == 66 and b"HTTP/1.1 429" in heard


@pytest.mark.parametrize(
    "endless",
    [
        b"GET / HTTP/1.1\r\nHost: x\r\nX: ",
        b"GET / HTTP/1.1\r\nHost: ",
        b"GET /",
        b"\r\n",
        b"POST /queues/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: %b\r\n\r\n1;x=",
        b"POST /queues/a HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\nAuthorization: %b\r\n\r\n0\r\nX: ",
    ],
)
def test_endless_lines(frontend: RestFrontend, alice: httpx.Client, endless: bytes) -> None:
    """What has no end, in a head or around a body, is cut at the limit of a head, before its time has run out."""
    line = Line(frontend)
    line.say(endless.replace(b"%b", alice.headers["Authorization"].encode()))
    with suppress(OSError):
        # The frontend may read a quarter of a MiB at once.
        for _ in range(600):
            line.say((endless if endless == b"\r\n" else b"a") * 1_000)
    status, _, seconds = line.hear()
    assert status in {0, 414, 431} and seconds < 5


def test_late_body(strict: RestFrontend) -> None:
    """RFC 9110 §15.5.9: the rest of a body that was refused begins no request, so nothing answers it."""
    line = Line(strict)
    line.say(b"POST /queues/a HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n")
    assert line.first() == 401
    line.say(b"0123456789")
    _, heard, seconds = line.hear()
    assert b"HTTP/1.1" not in heard and seconds < 20


def test_many_headers(strict: RestFrontend) -> None:
    """Headers over the limit are refused as such, and bytes that are no HTTP as that."""
    with httpx.Client(base_url=strict.url, verify=NO_TLS) as anyone:
        assert problem(anyone.get("/queues", headers={"X": "x" * 5_000})) == (431, "headers-too-large")
    for said in (
        b"NONSENSE\r\n\r\n",
        b"GET / HTTP/1.1\r\nHost: x\r\nContent-Length: -1\r\n\r\n",
        b"\x16\x03\x01\r\n\r\n",
    ):
        line = Line(strict)
        line.say(said)
        assert line.hear()[0] == 400


def test_too_fast(strict: RestFrontend) -> None:
    """A client above its rate is told when to continue; others are not slowed down by it."""
    with client(strict) as alice, client(strict, "bob@example.org") as bob:
        answers = [alice.get("/queues") for _ in range(40)]
        refused = [answer for answer in answers if answer.status_code == 429]
        assert refused and problem(refused[0]) == (429, "too-fast") and refused[0].headers["Retry-After"] == "1"
        assert bob.get("/queues").status_code == 200
        time.sleep(1.1)
        assert alice.get("/queues").status_code == 200


@pytest.mark.parametrize(
    "given",
    [
        {"params": {"guid": ""}},
        {"params": {"guid": "a\0b"}},
        {"params": {"guid": "a" * 1_024}},
        {"headers": {"Idempotency-Key": '""'}},
        {"params": {"guid": "a"}, "headers": {"Idempotency-Key": "b"}},
        {"params": {"guid": "0-99999999999999-0"}},
        {"headers": {"Group-Key": "a" * 1_024}, "content": b"x"},
        {"headers": {"Message-Delay": "soon"}, "content": b"x"},
        {"headers": {"Message-Priority": "10"}, "content": b"x"},
        {"headers": {"Message-TTL": "0"}, "content": b"x"},
        {"headers": {"Message-Confirm": "Replicated"}, "content": b"x"},
        {"headers": {"Message-Delay": "60", "Message-TTL": "60"}, "content": b"x"},
    ],
)
def test_bad_ids(alice: httpx.Client, queue: str, given: dict[str, object]) -> None:
    """A wrong id, key or option is named; so is an id that the service may still make itself."""
    answer = alice.post(queue, **given)  # type: ignore[arg-type]
    assert problem(answer)[0] == 400
    headers: dict[str, str] = given.get("headers", {})  # type: ignore[assignment]
    assert all(name in answer.json()["detail"] for name in headers if name.startswith("Message-"))


@pytest.mark.parametrize(
    ("said", "status", "code"),
    [
        # RFC 9112 §2.3, RFC 9110 §15.6.6: another major version.
        (b"GET /queues HTTP/2.0\r\nHost: x\r\n\r\n", 505, b"version-unknown"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", 505, b"version-unknown"),
        (b"GET /queues HTTP/0.9\r\nHost: x\r\n\r\n", 505, b"version-unknown"),
        # RFC 9110 §9.1, §15.6.2: an unknown method, and one that no resource here has.
        (b"BREW /queues HTTP/1.1\r\nHost: x\r\n\r\n", 501, b"method-unknown"),
        (b"TRACE /queues HTTP/1.1\r\nHost: x\r\n\r\n", 405, b"method-not-allowed"),
        (b"CONNECT x:443 HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        # RFC 9112 §3.2: targets of no form, or of the wrong one.
        (b"GET * HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        (b"GET queues HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        (b"GET ftp://x/queues HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        (b"GET http:///queues HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        (b"GET http://a@x/queues HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        (b"GET /queues/a#b HTTP/1.1\r\nHost: x\r\n\r\n", 400, b"bad-request"),
        # RFC 9112 §3.2: no host, two of them, and an invalid one.
        (b"GET /queues HTTP/1.1\r\n\r\n", 400, b"bad-request"),
        (b"GET /queues HTTP/1.1\r\nHost: x\r\nHost: y\r\n\r\n", 400, b"bad-request"),
        (b"GET /queues HTTP/1.1\r\nHost: a b\r\n\r\n", 400, b"bad-request"),
        (b"GET /queues HTTP/1.1\r\nHost: x:port\r\n\r\n", 400, b"bad-request"),
        # RFC 9112 §3, RFC 9110 §15.5.15: too long a target, at once or without an end.
        (b"GET /queues/" + b"a" * 5_000 + b" HTTP/1.1\r\nHost: x\r\n\r\n", 414, b"target-too-long"),
        (b"GET /queues/" + b"a" * 9_000, 414, b"target-too-long"),
        # RFC 9112 §5.1: a blank before the colon.
        (b"GET /queues HTTP/1.1\r\nHost : x\r\n\r\n", 400, b"bad-request"),
        # RFC 9112 §2.2, RFC 9110 §5.5: a line that begins with a blank, and characters that no value may have.
        (b"GET /queues HTTP/1.1\r\n Host: x\r\n\r\n", 400, b"bad-request"),
        (b"GET /queues HTTP/1.1\r\nHost: x\r\nX: a\rb\r\n\r\n", 400, b"bad-request"),
        (b"GET /queues HTTP/1.1\r\nHost: x\r\nX: a\0b\r\n\r\n", 400, b"bad-request"),
        # RFC 9110 §8.6: invalid lengths, and one above the limit.
        (b"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Length: +1\r\n\r\na", 400, b"bad-request"),
        (b"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Length: 1, 2\r\n\r\na", 400, b"bad-request"),
        # RFC 9112 §6.1, §6.3, §7.1: bodies whose end is not clear.
        (
            b"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
            400,
            b"bad-request",
        ),
        (b"POST /queues HTTP/1.0\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 400, b"bad-request"),
        (
            b"POST /queues HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
            501,
            b"coding-unknown",
        ),
        (b"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\na", 400, b"bad-request"),
        # RFC 9110 §5.3, §10.1.1, §14.5: one value twice, an unknown expectation, a part of a body.
        (
            b"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Type: a/b\r\nContent-Type: a/c\r\nContent-Length: 0\r\n\r\n",
            400,
            b"bad-request",
        ),
        (
            b"POST /queues HTTP/1.1\r\nHost: x\r\nExpect: coffee\r\nContent-Length: 0\r\n\r\n",
            417,
            b"expectation-unknown",
        ),
        (
            b"PUT /queues/a HTTP/1.1\r\nHost: x\r\nContent-Range: bytes 0-1/2\r\nContent-Length: 0\r\n\r\n",
            400,
            b"bad-request",
        ),
    ],
)
def test_no_such_request(strict: RestFrontend, said: bytes, status: int, code: bytes) -> None:
    """RFC 9110, RFC 9112: bytes that are no request of HTTP/1.1, or could be read as two, are refused by the right code."""
    line = Line(strict)
    line.say(said.replace(b"\r\nHost:", b"\r\nConnection: close\r\nHost:", 1))
    found, heard, _ = line.hear()
    assert found == status and b"urn:stanzaq:0:problem:" + code in heard, heard


def test_torn_bodies(strict: RestFrontend, alice: httpx.Client) -> None:
    """RFC 9112 §7.1, §8: invalid chunks, and a body that ends too soon, publish nothing."""
    queue = alice.post("/queues").headers["Location"]
    head = f"POST {queue} HTTP/1.1\r\nHost: x\r\nAuthorization: {alice.headers['Authorization']}\r\n".encode()
    line = Line(strict)
    line.say(head + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\nzz\r\n")
    status, heard, _ = line.hear()
    assert status == 400 and b"bad-request" in heard
    line = Line(strict)
    line.say(head + b"Content-Length: 10\r\n\r\nabc")
    line.end()
    assert line.hear()[0] in {0, 400, 408}
    assert alice.get(queue, headers={"Accept": "application/json"}).json()["counts"]["published"] == 0


def test_expectations(strict: RestFrontend, alice: httpx.Client) -> None:
    """RFC 9110 §10.1.1: a client that asks before it sends a body is told to continue, or what is wrong."""
    head = (
        f"Host: x\r\nAuthorization: {alice.headers['Authorization']}\r\nExpect: 100-continue\r\nConnection: close\r\n"
    )
    line = Line(strict)
    line.say(f"POST /queues HTTP/1.1\r\n{head}Content-Type: application/json\r\nContent-Length: 2\r\n\r\n".encode())
    assert line.first() == 100
    line.say(b"{}")
    assert line.hear()[0] == 201
    line = Line(strict)
    line.say(f"POST /queues/a HTTP/1.1\r\n{head}Content-Length: 9000000\r\n\r\n".encode())
    assert line.hear()[0] == 413


def test_end_of_an_unclear_body(strict: RestFrontend) -> None:
    """RFC 9112 §6.3: after a body with an unclear end nothing else is read: it could be somebody else's request."""
    line = Line(strict)
    body = b"0\r\n\r\nGET /openapi.json HTTP/1.1\r\nHost: x\r\n\r\n"
    line.say(
        b"POST /queues HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nTransfer-Encoding: chunked\r\n\r\n" % len(body)
        + body
    )
    status, heard, _ = line.hear()
    assert status == 400 and b"HTTP/1.1 200" not in heard


@pytest.mark.parametrize("scheme", [b"http://", b"HTTP://", b"https://"])
def test_absolute_targets(frontend: RestFrontend, alice: httpx.Client, scheme: bytes) -> None:
    """RFC 9112 §3.2.2: a target with scheme and host is accepted, and its host overrides the field."""
    authorization = alice.headers["Authorization"]
    assert asked(frontend, scheme + b"x/queues?below=", authorization)[0] == 200
    assert asked(frontend, scheme + b"x", authorization)[0] == 404
    origin = f"{authorization}\r\nContent-Length: 0\r\nOrigin: http://other.example"
    assert asked(frontend, scheme + b"other.example/queues", origin, b"POST")[0] == 201
    assert asked(frontend, b"/queues", origin, b"POST")[0] == 403


def test_options_of_the_server(frontend: RestFrontend) -> None:
    """RFC 9110 §9.3.7, RFC 9112 §3.2.4: OPTIONS * asks what the server as a whole accepts."""
    status, heard = asked(frontend, b"*", "", b"OPTIONS")
    allowed = {method for methods in ROUTES.values() for method in methods} | {"HEAD", "OPTIONS"}
    (line,) = [each for each in heard.decode().split("\r\n") if each.lower().startswith("allow: ")]
    assert status == 204 and set(line.partition(": ")[2].split(", ")) == allowed


def test_nothing_is_left_of_it(frontend: RestFrontend, strict: RestFrontend) -> None:
    """Afterwards each frontend is ready, and its log has no exception."""
    for each in (frontend, strict):
        assert each.probe("/readyz")[0] == 200
        assert "Traceback" not in each.log and '"exception"' not in each.log
