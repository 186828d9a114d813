"""Conditional requests (RFC 9110 §13), and bodies in gzip (RFC 9110 §8.4, §12.5.3)."""

import gzip

import httpx
import pytest

from tests.doors.rest.raw import asked
from tests.doors.rest.served import RestFrontend, problem

JSON = {"Accept": "application/json"}
ATOM = {"Accept": "application/atom+xml"}


def sent(who: httpx.Client, queue: str, text: str = "x") -> str:
    """Send a message; return its path."""
    made = who.post(queue, content=text, headers={"Content-Type": "text/plain"})
    assert made.status_code == 201
    return made.headers["Location"]


@pytest.mark.parametrize("kind", [JSON, ATOM])
def test_known_already(alice: httpx.Client, queue: str, kind: dict[str, str]) -> None:
    """§13.1.2, §15.4.5: a client with the present feed or entry is told so, with its tag and Vary."""
    message = sent(alice, queue)
    for path in (queue, message, "/queues", message.replace("/messages/", "/contents/")):
        first = alice.get(path, headers=kind)
        tag = first.headers["ETag"]
        assert first.headers["Vary"] == "Accept, Accept-Encoding" and first.headers["Cache-Control"] == "no-cache"
        for known in (tag, f"W/{tag}", f'"other", {tag}', "*"):
            again = alice.get(path, headers={**kind, "If-None-Match": known})
            assert (again.status_code, again.content, again.headers["ETag"]) == (304, b"", tag), path
        assert alice.head(path, headers={**kind, "If-None-Match": tag}).status_code == 304
        assert alice.get(path, headers={**kind, "If-None-Match": '"other"'}).content == first.content
    tag = alice.get(queue, headers=kind).headers["ETag"]
    sent(alice, queue)
    assert alice.get(queue, headers={**kind, "If-None-Match": tag}).status_code == 200
    # Two formats of one page are not one representation (§8.8.3.3).
    assert alice.get(queue, headers=JSON).headers["ETag"] != alice.get(queue, headers=ATOM).headers["ETag"]


def test_what_a_lease_holds(alice: httpx.Client, queue: str) -> None:
    """§8.8.1: a longer lease does not change the tag; its items do, and each fetch renews the lease."""
    lease = alice.post("/subscriptions", json={"destinations": queue.removeprefix("/queues/")}).headers["Location"]
    tag = alice.get(lease).headers["ETag"]
    assert tag.startswith("W/")
    assert alice.get(lease, headers={"If-None-Match": tag}).status_code == 304
    sent(alice, queue)
    assert alice.get(f"{lease}?wait=5", headers={"If-None-Match": tag}).status_code == 200
    # If-Match never accepts a weak tag (§13.1.1).
    tag = alice.get(lease).headers["ETag"]
    assert problem(alice.delete(lease, headers={"If-Match": tag})) == (412, "precondition-not-met")
    assert alice.delete(lease, headers={"If-Match": "*"}).status_code == 200


def test_looking_is_not_coming(alice: httpx.Client, queue: str) -> None:
    """§9.2.1, §9.3.2: HEAD neither renews a lease nor locks a message, and has the headers of GET."""
    lease = alice.post("/subscriptions", json={"destinations": queue.removeprefix("/queues/"), "lease": 3_600})
    path, until = lease.headers["Location"], lease.json()["expires"]
    sent(alice, queue)
    sight = queue.replace("/queues/", "/surveys/")
    looked = alice.head(path, headers=JSON)
    assert looked.status_code == 200 and int(looked.headers["Content-Length"]) > 0 and looked.content == b""
    assert [each for each in alice.get(sight).json()["items"] if "lock" in each] == []
    shown = alice.get(path, headers=JSON).json()
    assert shown["expires"] > until
    before = shown["expires"]
    (message,) = shown["messages"]
    assert alice.head(message["href"]).status_code == 200
    assert alice.head(path).status_code == 200
    listed = alice.get(path, headers=JSON)
    assert listed.json()["expires"] >= before
    alice.delete(path)
    assert alice.head(path).status_code == 410


def test_only_as_it_was(alice: httpx.Client, queue: str) -> None:
    """§13.1.1: a change or deletion applies to the seen version, in either format, or nothing is done: 412."""
    change = {"options": {"pubsub#title": "New"}}
    for kind in (JSON, ATOM):
        tag = alice.get(queue, headers=kind).headers["ETag"]
        for other in ('"other"', f"W/{tag}", "tag", ""):
            assert problem(alice.patch(queue, json=change, headers={"If-Match": other})) == (
                412,
                "precondition-not-met",
            )
        assert alice.patch(queue, json=change, headers={"If-Match": f'"other", {tag}'}).status_code == 200
        change = {"options": {"pubsub#title": "Newer"}}
    old = alice.get(queue, headers=JSON).headers["ETag"]
    message = sent(alice, queue)
    assert problem(alice.delete(queue, headers={"If-Match": old}))[0] == 412
    tag = alice.get(message).headers["ETag"]
    assert problem(alice.delete(message, headers={"If-Match": old}))[0] == 412
    assert alice.delete(message, headers={"If-Match": tag}).status_code == 200
    assert problem(alice.delete(message, headers={"If-Match": "*"}))[0] == 412
    assert problem(alice.get(queue, headers={**JSON, "If-Match": old}))[0] == 412
    assert alice.delete(queue, headers={"If-Match": "*"}).status_code == 200


def test_only_if_new(alice: httpx.Client, queue: str) -> None:
    """§13.1.2: a queue is created if it does not exist, and a message sent if its reservation has none; else 412."""
    new = {"If-None-Match": "*"}
    assert alice.put(f"{queue}-new", headers=new).status_code == 201
    assert problem(alice.put(f"{queue}-new", headers=new)) == (412, "precondition-not-met")
    assert alice.put(f"{queue}-new", headers={"If-None-Match": '"other"'}).status_code == 200
    assert problem(alice.put(f"{queue}-newer", headers={"If-Match": "*"}))[0] == 412
    assert alice.get(f"{queue}-newer").status_code == 404
    # A part of the tree is shown where there is no queue.
    assert alice.put(f"{queue}-part/a").status_code == alice.put(f"{queue}-part", headers=new).status_code == 201
    reserved = alice.post(queue).headers["Location"]
    assert alice.put(reserved, content=b"x", headers=new).status_code == 200
    assert problem(alice.put(reserved, content=b"x", headers=new))[0] == 412
    # No condition holds for a resource that cannot be read.
    assert problem(alice.post(queue.replace("queues", "purges"), headers={"If-Match": "*"}))[0] == 412


def test_conditions_do_not_tell(alice: httpx.Client, bob: httpx.Client) -> None:
    """§13.2.1: a client without access learns only that; OPTIONS has no conditions."""
    queue = alice.post("/queues", json={"options": {"pubsub#access_model": "whitelist"}}).headers["Location"]
    for condition in ({"If-Match": "*"}, {"If-None-Match": "*"}):
        assert bob.patch(queue, json={}, headers=condition).status_code == 403
        assert bob.options(queue, headers=condition).status_code == 204


def test_answers_in_gzip(alice: httpx.Client, queue: str) -> None:
    """§12.5.3: a client that accepts gzip gets it where it pays, under a tag of its own, which is recognised later."""
    for _ in range(5):
        sent(alice, queue, "z" * 500)
    plain = alice.get(queue, headers={"Accept-Encoding": "identity"})
    assert "Content-Encoding" not in plain.headers
    for accept, there in (
        ("gzip", True),
        ("br, *;q=0.5", True),
        ("gzip;q=0", False),
        ("gzip;q=0.2, identity", False),
        ("br", False),
    ):
        got = alice.get(queue, headers={"Accept-Encoding": accept})
        assert ("Content-Encoding" in got.headers) is there and got.content == plain.content
        assert (got.headers["ETag"] == plain.headers["ETag"]) is not there
        assert (
            alice.get(queue, headers={"Accept-Encoding": accept, "If-None-Match": got.headers["ETag"]}).headers["ETag"]
            == got.headers["ETag"]
        )
        title = {"options": {"pubsub#title": "x"}}
        assert alice.patch(queue, json=title, headers={"If-Match": got.headers["ETag"]}).status_code == 200
        alice.patch(queue, json={"options": {"pubsub#title": ""}})
    picture = alice.post(queue, content=bytes(5_000), headers={"Content-Type": "image/png"}).headers["Location"]
    shown = alice.get(picture.replace("/messages/", "/contents/"), headers={"Accept-Encoding": "gzip"})
    assert "Content-Encoding" not in shown.headers


@pytest.mark.parametrize("coding", ["gzip", "X-GZip"])
def test_bodies_in_gzip(alice: httpx.Client, queue: str, coding: str) -> None:
    """§8.4.1.3: a body in gzip is its content, under its type."""
    head = {"Content-Encoding": coding, "Content-Type": "text/plain"}
    where = alice.post(queue, content=gzip.compress(b"hello"), headers=head).headers["Location"]
    got = alice.get(where.replace("/messages/", "/contents/"))
    assert (got.content, got.headers["Content-Type"]) == (b"hello", "text/plain")


@pytest.mark.parametrize(
    ("coding", "body", "found"),
    [
        ("gzip", b"x", (400, "bad-request")),
        ("gzip", gzip.compress(b"hello")[:-1], (400, "bad-request")),
        ("gzip", gzip.compress(b"hello") + b"x", (400, "bad-request")),
        ("gzip", b"", (400, "bad-request")),
        ("gzip", gzip.compress(bytes(10_000_000)), (413, "payload-too-big")),
        ("br", b"x", (415, "content-encoding-unknown")),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x")), (415, "content-encoding-unknown")),
    ],
    # Compressed data has the time in it, and tests have one name in all processes.
    ids=("no gzip", "cut", "more", "nothing", "large", "another", "twice"),
)
def test_bad_codings(alice: httpx.Client, queue: str, coding: str, body: bytes, found: tuple[int, str]) -> None:
    """§8.4, §15.5.16: a body that is not in its coding, or grows beyond the limit, is refused, and nothing is sent."""
    refused = alice.post(queue, content=body, headers={"Content-Encoding": coding})
    assert problem(refused) == found
    assert refused.headers.get("Accept-Encoding") == ("gzip, identity" if found[0] == 415 else None)
    assert alice.get(queue, headers=JSON).json()["messages"] == []


def test_request_ids(alice: httpx.Client, frontend: RestFrontend, queue: str) -> None:
    """Each answer has its request's id, or one of its own, also when the request is refused."""
    assert alice.get(queue, headers={"X-Request-Id": "try-1"}).headers["X-Request-Id"] == "try-1"
    refused = alice.get(f"{queue}-none", headers={"X-Request-Id": "try-2"})
    assert refused.status_code == 404 and refused.headers["X-Request-Id"] == "try-2"
    made = {alice.get(f"{queue}-none").headers["X-Request-Id"] for _ in range(2)}
    assert len(made) == 2
    authorization = alice.headers["Authorization"]
    heard = asked(frontend, queue.encode(), f"{authorization}\r\nX-Request-Id: a b")[1].lower()
    assert b"x-request-id: a b" not in heard and b"x-request-id: " in heard
