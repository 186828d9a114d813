"""Messages sent over HTTP: deduplicated or not, alone or together, byte for byte."""

import base64
import json
import os
import time
from datetime import UTC, datetime, timedelta
from typing import Any

import httpx
import pytest

from frontends.tools.servers.redis import RedisServer
from tests.doors.rest.served import RestFrontend, client, problem


def content(alice: httpx.Client, message: str) -> httpx.Response:
    """Return a message's content."""
    return alice.get(message.replace("/messages/", "/contents/", 1))


def listed(alice: httpx.Client, queue: str) -> list[str]:
    """Give the ids of a queue's messages."""
    page = alice.get(queue, headers={"Accept": "application/json"}).json()
    return [message["id"] for message in page["messages"]]


def test_plain(alice: httpx.Client, queue: str) -> None:
    """A body makes a message (RX1), a new one each time."""
    made = [alice.post(queue, content=b"hello", headers={"Content-Type": "text/plain"}) for _ in range(2)]
    assert [answer.status_code for answer in made] == [201, 201]
    assert [answer.headers["Location"].rpartition("/")[2] for answer in made] == listed(alice, queue)
    shown = alice.get(made[0].headers["Location"], headers={"Accept": "application/json"}).json()
    assert (shown["text"], shown["content_type"], shown["state"]) == ("hello", "text/plain", "waiting")
    assert shown["publisher"] == "alice@example.org" and shown["bytes"] == 5


@pytest.mark.parametrize(
    "content_type",
    [
        "application/octet-stream",
        "image/png",
        "application/xml",
        "application/xml; charset=latin-1",
        "text/html",
        "a/b",
    ],
)
def test_bytes_stay_as_they_are(alice: httpx.Client, queue: str, content_type: str) -> None:
    """Any bytes under any type come back, and never as a page of this server."""
    body = os.urandom(5_000) + bytes(range(256)) + b"\r\n\0"
    made = alice.post(queue, content=body, headers={"Content-Type": content_type})
    got = content(alice, made.headers["Location"])
    assert (got.content, got.headers["Content-Type"]) == (body, content_type)
    assert got.headers["X-Content-Type-Options"] == "nosniff" and "sandbox" in got.headers["Content-Security-Policy"]


@pytest.mark.parametrize(
    "body",
    [b"NaN", b'{"a": -Infinity}', b'"\xff"', b"", b"{} x", b"{"],
    ids=["nan", "inf", "utf-8", "empty", "more", "less"],
)
@pytest.mark.parametrize("content_type", ["application/json", "application/json; charset=utf-8"])
def test_what_is_no_json(alice: httpx.Client, queue: str, body: bytes, content_type: str) -> None:
    """Issue 48.8: a body that is called JSON and is none is refused in every way of sending, and nothing of it is stored."""
    kind, found = {"Content-Type": content_type}, (400, "payload-invalid")
    reserved = alice.post(queue).headers["Location"]
    answers = [
        alice.post(f"{queue}?guid=a", content=body, headers=kind),
        alice.post(reserved, content=body, headers=kind),
    ]
    answers.append(alice.put(reserved, content=body, headers=kind))
    if body:
        # Without a body it reserves.
        answers.append(alice.post(queue, content=body, headers=kind))
    for answer in answers:
        assert problem(answer) == found and "is not JSON" in answer.json()["detail"]
    row = {"base64": base64.b64encode(body).decode(), "content_type": content_type}
    batches = queue.replace("/queues/", "/batches/")
    together = alice.post(batches, json=[{"text": "a"}, row, {"text": "b"}])
    part = b"--x\r\nContent-Type: " + content_type.encode() + b"\r\n\r\n" + body + b"\r\n--x--"
    multipart = {"Content-Type": "multipart/mixed; boundary=x"}
    parted = alice.post(batches, content=b"--x\r\n\r\nc\r\n" + part, headers=multipart)
    results = together.json()["results"] + parted.json()["results"]
    assert [each["status"] for each in results] == [201, 400, 201, 201, 400]
    every = {"every": "1h", **row}
    assert problem(alice.put(f"{queue.replace('/queues/', '/schedule/')}/a", json=every)) == found
    assert len(listed(alice, queue)) == 3
    assert alice.post(reserved, content=b"{}", headers=kind).status_code == 200, "the reservation is still there"


@pytest.mark.parametrize("content_type", ["application/vnd.x+json", "text/json"])
def test_other_types_are_not_read(alice: httpx.Client, queue: str, content_type: str) -> None:
    """Only `application/json` is checked."""
    assert alice.post(queue, content=b"NaN", headers={"Content-Type": content_type}).status_code == 201


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        (b"<job xmlns='urn:x'>1</job>", "<job xmlns='urn:x'>1</job>"),
        (b"<?xml version='1.0' encoding='latin-1'?><job xmlns='urn:x'>\xe9</job>", ""),
        (b"<?xml version='1.0'?>\n<job>no namespace</job>\n", "<job xmlns=''>no namespace</job>"),
        (b"<job xmlns='urn:x'><!-- a comment --></job>", ""),
        (b"<!DOCTYPE job><job xmlns='urn:x'/>", ""),
        (b"<p:job xmlns:p='urn:x'><child/></p:job>", "<p:job xmlns='' xmlns:p='urn:x'><child/></p:job>"),
        (b"<job xmlns='urn:x'/><another xmlns='urn:x'/>", ""),
        (b"not XML", ""),
        (b"", ""),
    ],
)
def test_any_xml_stays_as_it_is(alice: httpx.Client, queue: str, body: bytes, shown: str) -> None:
    """A body that cannot be in a stanza, or a feed, is kept all the same; no feed breaks."""
    made = alice.post(queue, params={"guid": "x"}, content=body, headers={"Content-Type": "application/xml"})
    got = content(alice, made.headers["Location"])
    assert (got.content, got.headers["Content-Type"]) == (body, "application/xml")
    feed = alice.get(queue)
    assert ("<content type='application/xml'><" in feed.text) is bool(shown)
    assert (f"<content type='application/xml'>{shown}</content>" if shown else ' src="/contents') in feed.text


def test_two_steps(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """R8, R9, RX1: a reservation is no message yet; the body may come as often as needed, and counts once."""
    made = alice.post(queue)
    where = made.headers["Location"]
    assert made.status_code == 201 and made.json()["href"] == where and "expires" in made.json()
    assert listed(alice, queue) == []
    assert problem(alice.get(where)) == (404, "item-not-found")
    first = alice.post(where, content=b"body")
    assert (first.status_code, first.json()["duplicate"]) == (200, False)
    again = alice.put(where, content=b"body")
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert problem(alice.post(where, content=b"another")) == (409, "reservation-used")
    assert problem(alice.post(where, content=b"body", headers={"Content-Type": "text/plain"}))[0] == 409
    assert listed(alice, queue) == [made.json()["id"]]
    assert problem(bob.post(where, content=b"body"))[0] == 403
    assert problem(alice.post(f"{where}0", content=b"body")) == (404, "item-not-found")


def test_reservation_expires(redis: RedisServer) -> None:
    """An expired reservation says so, and another one can be had."""
    with RestFrontend(redis.url, RESERVATION_SECONDS="1") as frontend, client(frontend) as alice:
        queue = alice.post("/queues").headers["Location"]
        where = alice.post(queue).headers["Location"]
        time.sleep(1.1)
        assert problem(alice.post(where, content=b"late")) == (410, "reservation-expired")
        assert alice.post(alice.post(queue).headers["Location"], content=b"in time").status_code == 200


def test_too_many_reservations(redis: RedisServer) -> None:
    """A JID's reservations are bounded, and it is told when to ask again."""
    with RestFrontend(redis.url, QOS_SOURCE_MESSAGES="2") as frontend, client(frontend, "bob@example.org") as bob:
        queue = bob.post("/queues").headers["Location"]
        assert [bob.post(queue).status_code for _ in range(2)] == [201, 201]
        refused = bob.post(queue)
        assert problem(refused) == (429, "too-much-held") and refused.headers["Retry-After"] == "1"


@pytest.mark.parametrize("given", [{"params": {"guid": "g1"}}, {"headers": {"Idempotency-Key": '"g1"'}}])
def test_client_made_id(alice: httpx.Client, queue: str, given: dict[str, dict[str, str]]) -> None:
    """R10, RX7: repeats of an id are ignored and reported, also when the message has gone."""
    first = alice.post(queue, content=b"one", **given)  # type: ignore[arg-type]
    assert (first.status_code, first.json()) == (200, {**first.json(), "id": "g1", "duplicate": False})
    again = alice.post(queue, content=b"one", **given)  # type: ignore[arg-type]
    assert (again.status_code, again.json()["duplicate"]) == (200, True)
    assert content(alice, first.headers["Location"]).content == b"one"
    assert listed(alice, queue) == ["g1"]


def test_another_body_under_one_id(alice: httpx.Client, queue: str) -> None:
    """R10: of a guid the first message counts. An Idempotency-Key of another message is 422, also when that is done."""
    for body, duplicate in ((b"one", False), (b"two", True)):
        answer = alice.post(f"{queue}?guid=g1", content=body)
        assert (answer.status_code, answer.json()["duplicate"]) == (200, duplicate)
    key, kind = {"Idempotency-Key": '"k1"'}, {"Content-Type": "text/plain"}
    trace = {"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"}
    assert alice.post(queue, content=b"one", headers=key | kind).json()["duplicate"] is False
    lease = alice.post("/subscriptions", json={"destinations": queue.removeprefix("/queues/"), "prefetch": 9})
    for done in (False, True):
        assert alice.post(queue, content=b"one", headers=key | kind | trace).json()["duplicate"] is True
        for other in (kind | {"Group-Key": "g"}, kind | {"Item-A": "b"}, kind | {"Message-Priority": "9"}, {}):
            assert problem(alice.post(queue, content=b"one", headers=key | other)) == (422, "idempotency-key-used")
        assert problem(alice.post(queue, content=b"two", headers=key | kind)) == (422, "idempotency-key-used")
        if not done:
            held = alice.get(f"{lease.headers['Location']}?wait=5", headers={"Accept": "application/json"}).json()
            assert [alice.delete(each["href"]).status_code for each in held["messages"]] == [200, 200]
    assert alice.get(queue, headers={"Accept": "application/json"}).json()["counts"]["published"] == 2
    parts = b"--x\r\nIdempotency-Key: k1\r\n\r\nanother\r\n--x\r\nIdempotency-Key: k2\r\n\r\nnew\r\n--x--"
    batch = alice.post(
        queue.replace("/queues/", "/batches/"), content=parts, headers={"Content-Type": "multipart/mixed; boundary=x"}
    )
    assert [each["status"] for each in batch.json()["results"]] == [422, 201]


def test_batch_in_json(alice: httpx.Client, queue: str) -> None:
    """Each message of a batch has its own result; a wrong one harms no other."""
    raw = os.urandom(100)
    batch = [
        {"json": {"a": [1, "é"]}},
        {"text": "hello", "guid": "t1"},
        {"base64": base64.b64encode(raw).decode(), "content_type": "image/png", "group_key": "k"},
        {"text": "x" * 300_000},
        {"text": "again", "guid": "t1"},
        {"text": "bad", "content_type": "no type"},
    ]
    answer = alice.post(queue.replace("/queues/", "/batches/"), json=batch)
    results = answer.json()["results"]
    assert answer.status_code == 200
    assert [each["status"] for each in results] == [201, 201, 201, 413, 201, 415]
    assert [each.get("duplicate") for each in results] == [False, False, False, None, True, None]
    assert listed(alice, queue) == [results[at]["id"] for at in range(3)]
    assert json.loads(content(alice, results[0]["href"]).content) == {"a": [1, "é"]}
    assert content(alice, results[2]["href"]).content == raw


def test_one_wrong_of_a_batch(alice: httpx.Client, queue: str) -> None:
    """RFC 9457: an invalid message has its own result, by its place; the others are sent."""
    wrong: list[Any] = [
        {},
        1,
        {"text": 1},
        {"text": "a", "json": 1},
        {"text": "", "delay": "1"},
        {"text": "", "priority": True},
        {"base64": "*"},
        {"text": "", "headers": {"a": 1}},
        {"text": "", "group": "k"},
        {"text": "", "guid": ""},
    ]
    answer = alice.post(queue.replace("/queues/", "/batches/"), json=[{"text": "a"}, *wrong, {"text": "b"}])
    results = answer.json()["results"]
    assert [each["status"] for each in results] == [201, *[400] * len(wrong), 201]
    kinds = [each["type"].rpartition(":")[2] for each in results[1:-1]]
    assert kinds == [*["bad-request"] * (len(wrong) - 1), "item-id-invalid"]
    assert all(each["detail"] for each in results[1:-1])
    parts = b"--x\r\n\r\na\r\n--x\r\nno colon\r\n\r\nb\r\n"
    parts += b"--x\r\nContent-Transfer-Encoding: base64\r\n\r\nYQ==\r\n--x\r\nIdempotency-Key:\r\n\r\nc\r\n"
    parts += b"--x\r\nGroup-Key: a\r\ngroup-key: b\r\n\r\nc\r\n--x\r\n\r\nd\r\n--x--"
    kind = {"Content-Type": "multipart/mixed; boundary=x"}
    answer = alice.post(queue.replace("/queues/", "/batches/"), content=parts, headers=kind)
    assert [each["status"] for each in answer.json()["results"]] == [201, 400, 400, 400, 400, 201]
    assert len(listed(alice, queue)) == 4


def test_durability(alice: httpx.Client, queue: str) -> None:
    """A message that no replica has in time, alone or in a batch, is stored and answered with 504."""
    asking = {"text": "durable", "confirm": "replicated"}
    answer = alice.post(queue.replace("/queues/", "/batches/"), json=[asking, {"text": "usual"}])
    durable, usual = answer.json()["results"]
    assert (durable["status"], usual["status"]) == (504, 201)
    assert durable["detail"].startswith("the item is stored, but not replicated: 0 of 1 replicas have it")
    assert len(listed(alice, queue)) == 2


def test_hints(alice: httpx.Client, queue: str) -> None:
    """A message may have a delay, a priority and a time to live, in every way of sending."""
    alice.post(queue, content=b"usual")
    alice.post(queue, content=b"urgent", headers={"Message-Priority": "9"})
    late = alice.post(queue, content=b"late", headers={"Message-Delay": "3600", "Message-TTL": "7200"})
    then = alice.post(queue, content=b"then", headers={"Message-At": "2999-01-01T00:00:00Z"})
    assert then.status_code == 400 and "Message-At" in then.json()["detail"]
    soon = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    then = alice.post(queue, content=b"then", headers={"Message-At": soon})
    reserved = alice.post(queue).headers["Location"]
    assert alice.post(reserved, content=b"reserved", headers={"Message-Priority": "8"}).status_code == 200
    batch = [{"text": "low", "priority": 0}, {"text": "soon over", "ttl": 1}, {"text": "wrong", "priority": 10}]
    answer = alice.post(queue.replace("/queues/", "/batches/"), json=[*batch, {"text": "wrong", "delay": -1}])
    results = answer.json()["results"]
    assert [each["status"] for each in results] == [201, 201, 400, 400] and "priority" in results[2]["detail"]
    timed = [{"text": "then", "at": soon}, {"text": "wrong", "at": 5}, {"text": "wrong", "at": soon, "delay": 5}]
    answer = alice.post(queue.replace("/queues/", "/batches/"), json=timed)
    assert [each["status"] for each in answer.json()["results"]] == [201, 400, 400]
    parts = b"--cut\r\nMessage-Priority: 7\r\n\r\nparted\r\n--cut--"
    kind = {"Content-Type": "multipart/mixed; boundary=cut"}
    assert alice.post(queue.replace("/queues/", "/batches/"), content=parts, headers=kind).status_code == 200
    seen = {each["id"]: each for each in alice.get(queue.replace("/queues/", "/surveys/")).json()["items"]}
    shown = seen[late.json()["id"]]
    assert shown["state"] == "delayed" and shown["delayed_until"] < shown["ends"] and shown["priority"] == 4
    for each in (then.json()["id"], answer.json()["results"][0]["id"]):
        until = datetime.fromisoformat(seen[each]["delayed_until"])
        assert abs(until - datetime.fromisoformat(soon)) < timedelta(seconds=10)
    assert seen[results[0]["id"]]["priority"] == 0 and "ends" not in seen[results[0]["id"]]
    time.sleep(1.1)
    lease = alice.post("/subscriptions", json={"destinations": queue.removeprefix("/queues/"), "prefetch": 10})
    held = alice.get(lease.headers["Location"], headers={"Accept": "application/json"}).json()["messages"]
    assert [content(alice, each["content_href"]).text for each in held] == [
        "urgent",
        "reserved",
        "parted",
        "usual",
        "low",
    ]


def test_batch_of_parts(alice: httpx.Client, queue: str) -> None:
    """Parts of multipart/mixed stay as they are."""
    raw = b"\r\n--almost\r\n\0\xff" + os.urandom(1_000)
    body = (
        b"preamble\r\n--cut\r\nContent-Type: image/png\r\nIdempotency-Key: p1\r\n\r\n"
        + raw
        + b"\r\n--cut \r\n\r\nplain\r\n--cut--\r\nepilogue"
    )
    kind = {"Content-Type": 'multipart/mixed; boundary="cut"'}
    answer = alice.post(queue.replace("/queues/", "/batches/"), content=body, headers=kind)
    results = answer.json()["results"]
    assert [each["status"] for each in results] == [201, 201] and results[0]["id"] == "p1"
    got = content(alice, results[0]["href"])
    assert (got.content, got.headers["Content-Type"]) == (raw, "image/png")
    assert content(alice, results[1]["href"]).text == "plain"


@pytest.mark.parametrize(
    ("body", "kind", "found"),
    [
        (b"[]", "application/json", (400, "bad-request")),
        (b"{}", "application/json", (400, "bad-request")),
        (b"[" * 100_000, "application/json", (400, "bad-request")),
        (b"[NaN]", "application/json", (400, "bad-request")),
        (b'[{"json": {"a": 1, "a": 2}}]', "application/json", (400, "bad-request")),
        (b'[{"json": {"x": 1e400}}]', "application/json", (400, "bad-request")),
        (rb'[{"text": "x"}, {"text": "x", "after": "\ud800"}]', "application/json", (400, "bad-request")),
        (b"\xff", "application/json", (400, "bad-request")),
        (json.dumps([{"text": ""}] * 201).encode(), "application/json", (400, "bad-request")),
        (b"--x\r\n\r\na\r\n--x--", "multipart/mixed", (400, "bad-request")),
        (b"--x\r\n\r\na\r\n--x", "multipart/mixed; boundary=x", (400, "bad-request")),
        (b"--x\r\n\r\n\r\n" * 300 + b"--x--", "multipart/mixed; boundary=x", (400, "bad-request")),
        (b"a=b", "application/x-www-form-urlencoded", (415, "media-type-unknown")),
    ],
)
def test_bad_batches(alice: httpx.Client, queue: str, body: bytes, kind: str, found: tuple[int, str]) -> None:
    """A batch that cannot be parsed publishes nothing."""
    answer = alice.post(queue.replace("/queues/", "/batches/"), content=body, headers={"Content-Type": kind})
    assert problem(answer) == found
    assert listed(alice, queue) == []


def test_deleted(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """D7, D8, D10, D11: a waiting message is deleted by its publisher or the owner, a held one is not."""
    alice.patch(queue, json={"options": {"pubsub#publish_model": "open"}})
    mine, theirs, others = (who.post(queue, content=b"x").headers["Location"] for who in (alice, bob, bob))
    assert problem(bob.delete(mine)) == (403, "forbidden")
    assert bob.delete(theirs).status_code == alice.delete(others).status_code == 200
    for gone in (theirs, others):
        assert problem(bob.delete(gone)) == (404, "item-not-found")
    lease = bob.post("/subscriptions", json={"destinations": queue.removeprefix("/queues/")}).headers["Location"]
    (held,) = bob.get(f"{lease}?wait=5", headers={"Accept": "application/json"}).json()["messages"]
    assert held["id"] == mine.rpartition("/")[2]
    assert problem(alice.delete(mine)) == (409, "locked-by-another")
    assert problem(bob.delete(mine))[0] == 403
    assert bob.delete(held["href"]).status_code == 200


def test_too_fast(alice: httpx.Client, queue: str) -> None:
    """stanzaq#publish_rate: 429 tells in `Retry-After` when to go on, a reservation's message too; a batch each message."""
    assert alice.patch(queue, json={"options": {"stanzaq#publish_rate": "1/h"}}).status_code == 200
    assert alice.post(queue, content=b"x").status_code == 201
    answer = alice.post(queue, content=b"x")
    assert problem(answer) == (429, "too-fast")
    assert 3_000 < int(answer.headers["Retry-After"]) <= 3_600
    (row,) = alice.post(queue.replace("queues", "batches"), json=[{"text": "x"}]).json()["results"]
    assert row["status"] == 429 and row["type"].endswith("too-fast") and 3_000 < row["retry_after"] <= 3_600
