"""The tree of queues: created, read, changed and deleted (R3 to R7, RX2, RX4), as JSON and as feeds."""

import secrets

import feedparser  # type: ignore[import-untyped]  # feedparser ships no types
import httpx
import pytest

from tests.doors.rest.served import problem

JSON = {"Accept": "application/json"}


@pytest.fixture
def top() -> str:
    """Return a part of the tree that no other test touches."""
    return f"top-{secrets.token_hex(4)}"


def test_created_as_wanted(alice: httpx.Client, bob: httpx.Client, top: str) -> None:
    """RX2, RX3, R6: PUT creates once; the same again changes nothing, a different one is refused."""
    wanted = {"options": {"stanzaq#lock_seconds": 30, "stanzaq#ordered": True, "pubsub#title": "Books"}}
    assert [alice.put(f"/queues/{top}", json=wanted).status_code for _ in range(2)] == [201, 200]
    assert alice.put(f"/queues/{top}").status_code == 200
    other = {"options": {"stanzaq#lock_seconds": 31}}
    assert problem(alice.put(f"/queues/{top}", json=other)) == (409, "node-exists")
    assert problem(bob.put(f"/queues/{top}", json=wanted)) == (409, "node-exists")
    shown = alice.get(f"/queues/{top}", headers=JSON).json()
    assert shown["title"] == "Books" and shown["options"]["stanzaq#lock_seconds"] == "30"
    assert "options" not in bob.get(f"/queues/{top}", headers=JSON).json()


def test_configured_and_deleted(alice: httpx.Client, bob: httpx.Client, top: str) -> None:
    """R7: only its owner changes and deletes a queue."""
    alice.put(f"/queues/{top}")
    changes = {"options": {"stanzaq#max_deliveries": 3}}
    assert problem(bob.patch(f"/queues/{top}", json=changes)) == (403, "forbidden")
    assert alice.patch(f"/queues/{top}", json=changes).status_code == 200
    assert alice.get(f"/queues/{top}", headers=JSON).json()["options"]["stanzaq#max_deliveries"] == "3"
    assert problem(bob.delete(f"/queues/{top}")) == (403, "forbidden")
    assert alice.delete(f"/queues/{top}").status_code == 200
    assert problem(alice.get(f"/queues/{top}")) == (404, "node-not-found")
    assert problem(alice.delete(f"/queues/{top}")) == (404, "node-not-found")


def test_numbers(alice: httpx.Client, top: str) -> None:
    """Options are numbers as docs/rest.md says: whole ones, also for a switch, and those with decimals."""
    for ordered in (0, 1):
        queue = f"/queues/{top}-{ordered}"
        said = {"stanzaq#ordered": ordered, "stanzaq#retry_delay": 30.5}
        assert alice.put(queue, json={"options": said}).status_code == 201
        options = alice.get(queue, headers=JSON).json()["options"]
        assert (options["stanzaq#ordered"], options["stanzaq#retry_delay"]) == (str(ordered), "30.5")


def test_weights(alice: httpx.Client, top: str) -> None:
    """stanzaq#fair_weights are lines of text."""
    said = {"stanzaq#fair": "key", "stanzaq#fair_weights": "gold=2\nplain=1.0"}
    assert alice.put(f"/queues/{top}", json={"options": said}).status_code == 201
    options = alice.get(f"/queues/{top}", headers=JSON).json()["options"]
    assert (options["stanzaq#fair"], options["stanzaq#fair_weights"]) == ("key", "gold=2\nplain=1")


@pytest.mark.parametrize(
    ("body", "found"),
    [
        ({"options": {"stanzaq#ordered": 2}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#ordered": 0.5}}, (400, "bad-request")),
        ({"options": {"stanzaq#lock_seconds": 0}}, (422, "not-acceptable")),
        ({"options": {"no such": 1}}, (422, "not-acceptable")),
        ({"options": {"pubsub#access_model": "roster"}}, (422, "access-model-unsupported")),
        ({"options": {"stanzaq#lock_seconds": [1]}}, (400, "bad-request")),
        ({"options": {"stanzaq#lock_seconds": 1.5}}, (400, "bad-request")),
        ({"options": {"stanzaq#retry_delay": -0.5}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#retry_backoff": 0.5}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#retry_jitter": 1.5}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#rate": "0/s"}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#rate": "abc"}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#rate": 10}}, (400, "bad-request")),
        ({"options": {"stanzaq#max_in_flight": 10**12}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#fair": "items"}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#fair_weights": "a=0"}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#fair_weights": ["a=1"]}}, (400, "bad-request")),
        ({"options": {"stanzaq#retry_limit": "long"}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#retry_limit": 1e300}}, (422, "not-acceptable")),
        ({"options": {"stanzaq#retry_delay": True}}, (400, "bad-request")),
        ({"options": []}, (400, "bad-request")),
        ({"option": {}}, (400, "bad-request")),
        ([], (400, "bad-request")),
    ],
)
def test_bad_options(alice: httpx.Client, top: str, body: object, found: tuple[int, str]) -> None:
    """A wrong option is named, and no queue is created."""
    answer = alice.put(f"/queues/{top}", json=body)
    assert problem(answer) == found
    assert alice.get(f"/queues/{top}").status_code == 404
    assert problem(alice.post("/queues", json=body)) == found


def test_longest_names(alice: httpx.Client, top: str) -> None:
    """Q32: a name that leaves no room for a suffix has shorter dead-letter names; no two of them the same."""
    known = set()
    for end in ("a", "b"):
        name = f"{top}/{'é' * ((1_022 - len(top) - 1) // 2)}".ljust(1_022 - (1_022 - len(top) - 1) // 2, "x") + end
        name = name[: 1_023 - (len(name.encode()) - len(name))]
        assert alice.put(f"/queues/{name}").status_code == 201
        options = alice.get(f"/queues/{name}", headers=JSON).json()["options"]
        dead = options["stanzaq#dead_letter_node"]
        assert dead.startswith(top) and dead.endswith("/dead") and len(dead.encode()) <= 1_023
        known.add(dead)
        assert alice.put(f"/queues/{dead}").status_code == 201
        assert alice.patch(f"/queues/{name}", json={"options": {"stanzaq#dead_letter_node": dead}}).status_code == 200
    assert len(known) == 2
    assert problem(alice.put(f"/queues/{'a' * 1_024}")) == (400, "node-name-invalid")


def test_tree(alice: httpx.Client, top: str) -> None:
    """R5, P34: a part of the tree shows its queues and its subparts; a queue may be both."""
    for name in ("uk/products", "uk/products/books/computers", "uk/products/toys", "de.products"):
        assert alice.put(f"/queues/{top}/{name}").status_code == 201
    assert alice.get(f"/queues/{top}", headers=JSON).json()["children"] == [
        {"name": f"{top}/uk", "href": f"/queues/{top}/uk", "is_queue": False},
        {"name": f"{top}/de.products", "href": f"/queues/{top}/de.products", "is_queue": True},
    ]
    feed = feedparser.parse(alice.get(f"/queues/{top}/uk/products").content)
    assert not feed.bozo
    assert [(each.title, each.tags[0].term) for each in feed.entries] == [
        (f"{top}/uk/products/books", "directory"),
        (f"{top}/uk/products/toys", "queue"),
    ]
    assert alice.get(f"/queues/{top}/uk", headers=JSON).json()["is_queue"] is False
    assert any(each["name"] == top for each in alice.get("/queues", headers=JSON).json()["children"])
    # RX4: one opaque segment is the same name.
    assert alice.get(f"/queues/{top}%2Fuk%2Fproducts", headers=JSON).json()["name"] == f"{top}/uk/products"


def test_cursors(alice: httpx.Client, top: str) -> None:
    """RFC 5005: no name of a queue ends a list; an empty cursor does."""
    for name in ("-", top):
        assert alice.put(f"/queues/{name}").status_code in {200, 201}
    after = {each["name"] for each in alice.get("/queues?below=-", headers=JSON).json()["children"]}
    assert top in after and "-" not in after
    assert alice.get("/queues?below=", headers=JSON).json()["children"] == []


def test_pages_of_messages(alice: httpx.Client, queue: str) -> None:
    """R4, RFC 5005: each message is on one page, in order, whatever the size of pages; reading takes nothing."""
    sent = [alice.post(queue, content=b"%d" % n, headers={"Content-Type": "text/plain"}).json()["id"] for n in range(7)]
    for _ in range(2):
        at, seen, texts = f"{queue}?limit=3", [], []
        while at:
            answer = alice.get(at)
            assert answer.headers["Content-Type"] == "application/atom+xml;type=feed"
            feed = feedparser.parse(answer.content)
            assert not feed.bozo and len(feed.entries) <= 3
            seen += [entry.title for entry in feed.entries]
            texts += [entry.content[0].value for entry in feed.entries]
            assert all(entry.tags[0].term == "waiting" for entry in feed.entries)
            at = next((link.href for link in feed.feed.links if link.rel == "next"), "")
        assert seen == sent and texts == list("0123456")
    page = alice.get(f"{queue}?limit=3", headers=JSON).json()
    assert page["counts"]["waiting"] == 7
    assert alice.get(page["next"], headers=JSON).json()["messages"][0]["id"] == sent[3]


def test_one_message_as_an_entry(alice: httpx.Client, queue: str) -> None:
    """A message is an entry of its own too, with its content or a link to it."""
    where = alice.post(queue, content=b"\xff", headers={"Content-Type": "image/png"}).headers["Location"]
    answer = alice.get(where)
    assert answer.headers["Content-Type"] == "application/atom+xml;type=entry"
    entry = feedparser.parse(b"<feed xmlns='http://www.w3.org/2005/Atom'>" + answer.content + b"</feed>").entries[0]
    assert entry.author == "alice@example.org" and entry.content[0].src.endswith(where.replace("messages", "contents"))
    assert alice.get(where, headers=JSON).json()["base64"] == "/w=="


def test_methods_and_forms(alice: httpx.Client, queue: str) -> None:
    """HEAD is GET without a body, OPTIONS lists the methods, and others are refused by name."""
    head, got = alice.head(queue), alice.get(queue)
    assert head.content == b"" and head.headers["Content-Length"] == got.headers["Content-Length"]
    assert alice.options(queue).headers["Allow"] == "GET, PUT, PATCH, DELETE, POST, HEAD, OPTIONS"
    refused = alice.delete("/queues")
    assert problem(refused) == (405, "method-not-allowed") and refused.headers["Allow"] == "GET, POST, HEAD, OPTIONS"
    assert problem(alice.get(queue, headers={"Accept": "text/html"})) == (406, "not-acceptable")
    assert problem(alice.get(queue, headers={"Accept": "application/json;q=0"})) == (406, "not-acceptable")
    browser = "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8"
    assert alice.get(queue, headers={"Accept": browser}).status_code == 200
    xml = {"Content-Type": "text/xml"}
    assert problem(alice.put(f"{queue}x", content=b"<a/>", headers=xml)) == (415, "media-type-unknown")
    assert problem(alice.get("/nothing")) == (404, "not-found")
    assert problem(alice.get(f"{queue}?limt=1")) == (400, "bad-request")
    assert problem(alice.get(f"{queue}?limit=0")) == (400, "bad-request")
    assert problem(alice.get(f"{queue}?after=x")) == (400, "bad-request")
    assert problem(alice.get("/queues?below=nobody")) == (404, "item-not-found")
