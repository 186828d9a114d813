"""Subscriptions as leases (R11 to R18, RX4 to RX8): the holder fetches messages, or gets them as events."""

import asyncio
import json
import secrets
import time
from base64 import urlsafe_b64decode
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import feedparser  # type: ignore[import-untyped]  # feedparser ships no types
import httpx
import pytest

from broker.model.commands import Subscribe
from broker.model.names import Jid
from broker.model.results import Subscribed
from broker.redis_core.core import RedisCore
from broker.settings import CommandSettings
from frontends.tools.servers.redis import RedisServer
from tests.admitting import ADMITTING
from tests.doors.frontend import ALICE
from tests.doors.rest.raw import Line
from tests.doors.rest.served import RestFrontend, client, problem

JSON = {"Accept": "application/json"}
EVENTS = {"Accept": "text/event-stream"}


def name_of(queue: str) -> str:
    """Return the name of a queue by its path."""
    return queue.removeprefix("/queues/")


def subscribed(who: httpx.Client, queue: str, **fields: int | str) -> str:
    """Begin a subscription; return its path."""
    made = who.post("/subscriptions", json={"destinations": name_of(queue), **fields})
    assert made.status_code == 201, made.text
    return made.headers["Location"]


def sent(who: httpx.Client, queue: str, *texts: str) -> None:
    """Send messages."""
    for text in texts:
        assert who.post(queue, content=text, headers={"Content-Type": "text/plain"}).status_code == 201


def held(who: httpx.Client, subscription: str, wait: int = 5) -> list[dict[str, Any]]:
    """Fetch messages."""
    found = who.get(f"{subscription}?wait={wait}", headers=JSON, timeout=wait + 15)
    assert found.status_code == 200, found.text
    messages: list[dict[str, Any]] = found.json()["messages"]
    return messages


@pytest.fixture
def subscription(alice: httpx.Client, queue: str) -> str:
    """Return the path of a subscription for three messages."""
    return subscribed(alice, queue, prefetch=3)


def test_worked(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """R1, R13, R15, R16, R17: each message goes to one subscription, within its prefetch; an acknowledgement makes room."""
    made = alice.post("/subscriptions", data={"destinations": name_of(queue), "prefetch": "3", "lease": "30"})
    assert made.status_code == 201
    said = made.json()
    assert said["href"] == made.headers["Location"] and (said["prefetch"], said["destinations"]) == (
        3,
        [name_of(queue)],
    )
    mine, theirs = said["href"], subscribed(bob, queue, prefetch=3)
    sent(alice, queue, *"abcdefgh")
    first, second = held(alice, mine), held(bob, theirs)
    assert [len(first), len(second)] == [3, 3]
    assert sorted(each["text"] for each in first + second) == list("abcdef")
    assert {each["attempt"] for each in first} == {1} and {each["publisher"] for each in second} == {ALICE}
    told = {(each["max_attempts"], each["lock_seconds"], each["group_key"]) for each in first + second}
    assert told == {(20, 60, "")} and {f"-{each['token']}-" in each["href"] for each in first + second} == {True}
    assert alice.get(first[0]["href"], headers=JSON).json() == first[0]
    assert alice.delete(first[0]["href"]).status_code == 200
    # A client that lost the answer asks again.
    assert alice.delete(first[0]["href"]).status_code == 200
    assert [each["text"] for each in held(alice, mine)][-1] == "g"
    assert problem(alice.get(first[0]["href"])) == (409, "lock-lost")
    for each in second:
        assert bob.delete(each["href"]).status_code == 200
    assert [each["text"] for each in held(bob, theirs)] == ["h"]
    assert alice.get(queue, headers=JSON).json()["counts"]["in_flight"] == 4


def test_dots(alice: httpx.Client, queue: str, subscription: str) -> None:
    """An id that clients and proxies would take for a step in the tree has an address that they leave alone."""
    ids = [".", "..", "=."]
    batch = [{"text": each, "guid": each} for each in ids]
    assert alice.post(f"/batches/{name_of(queue)}", json=batch).status_code == 200
    first, *others = held(alice, subscription)
    assert [each["id"] for each in (first, *others)] == ids
    assert alice.delete(first["href"]).status_code == 200
    told = alice.post(f"{subscription}/acknowledgements", json=[each["href"] for each in others]).json()
    assert [each["status"] for each in told["results"]] == [200, 200]


def test_selected(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """R12: a lease gets messages that its selector matches, in order, and blocks nobody else's."""
    red = subscribed(alice, queue, prefetch=2, selector="colour = 'röt' AND size >= 10")
    blue = subscribed(bob, queue, prefetch=9, selector="colour = 'blue'")
    for number, colour in enumerate(["röt", "green", "blue", "röt", "röt"]):
        said: dict[str, Any] = {
            "Item-Colour": colour.encode(),
            "Item-Size": str(8 + number),
            "Content-Type": "text/plain",
        }
        assert alice.post(queue, content=str(number), headers=said).status_code == 201
    batch = [{"text": "5", "headers": {"colour": "röt", "size": "10"}}, {"text": "6", "headers": {"colour": "blue"}}]
    assert alice.post(f"/batches/{name_of(queue)}", json=batch).status_code == 200
    first = held(alice, red)
    assert [(each["text"], each["headers"]) for each in first] == [
        ("3", {"colour": "röt", "size": "11"}),
        ("4", {"colour": "röt", "size": "12"}),
    ]
    assert [each["text"] for each in held(bob, blue)] == ["2", "6"]
    assert alice.delete(first[0]["href"]).status_code == 200
    assert [each["text"] for each in held(alice, red)] == ["4", "5"]
    # Messages that nobody selected are there for others.
    everything = subscribed(alice, queue, prefetch=9)
    assert [each["text"] for each in held(alice, everything)] == ["0", "1"]


@pytest.mark.parametrize(
    ("selector", "where"), [("colour =", 9), ("(((", 4), ("x" * 2_000, 1_025), ("colour LIKE 1", 13)]
)
def test_no_selector(alice: httpx.Client, queue: str, selector: str, where: int) -> None:
    """R12: an unparsable selector is refused, with the place of the error."""
    refused = alice.post("/subscriptions", json={"destinations": name_of(queue), "selector": selector})
    assert problem(refused) == (422, "options-invalid")
    assert f"character {where}:" in refused.json()["detail"]


@pytest.mark.parametrize(
    "said",
    [{"Item-Stanzaq-Dead-Node": "x"}, {"Item-": "x"}, {"Item-A": b"\xff"}, {f"Item-N{n}": "x" for n in range(33)}],
)
def test_no_headers(alice: httpx.Client, queue: str, said: dict[str, str]) -> None:
    """R12: publishers cannot set the service's own headers, and a header is text under a name."""
    assert alice.post(queue, content="x", headers=said).status_code in {400, 422}


def test_progress(alice: httpx.Client, queue: str) -> None:
    """A worker tells how far it is: the owner and the publisher see it while the lock lasts."""
    path = subscribed(alice, queue, prefetch=1)
    sent(alice, queue, "a")
    (message,) = held(alice, path)

    def told() -> list[object]:
        shown = alice.get(queue.replace("queues", "messages") + "/" + message["id"], headers=JSON).json()
        (item,) = alice.get(queue.replace("queues", "surveys")).json()["items"]
        return [shown.get("progress", {}), item["lock"].get("progress", {})]

    assert told() == [{}, {}]
    assert alice.post(message["renew"], json={"progress": 0.4, "note": "ü"}).status_code == 200
    first, second = told()
    assert first == second and isinstance(first, dict) and first.pop("at") and first == {"share": 0.4, "note": "ü"}
    assert alice.post(message["renew"], data={"progress": "1"}).status_code == 200
    assert [each["share"] for each in told() if isinstance(each, dict)] == [1, 1]
    for wrong in (
        {"progress": 2},
        {"progress": "x"},
        {"progress": True},
        {"note": 1},
        {"note": "x" * 201},
        {"note": "\n"},
    ):
        assert problem(alice.post(message["renew"], json=wrong)) == (400, "bad-request")
    assert alice.delete(message["href"]).status_code == 200


def test_work_that_has_begun_or_not(alice: httpx.Client, queue: str) -> None:
    """Of what a subscription held at its end, the attempts count that had begun; a release says that there was none."""
    sent(alice, queue, "a", "b", "c")
    path = subscribed(alice, queue, prefetch=3)
    messages = {message["text"]: message for message in held(alice, path)}
    assert {message["attempt"] for message in messages.values()} == {1} and "reply" not in messages["a"]
    for wrong in ({"begun": 1}, {"begun": "perhaps"}, {"begun": None}):
        assert problem(alice.post(messages["b"]["renew"], json=wrong)) == (400, "bad-request")
    for wrong in ({"untried": 1}, {"untried": "x"}):
        assert problem(alice.post(messages["b"]["release"], json=wrong)) == (400, "bad-request")
    assert problem(alice.post(messages["b"]["dead_letter"], json={"untried": True})) == (400, "bad-request")
    assert alice.post(messages["b"]["renew"], json={"begun": True}).status_code == 200
    assert alice.delete(path).status_code == 200
    again = subscribed(alice, queue, prefetch=3)
    messages = {message["text"]: message for message in held(alice, again)}
    assert {name: message["attempt"] for name, message in messages.items()} == {"a": 1, "b": 2, "c": 1}
    assert alice.post(messages["b"]["release"], data={"untried": "true"}).status_code == 200
    (back,) = [message for message in held(alice, again) if message["text"] == "b"]
    assert back["attempt"] == 2
    for message in held(alice, again):
        assert alice.delete(message["href"]).status_code == 200


def test_results(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """The end of a message, with its worker's result, is at its address for its publisher; a long poll waits for it."""
    asked = {"Message-Reply": "true"}
    wrong: str | bytes
    assert problem(alice.post(queue, content=b"x", headers={"Message-Reply": "perhaps"})) == (400, "bad-request")
    assert alice.post(f"{queue}?guid=a", content=b"x", headers=asked).status_code == 200
    batch = [{"text": "b", "guid": "b", "reply": True}, {"text": "c", "guid": "c"}, {"text": "d", "reply": 1}]
    sent_all = alice.post(queue.replace("queues", "batches"), json=batch).json()["results"]
    assert [each["status"] for each in sent_all] == [201, 201, 400]
    path, messages = subscribed(alice, queue, prefetch=5), queue.replace("queues", "messages")
    first, second, third = held(alice, path)
    assert [each.get("reply") for each in (first, second, third)] == [True, True, None]
    with ThreadPoolExecutor(1) as aside:
        waiting = aside.submit(alice.get, f"{messages}/a", params={"wait": 30}, headers=JSON)
        assert problem(alice.post(first["complete"], content=b"x" * 65_537)) == (413, "payload-too-big")
        assert problem(alice.post(first["complete"], content=b"x", headers={"Content-Type": "no"}))[0] == 415
        for wrong in (b"NaN", b"", b'"\xff"'):
            refused = alice.post(first["complete"], content=wrong, headers={"Content-Type": "application/json"})
            assert problem(refused) == (400, "payload-invalid")
        for _ in range(2):
            done = alice.post(first["complete"], content=b"{}", headers={"Content-Type": "application/json"})
            assert done.status_code == 200
        shown = waiting.result(60).json()
    assert (shown["id"], shown["state"], shown["reason"]) == ("a", "acknowledged", "")
    assert shown["result"] == {"text": "{}", "content_type": "application/json"}
    assert problem(bob.get(f"{messages}/a", headers=JSON)) == (404, "item-not-found")
    assert alice.post(second["dead_letter"], json={"reason": "torn"}).status_code == 200
    shown = alice.get(f"{messages}/b", params={"wait": 30}, headers=JSON).json()
    assert (shown["state"], shown["reason"], "result" in shown) == ("dead", "torn", False)
    assert alice.post(third["complete"], content=b"nobody wants it").status_code == 200
    assert problem(alice.get(f"{messages}/c", headers=JSON)) == (404, "item-not-found")
    for wrong in ("61", "x", "-1"):
        assert problem(alice.get(f"{messages}/a", params={"wait": wrong}, headers=JSON)) == (400, "bad-request")


def test_flow(alice: httpx.Client, queue: str) -> None:
    """Parents that are kept may have ended before others are told to wait for them, in a queue made with defaults."""
    batches, messages = (queue.replace("queues", each) for each in ("batches", "messages"))
    keep = {"Message-Keep": "true"}
    assert alice.post(f"{queue}?guid=a", content=b"a", headers=keep).status_code == 200
    batch = [
        {"text": "b", "guid": "b", "keep": True},
        {"text": "c", "guid": "c", "keep": False},
        {"text": "d", "keep": 1},
    ]
    results = alice.post(batches, json=batch).json()["results"]
    assert [each["status"] for each in results] == [201, 201, 400] and "keep" in results[2]["detail"]
    parts = b"--x\r\nMessage-Keep: true\r\nIdempotency-Key: e\r\n\r\ne\r\n--x\r\nMessage-Keep: 2\r\n\r\nf\r\n--x--"
    kind = {"Content-Type": "multipart/mixed; boundary=x"}
    results = alice.post(batches, content=parts, headers=kind).json()["results"]
    assert [each["status"] for each in results] == [201, 400] and "Message-Keep" in results[1]["detail"]
    for wrong in ("perhaps", ""):
        assert problem(alice.post(queue, content=b"x", headers={"Message-Keep": wrong})) == (400, "bad-request")
    path = subscribed(alice, queue, prefetch=9)
    for each in held(alice, path):
        assert alice.post(each["complete"], content=each["id"].encode()).status_code == 200
    assert alice.get(f"{messages}/a", headers=JSON).json()["result"]["text"] == "a"
    unknown = alice.post(queue, content=b"x", headers={"Message-After": "a c"})
    assert problem(unknown) == (404, "item-not-found")
    assert "'c'" in unknown.json()["detail"] and "Message-Keep" in unknown.json()["detail"]
    album = alice.post(f"{queue}?guid=album", content=b"x", headers={"Message-After": "a b e"})
    assert album.status_code == 200
    (last,) = held(alice, path, 30)
    told = json.loads(last["headers"]["stanzaq-parents"])
    assert [(each["item"], each["state"], each["result"]) for each in told] == [
        (name, "acknowledged", name) for name in "abe"
    ]


def test_no_ends(alice: httpx.Client, queue: str) -> None:
    """What asks for an end is refused where none is kept: stanzaq#result_seconds is 0, or the queue is a log."""
    assert alice.patch(queue, json={"options": {"stanzaq#result_seconds": 0}}).status_code == 200
    for name in ("Message-Reply", "Message-Keep"):
        refused = alice.post(queue, content=b"x", headers={name: "true"})
        assert problem(refused) == (409, "unsupported") and "stanzaq#result_seconds is 0" in refused.json()["detail"]
    log = f"{queue}-log"
    assert alice.put(log, json={"options": {"pubsub#queueing": False}}).status_code == 201
    refused = alice.post(log, content=b"x", headers={"Message-Keep": "true"})
    assert problem(refused) == (409, "unsupported") and "kept end" in refused.json()["detail"]


def test_results_for_who_may_only_publish(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """RX8: a publisher that may not look into the queue waits for the end of its own message all the same, and sees no more."""
    options = {"stanzaq#result_seconds": 600, "pubsub#access_model": "whitelist", "pubsub#publish_model": "open"}
    assert alice.patch(queue, json={"options": options}).status_code == 200
    messages = queue.replace("queues", "messages")
    assert bob.post(f"{queue}?guid=a", content=b"x", headers={"Message-Reply": "true"}).status_code == 200
    assert bob.post(f"{queue}?guid=b", content=b"x").status_code == 200
    pending = {"id": "a", "href": f"{messages}/a", "state": "pending", "reason": ""}
    for wait in (0, 1):
        answer = bob.get(f"{messages}/a", params={"wait": wait}, headers=JSON)
        assert (answer.status_code, answer.json()) == (200, pending)
        assert problem(bob.get(f"{messages}/b", params={"wait": wait}, headers=JSON)) == (403, "closed-node")
    first, _ = held(alice, subscribed(alice, queue, prefetch=5))
    assert bob.get(f"{messages}/a", headers=JSON).json() == pending
    assert alice.post(first["complete"], content=b"done").status_code == 200
    assert bob.get(f"{messages}/a", headers=JSON).json()["state"] == "acknowledged"


def test_after(alice: httpx.Client, queue: str) -> None:
    """A message waits for others, alone and in a batch; it comes with their results, and bad names are refused."""
    messages, batches = (queue.replace("queues", each) for each in ("messages", "batches"))
    sent_all = alice.post(batches, json=[{"text": "a", "guid": "a"}, {"text": "b", "guid": "b c#%"}]).json()["results"]
    assert [each["status"] for each in sent_all] == [201, 201]
    after = {"Message-After": f"a {name_of(queue)}#b%20c%23%25"}
    assert alice.post(f"{queue}?guid=d", content=b"d", headers=after).status_code == 200
    batch = [
        {"text": "e", "guid": "e", "after": "d", "regardless": True},
        {"text": "f", "after": "none"},
        {"text": "g", "after": 1},
        {"text": "h", "regardless": True},
    ]
    assert [each["status"] for each in alice.post(batches, json=batch).json()["results"]] == [201, 404, 400, 400]
    many = " ".join(map(str, range(101)))
    for wrong in (f"{name_of(queue)}#a a", "a%2", many, "i"):
        answer = alice.post(f"{queue}?guid=i", content=b"x", headers={"Message-After": wrong})
        assert problem(answer) == (400, "bad-request"), wrong
    assert problem(alice.post(queue, content=b"x", headers={"Message-After": "none"})) == (404, "item-not-found")
    path = subscribed(alice, queue, prefetch=9)
    first, second = held(alice, path)
    shown = {each["id"]: each for each in alice.get(f"/surveys/{name_of(queue)}", headers=JSON).json()["items"]}
    assert (shown["d"]["state"], shown["e"]["state"]) == ("dependent", "dependent")
    assert shown["d"]["after"] == [{"item": "a", "state": "awaited"}, {"item": "b c#%", "state": "awaited"}]
    waiting = {each: [one["href"] for one in shown[each].get("awaited_by", [])] for each in ("a", "b c#%", "d", "e")}
    assert waiting["a"] == waiting["b c#%"] and waiting["e"] == []
    for (href,), child in ((waiting["a"], "d"), (waiting["d"], "e")):
        assert [each["id"] for each in alice.get(href, headers=JSON).json()["items"]] == [child]
    for each, result in ((first, "1"), (second, "2")):
        assert alice.post(each["complete"], content=result, headers={"Content-Type": "text/plain"}).status_code == 200
    third = next(each for each in held(alice, path, 30) if each["id"] == "d")
    assert json.loads(third["headers"]["stanzaq-parents"]) == [
        {"item": "a", "state": "acknowledged", "result": "1"},
        {"item": "b c#%", "state": "acknowledged", "result": "2"},
    ]
    assert alice.post(third["dead_letter"], json={"reason": "torn"}).status_code == 200
    last = next(each for each in held(alice, path, 30) if each["id"] == "e")
    assert json.loads(last["headers"]["stanzaq-parents"]) == [{"item": "d", "state": "dead", "reason": "torn"}]
    assert alice.get(f"{messages}/e", headers=JSON).json()["state"] == "locked"


def test_given_back(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """RX8, Q30, Q32: a released message goes to another, at once or later; a buried one to the dead letters, with the reason."""
    mine = subscribed(alice, queue, prefetch=1)
    theirs = subscribed(bob, queue, prefetch=1)
    sent(alice, queue, "a")
    owner, path = (alice, mine) if held(alice, mine, 0) else (bob, theirs)
    other, target = (bob, theirs) if owner is alice else (alice, mine)
    (message,) = held(owner, path)
    assert owner.post(message["release"], json={"reason": "busy"}).status_code == 200
    (again,) = held(other, target)
    assert (again["id"], again["attempt"]) == (message["id"], 2)
    longer = other.post(again["renew"], json={"seconds": 3_600})
    assert longer.status_code == 200 and longer.json()["expires"] > again["expires"]
    renewed = other.post(again["renew"])
    assert renewed.json()["expires"] < longer.json()["expires"]
    assert renewed.status_code == 200 and renewed.json()["expires"] >= again["expires"]
    assert other.post(again["release"], data={"delay": "1"}).status_code == 200
    assert held(alice, mine, 0) == held(bob, theirs, 0) == []
    deadline = time.monotonic() + 20
    while not (found := held(alice, mine, 0) + held(bob, theirs, 0)):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (third,) = found
    now = alice if third["href"].startswith(mine) else bob
    assert now.post(third["dead_letter"], json={"reason": "wrong"}).status_code == 200
    deadline = time.monotonic() + 20
    while not (dead := alice.get(f"{queue}/dead", headers=JSON).json().get("messages")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    assert dead[0]["headers"]["stanzaq-dead-reason"] == "wrong"


def test_rests(alice: httpx.Client, queue: str) -> None:
    """stanzaq#retry_delay: a released message rests as its queue says; a delay of 0 returns it at once."""
    options = {"stanzaq#retry_delay": 0.5, "stanzaq#retry_backoff": 7200, "stanzaq#retry_limit": "600000"}
    answer = alice.patch(queue, json={"options": options})
    assert problem(answer) == (422, "not-acceptable") and "stanzaq#retry_backoff" in answer.json()["detail"]
    assert alice.patch(queue, json={"options": options | {"stanzaq#retry_backoff": 100}}).status_code == 200
    shown = alice.get(queue, headers=JSON).json()["options"]
    assert (shown["stanzaq#retry_delay"], shown["stanzaq#retry_backoff"]) == ("0.5", "100")
    path = subscribed(alice, queue, prefetch=1)
    sent(alice, queue, "a")
    (first,) = held(alice, path)
    assert alice.post(first["release"], json={"delay": 0}).status_code == 200
    (second,) = held(alice, path)
    assert alice.post(second["release"], json={"reason": "busy"}).status_code == 200
    # The second rest is that after two attempts: 50 s.
    (found,) = alice.get(queue.replace("queues", "surveys")).json()["items"]
    assert (found["state"], found["attempts"]) == ("delayed", 2)
    assert [each["reason"] for each in found["history"]] == ["", "busy"]
    assert alice.patch(queue, json={"options": {"stanzaq#retry_backoff": 1}}).status_code == 200
    sent(alice, queue, "b")
    (other,) = held(alice, path)
    assert alice.post(other["release"]).status_code == 200
    (again,) = held(alice, path, wait=10)
    assert (again["id"], again["attempt"]) == (other["id"], 2)


def test_together(alice: httpx.Client, bob: httpx.Client, queue: str, subscription: str) -> None:
    """R16: several messages are acknowledged at once, each with its own result."""
    sent(alice, queue, *"abc")
    wanted = [message["href"] for message in held(alice, subscription)]
    path = f"{subscription}/acknowledgements"
    strange = [
        f"{subscription}/messages/never?lock=0-1",
        wanted[0][:-1],
        f"{subscription}/messages/x",
        "/queues",
        wanted[1] + "&lock=1",
        "",
    ]
    done = alice.post(path, json=[*wanted, *strange])
    assert done.status_code == 200
    assert [each["status"] for each in done.json()["results"]] == [200, 200, 200, 404, 400, 400, 400, 400, 400]
    assert alice.get(queue, headers=JSON).json()["counts"]["in_flight"] == 0
    assert {each["status"] for each in bob.post(path, json=wanted).json()["results"]} == {403}
    strange_bodies: list[Any] = [[], {}, [1], ["x"] * 201]
    for wrong in strange_bodies:
        assert problem(alice.post(path, json=wrong)) == (400, "bad-request")
    assert problem(alice.post(path, content="[]", headers={"Content-Type": "text/plain"}))[0] == 415


@pytest.mark.parametrize("several", [False, True])
def test_next(alice: httpx.Client, bob: httpx.Client, queue: str, *, several: bool) -> None:
    """R15, R16: one request acknowledges, then receives within the prefetch; a refused acknowledgement receives as well."""
    destinations = [name_of(queue), name_of(alice.post("/queues").headers["Location"])][: 2 if several else 1]
    path = alice.post("/subscriptions", json={"destinations": destinations, "prefetch": 2}).headers["Location"]
    sent(alice, queue, *"abcdef")
    first: list[dict[str, Any]] = []
    while len(first) < 2:
        first = held(alice, path)
    where = f"{path}/acknowledgements?next"

    def texts(said: dict[str, Any]) -> list[str]:
        return [each["text"] for each in said["messages"]]

    done = alice.post(f"{where}=5", json=[each["href"] for each in first]).json()
    assert ([each["status"] for each in done["results"]], sorted(texts(done))) == ([200, 200], ["c", "d"])
    assert "refused" not in done
    third, fourth = done["messages"]
    assert third["attempt"] == 1 and held(alice, path) == done["messages"]
    completed = third["complete"] + "&next"
    done = alice.post(f"{completed}=1", content=b"r").json()
    assert ([each["status"] for each in done["results"]], texts(done)) == ([200], ["e"])
    done = alice.post(where + "=1", json=[first[0]["href"], "x", fourth["href"]]).json()
    assert ([each["status"] for each in done["results"]], texts(done)) == ([200, 400, 200], ["f"])
    # An invented lock is refused, and nothing more is there; another's subscription, or none, receives nothing.
    done = alice.post(where + "=0", json=[f"{path}/messages/never?lock=0-1"]).json()
    assert (done["results"][0]["status"], texts(done), done["more"]) == (404, [], False)
    done = bob.post(where + "=9", json=[fourth["href"]]).json()
    assert (done["results"][0]["status"], texts(done)) == (403, [])
    for wrong in ("", "-1", "201", "x", "1.5", "1&next=2"):
        assert problem(alice.post(f"{where}={wrong}", json=[first[0]["href"]])) == (400, "bad-request")
        assert problem(alice.post(f"{completed}={wrong}")) == (400, "bad-request")
    (last, _) = held(alice, path)
    assert alice.delete(f"{path}?keep=true").status_code == 200
    done = alice.post(where + "=1", json=[last["href"]]).json()
    assert (done["results"][0]["status"], texts(done), done["refused"]["status"]) == (200, [], 410)


def test_then(alice: httpx.Client, bob: httpx.Client, queue: str, subscription: str) -> None:
    """An acknowledgement publishes messages of several queues with it, once; what one queue refuses changes nothing."""
    target, theirs = (owner.post("/queues").headers["Location"] for owner in (alice, bob))
    assert alice.post(queue, content=b"x", headers={"Message-Reply": "true"}).status_code == 201
    (message,) = held(alice, subscription)
    one = {"queue": name_of(target), "json": {"n": 1}, "guid": "one", "group_key": "k", "headers": {"colour": "red"}}
    two = {"queue": name_of(target), "text": "later", "delay": 3600}
    refused = alice.post(message["then"], json={"then": [one, {"queue": name_of(theirs), "text": "x"}]})
    assert problem(refused) == (422, "not-acceptable") and name_of(theirs) in refused.json()["detail"]
    assert problem(bob.post(message["then"], json={"then": [one]})) == (403, "forbidden")
    strange: list[Any] = [
        {},
        [],
        {"then": []},
        {"then": [one] * 11},
        {"then": [{"text": "x"}]},
        {"then": [{"queue": "a/", "base64": "?"}]},
        {"then": [{**one, "text": "x"}]},
        {"then": [one], "more": 1},
        {"then": [one], "result": "x"},
        {"then": [one], "result": {"text": "x", "guid": "g"}},
    ]
    for wrong in strange:
        assert problem(alice.post(message["then"], json=wrong))[0] == 400, wrong
    assert problem(alice.post(message["then"], content=b"x", headers={"Content-Type": "text/plain"}))[0] == 415
    assert held(alice, subscription) == [message]
    body = {"then": [one, two], "result": {"json": [1], "content_type": "application/json"}}
    for _ in range(2):
        assert alice.post(message["then"], json=body).status_code == 200
    path = subscribed(alice, target, prefetch=9)
    (found,) = held(alice, path, wait=10)
    assert (found["id"], found["text"], found["group_key"]) == ("one", '{"n": 1}', "k")
    assert (found["headers"], found["publisher"]) == ({"colour": "red"}, ALICE)
    assert alice.get(target, headers=JSON).json()["counts"]["delayed"] == 1
    ended = alice.get(f"{queue.replace('queues', 'messages')}/{message['id']}", headers=JSON).json()
    assert ended["result"] == {"text": "[1]", "content_type": "application/json"}


def test_stale(alice: httpx.Client, bob: httpx.Client, queue: str, subscription: str) -> None:
    """RX6, D5, D8: an ended lock, another's message, an unknown message: nobody else's work is touched."""
    sent(alice, queue, "a")
    (message,) = held(alice, subscription)
    path, _, query = message["href"].partition("?")
    assert problem(bob.delete(message["href"])) == (403, "forbidden")
    assert problem(alice.delete(path)) == (400, "bad-request")
    assert problem(alice.delete(f"{path}?lock=x")) == (400, "bad-request")
    assert problem(alice.delete(f"{path}?{query}&queue=nowhere")) == (404, "node-not-found")
    assert problem(alice.delete(f"{subscription}/messages/never?{query}")) == (404, "item-not-found")
    assert problem(alice.delete(f"{path}?lock=9-1")) == (404, "partition-not-found")
    assert alice.post(message["release"]).status_code == 200
    (again,) = held(alice, subscription)
    for refused in (alice.delete(message["href"]), alice.post(message["renew"]), alice.post(message["dead_letter"])):
        assert problem(refused) == (409, "lock-lost")
    # The same request again.
    assert alice.post(message["release"]).status_code == 200
    assert [each["href"] for each in held(alice, subscription)] == [again["href"]]


def test_late(alice: httpx.Client, bob: httpx.Client, queue: str, subscription: str) -> None:
    """RX6: a late acknowledgement is told so, while another holds the message, when it is done, and when it is a dead letter."""
    sent(alice, queue, "a", "b")
    first, second = held(alice, subscription)
    theirs = subscribed(bob, queue, prefetch=2)
    for each in (first, second):
        assert alice.post(each["release"]).status_code == 200
    found: list[dict[str, Any]] = []
    while len(found) < 2:
        found = held(bob, theirs)

    def late() -> None:
        for each in (first, second):
            for refused in (alice.delete(each["href"]), alice.post(each["renew"]), alice.post(each["dead_letter"])):
                assert problem(refused) == (409, "lock-lost")
            assert problem(alice.get(each["href"])) == (409, "lock-lost")
        done = alice.post(f"{subscription}/acknowledgements", json=[first["href"], second["href"]])
        assert [each["status"] for each in done.json()["results"]] == [409, 409]

    late()
    assert bob.delete(found[0]["href"]).status_code == 200
    assert bob.post(found[1]["dead_letter"]).status_code == 200
    late()
    # A made-up address is of an unknown message, whatever lock is in it.
    made_up = first["href"].replace(first["id"], "never")
    for refused in (alice.get(made_up), alice.delete(made_up), alice.delete(f"{subscription}/messages/never?lock=0-1")):
        assert problem(refused) == (404, "item-not-found")


def test_ended(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """R2, R14, RX8: a deleted or expired subscription gives back its messages; then it is gone."""
    first = subscribed(alice, queue, prefetch=1)
    sent(alice, queue, "a")
    assert held(alice, first)
    second = subscribed(bob, queue, prefetch=1, lease=2)
    assert problem(bob.delete(first)) == (403, "forbidden")
    assert alice.delete(first).status_code == 200
    assert [each["text"] for each in held(bob, second)] == ["a"]
    for refused in (alice.get(first), alice.delete(first)):
        assert problem(refused) == (410, "lease-over")
    began = time.monotonic()
    third = subscribed(alice, queue, prefetch=1)
    assert [each["text"] for each in held(alice, third, 10)] == ["a"]
    assert 1 < time.monotonic() - began < 10
    assert problem(bob.get(second)) == (410, "lease-over")


@pytest.mark.parametrize("several", [False, True])
def test_ended_with_its_locks_kept(alice: httpx.Client, bob: httpx.Client, queue: str, *, several: bool) -> None:
    """R14, Q34: a subscription that ends with `keep` gets nothing more, but may acknowledge, renew and release its messages."""
    queues = [name_of(queue), name_of(alice.post("/queues").headers["Location"])][: 2 if several else 1]
    path = alice.post("/subscriptions", json={"destinations": queues, "prefetch": 3}).headers["Location"]
    sent(alice, queue, "a", "b", "c")
    while len(messages := held(alice, path)) < 3:
        pass
    assert problem(alice.delete(f"{path}?keep=perhaps")) == (400, "bad-request")
    assert alice.delete(f"{path}?keep=true").status_code == 200
    assert problem(alice.get(path)) == (410, "lease-over")
    other = subscribed(bob, queue, prefetch=5)
    first, second, third = messages
    assert alice.post(first["renew"]).status_code == 200 and alice.delete(first["href"]).status_code == 200
    assert alice.post(second["release"]).status_code == 200
    (again,) = held(bob, other)
    assert (again["text"], again["attempt"], again["token"] > second["token"]) == ("b", 2, True)
    assert alice.delete(third["href"]).status_code == 200


def test_kept_alive(alice: httpx.Client, queue: str) -> None:
    """RX5: a fetch, a wait, or a listener keeps the lease; the message stays where it is."""
    path = subscribed(alice, queue, prefetch=1, lease=2)
    assert held(alice, path, 3) == []
    sent(alice, queue, "a")
    (message,) = held(alice, path)
    for _ in range(3):
        time.sleep(0.8)
        assert held(alice, path) == [message]


def test_whose(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """R18: only its owner sees a subscription's messages, and the queue's owners, who do not renew it."""
    theirs = subscribed(bob, queue, lease=3)
    before = bob.get(theirs, headers=JSON).json()["expires"]
    assert alice.get(theirs, headers=JSON).json()["expires"] == before
    mine = subscribed(alice, queue)
    assert problem(bob.get(mine)) == (403, "forbidden")
    sent(alice, queue, "a")
    message = (held(alice, mine, 0) + held(bob, theirs, 0))[0]
    if message["href"].startswith(theirs):
        assert problem(alice.delete(message["href"])) == (403, "forbidden")


def test_atom(alice: httpx.Client, queue: str, subscription: str) -> None:
    """R15: a feed with an entry for each message, each with the address that acknowledges it."""
    sent(alice, queue, "<a & b>")
    assert alice.post(queue, content=b"<a/>", headers={"Content-Type": "application/a&b+xml"}).status_code == 201
    while len(held(alice, subscription)) < 2:
        pass
    read = feedparser.parse(alice.get(subscription).content)
    assert not read.bozo and read.feed.title == name_of(queue)
    entry, other = read.entries
    assert entry.content[0].value == "<a & b>" and other.content[0].type == "application/a&b+xml"
    (edit,) = [link.href for link in entry.links if link.rel == "edit"]
    assert alice.get(edit).headers["Content-Type"] == "application/atom+xml;type=entry"
    assert alice.delete(edit).status_code == 200


def events(answer: httpx.Response) -> Iterator[tuple[str, Any]]:
    """Read a stream of events; a comment is `None` of no kind."""
    kind = ""
    for line in answer.iter_lines():
        if line.startswith("event: "):
            kind = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield kind, json.loads(line.removeprefix("data: "))
        elif line.startswith(":"):
            yield "", None


def test_events(alice: httpx.Client, queue: str) -> None:
    """R15, RX5: messages come as events, held ones first, each once; the lease lasts while somebody listens."""
    path = subscribed(alice, queue, prefetch=2, lease=2)
    sent(alice, queue, "a", "b", "c")
    with alice.stream("GET", path, headers=EVENTS, timeout=20) as answer:
        assert answer.headers["Content-Type"].startswith("text/event-stream")
        stream = events(answer)
        first, second = next(stream)[1], next(stream)[1]
        assert [first["text"], second["text"]] == ["a", "b"]
        assert alice.delete(first["href"]).status_code == 200
        assert next(stream)[1]["text"] == "c"
        # Nothing comes, for longer than the lease.
        assert next(stream) == ("", None)
        assert alice.delete(path).status_code == 200
        kind, why = next(stream)
        assert (kind, why["status"]) == ("end", 410)
        assert list(stream) == []


@pytest.mark.parametrize("several", [False, True])
def test_a_listener_who_has_gone(alice: httpx.Client, bob: httpx.Client, queue: str, *, several: bool) -> None:
    """R2, R14, RX5: when a listener disconnects its lease ends at once, and others get its messages.

    A mere onlooker ends none.
    """
    destinations = [name_of(queue), name_of(alice.post("/queues").headers["Location"])][: 2 if several else 1]
    made = alice.post("/subscriptions", json={"destinations": destinations, "lease": 86_400})
    path = made.headers["Location"]
    sent(alice, queue, "a", "b")
    while len(held(alice, path)) < 2:
        pass
    theirs = subscribed(bob, queue, prefetch=2)
    with alice.stream("GET", path, headers=EVENTS, timeout=20) as answer:
        assert next(events(answer))[1]["text"] in {"a", "b"}
    while len(held(bob, theirs, 30)) < 2:
        pass
    assert problem(alice.get(path)) == (410, "lease-over")
    # The queue's owner looks on, and disconnects.
    with alice.stream("GET", theirs, headers=EVENTS, timeout=20) as answer:
        assert next(events(answer))[1]["text"] in {"a", "b"}
    assert len(held(bob, theirs)) == 2


def test_a_poll_that_is_cut(alice: httpx.Client, frontend: RestFrontend, queue: str) -> None:
    """R18, RX5: once the client of a long poll has gone, nothing is fetched for it and its lease ends."""
    path = subscribed(alice, queue, lease=2)
    line = Line(frontend)
    line.say(
        f"GET {path}?wait=60 HTTP/1.1\r\nHost: x\r\nAuthorization: {alice.headers['Authorization']}\r\n\r\n".encode()
    )
    # HEAD extends no lease.
    assert alice.head(path).status_code == 200
    line.end()
    assert line.hear()[0] == 0
    ends = time.monotonic() + 30
    while alice.head(path).status_code == 200:
        assert time.monotonic() < ends
        time.sleep(0.1)
    assert alice.head(path).status_code == 410


async def own(url: str, queue: str, owner: Jid) -> None:
    """Let a worker own all partitions of a queue."""
    core = RedisCore(CommandSettings(**ADMITTING, redis_url=url), None)
    assert isinstance(await core.ask(Subscribe(queue, owner, owner, 5, group="billing")), Subscribed)
    await core.stop()


def test_owned(alice: httpx.Client, redis: RedisServer, queue: str, subscription: str) -> None:
    """Issue 50: while workers own all partitions, an answer says so at once, and when to ask again."""
    sent(alice, queue, "a")
    found = alice.get(subscription, headers=JSON)
    assert len(found.json()["messages"]) == 1 and not found.json()["owned"] and "Retry-After" not in found.headers
    asyncio.run(own(redis.url, name_of(queue), Jid("owner@example.org/1")))
    found = alice.get(f"{subscription}?wait=30", headers=JSON, timeout=10)
    assert found.json()["owned"] and found.headers["Retry-After"] == "5"
    assert " owned='true'/>" in alice.get(subscription).text


def test_destinations(alice: httpx.Client, bob: httpx.Client) -> None:
    """R12, RX4: several queues and wildcards have one prefetch; a wildcard that matches nothing is refused.

    A star matches no dead letters: who rejects all would get them again and again.
    """
    top = f"top-{secrets.token_hex(4)}"
    for leaf in ("dead", "a", "b.c", "d/e"):
        assert alice.put(f"/queues/{top}/{leaf}").status_code == 201
        sent(alice, f"/queues/{top}/{leaf}", "x", "y")
    wanted = [f"{top}/*", f"{top}/d/e"]
    made = alice.post("/subscriptions", json={"destinations": wanted, "prefetch": 2})
    assert made.status_code == 201 and made.json()["destinations"] == wanted
    path = made.headers["Location"]
    done: list[str] = []
    while len(done) < 6:
        messages = held(alice, path)
        assert 0 < len(messages) <= 2
        for message in messages:
            assert alice.post(message["renew"]).status_code == 200
            assert alice.delete(message["href"]).status_code == 200
            done.append(message["queue"])
    assert sorted(done) == sorted([f"{top}/a", f"{top}/b.c", f"{top}/d/e"] * 2)
    assert problem(bob.get(path)) == (403, "forbidden")
    assert problem(bob.delete(path)) == (403, "forbidden")
    assert alice.delete(path).status_code == 200
    for refused in (alice.get(path), alice.delete(path)):
        assert problem(refused) == (410, "lease-over")
    for nothing in (f"{top}/*/*/*", f"{top}/d/f", f"{top}/d/*/dead"):
        refused = alice.post("/subscriptions", json={"destinations": [f"{top}/a", nothing]})
        assert problem(refused) == (404, "node-not-found")


def test_own_leases(redis: RedisServer, queue: str, alice: httpx.Client) -> None:
    """R18, RX8: a client that lost track of its leases finds them, each with its address; nobody sees another's."""
    with RestFrontend(redis.url) as frontend, client(frontend, "bob@example.org") as bob:
        for each in bob.get("/subscriptions").json()["subscriptions"]:
            bob.delete(each["href"])
        name = name_of(queue)
        made = [
            bob.post("/subscriptions", json=wanted).json()
            for wanted in (
                {"destinations": name, "prefetch": 3, "lease": 3_600, "selector": "a = 'b'"},
                {"destinations": name, "lease": 86_400},
                {"destinations": [name, name_of(alice.post("/queues").headers["Location"])], "lease": 120},
            )
        ]
        listed = bob.get("/subscriptions").json()
        assert listed["total"] == 3 and "next" not in listed

        def lasting(rows: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
            return {each["id"]: each | {"expires": ""} for each in rows}

        assert lasting(listed["subscriptions"]) == lasting(made)
        first = bob.get("/subscriptions?limit=2").json()
        second = bob.get(first["next"]).json()
        assert [len(page["subscriptions"]) for page in (first, second)] == [2, 1] and "next" not in second
        assert not {each["id"] for each in alice.get("/subscriptions?limit=500").json()["subscriptions"]} & {
            each["id"] for each in made
        }
        for each in listed["subscriptions"]:
            assert bob.delete(each["href"]).status_code == 200
        assert bob.get("/subscriptions").json() == {"subscriptions": [], "total": 0}


@pytest.mark.parametrize("several", [False, True])
def test_too_many_leases(redis: RedisServer, queue: str, *, several: bool) -> None:
    """Guarantee 6: leases of one user on a queue are bounded, and those over several queues together.

    An ended one makes room, and others have room of their own.
    """
    with (
        RestFrontend(redis.url, HTTP_LEASES="2") as frontend,
        client(frontend) as alice,
        client(frontend, "bob@example.org") as bob,
    ):
        wanted = {"destinations": [name_of(queue), name_of(alice.post("/queues").headers["Location"])][: 1 + several]}
        first = alice.post("/subscriptions", json=wanted).headers["Location"]
        assert alice.post("/subscriptions", json=wanted).status_code == 201
        assert problem(alice.post("/subscriptions", json=wanted)) == (403, "too-many-subscriptions")
        assert bob.post("/subscriptions", json=wanted).status_code == 201
        assert alice.delete(first).status_code == 200
        assert alice.post("/subscriptions", json=wanted).status_code == 201


def test_over_several_queues_by_anybody(redis: RedisServer, alice: httpx.Client) -> None:
    """R12: who may create no queue may lease several; the lease counts for no quota, and nobody finds a node of it."""
    queues = [name_of(alice.post("/queues").headers["Location"]) for _ in range(2)]
    sent(alice, f"/queues/{queues[1]}", "a")
    with (
        RestFrontend(redis.url, NODE_CREATION="admins", NODE_QUOTA="0") as frontend,
        client(frontend, "bob@example.org") as bob,
    ):
        assert bob.post("/queues").status_code == 403
        before = bob.get("/queues").text
        path = bob.post("/subscriptions", json={"destinations": queues}).headers["Location"]
        assert [each["text"] for each in held(bob, path)] == ["a"]
        assert bob.get("/queues").text == before
        node = urlsafe_b64decode(f"{path.rsplit('/', 1)[1]}==").split(b"\0")[1].decode()
        assert node.startswith("lease-") and bob.get(f"/queues/{node}").status_code == 404
        assert bob.delete(path).status_code == 200


@pytest.mark.parametrize(
    ("body", "headers", "found"),
    [
        ("[]", {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": "q", "more": 1}', {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": [1]}', {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": []}', {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": "q", "prefetch": 0}', {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": "q", "prefetch": true}', {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": "q", "lease": 1}', {"Content-Type": "application/json"}, (400, "bad-request")),
        ('{"destinations": "\\u0000"}', {"Content-Type": "application/json"}, (400, "node-name-invalid")),
        ('{"destinations": "never made"}', {"Content-Type": "application/json"}, (404, "node-not-found")),
        ("destinations=%FF", {"Content-Type": "application/x-www-form-urlencoded"}, (400, "bad-request")),
        ("destinations=q&lease=9&lease=9", {"Content-Type": "application/x-www-form-urlencoded"}, (400, "bad-request")),
        ("q", {"Content-Type": "text/plain"}, (415, "media-type-unknown")),
    ],
)
def test_refused(alice: httpx.Client, body: str, headers: dict[str, str], found: tuple[int, str]) -> None:
    """R13: an invalid subscription is refused, with the place of the error."""
    assert problem(alice.post("/subscriptions", content=body, headers=headers)) == found


def test_refused_elsewhere(alice: httpx.Client, queue: str, subscription: str) -> None:
    """RX6, RX8: made-up subscriptions, unknown formats, and waits that are too long."""
    for path in ("/subscriptions/x", "/subscriptions/eA", "/subscriptions/%C3%A9", f"{subscription}x"):
        assert problem(alice.get(path)) == (404, "not-subscribed")
    assert problem(alice.get(subscription, headers={"Accept": "text/html"}))[0] == 406
    assert problem(alice.get(f"{subscription}?wait=61")) == (400, "bad-request")
    sent(alice, queue, "a")
    (message,) = held(alice, subscription)
    assert problem(alice.post(message["release"], json={"delay": -1})) == (400, "bad-request")
    assert problem(alice.post(message["renew"], json={"seconds": 0})) == (400, "bad-request")
    assert problem(alice.post(message["release"], json={"reason": "a\nb"})) == (400, "bad-request")
    assert problem(alice.post(message["dead_letter"], json={"delay": 1})) == (400, "bad-request")
    assert problem(alice.post(message["release"], content="x", headers={"Content-Type": "text/plain"}))[0] == 415
    log = alice.post("/queues", json={"options": {"pubsub#queueing": False}}).headers["Location"]
    assert alice.post("/subscriptions", json={"destinations": name_of(log)}).status_code >= 400


def test_killed(redis: RedisServer, queue: str) -> None:
    """R2: whichever process had the connection, another serves the subscription and its messages; one that stops says so."""
    with RestFrontend(redis.url) as one, RestFrontend(redis.url) as two, client(one) as here, client(two) as there:
        path = subscribed(here, queue, prefetch=2)
        sent(here, queue, "a", "b")
        found = held(here, path)
        one.kill()
        assert held(there, path) == found
        for message in found:
            assert there.delete(message["href"]).status_code == 200
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(there.get, f"{path}?wait=30", timeout=40)
            time.sleep(0.5)
            two.stop()
            assert problem(waiting.result(timeout=10)) == (503, "unavailable")
