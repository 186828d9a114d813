"""Administration over HTTP: overviews, dead letters and their redrive, subscribers, locks (R5)."""

# ruff: noqa: ASYNC212  (the frontend is another process: it does not wait for this loop)

import asyncio
import json
import secrets
import time
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import httpx
import pytest
from redis import Redis

from broker.model.commands import Subscribe, Unlock
from broker.model.items.items import Delivery, Notice
from broker.model.names import Jid
from broker.model.results import Subscribed, Unlocked
from broker.redis_core.core import RedisCore
from broker.settings import Settings
from frontends.tools.servers.redis import RedisServer
from tests.doors.amqp.served import AmqpFrontend
from tests.doors.frontend import ALICE, HASH
from tests.doors.rest.served import RestFrontend, client, problem
from tests.waiting import PATIENCE_SECONDS

WORKER = Jid("worker@x/a")
LETTERS = 205


class Outlet:
    """A door that sends nothing, and records."""

    def __init__(self) -> None:
        """Start with nothing recorded."""
        self.deliveries: list[Delivery] = []

    def deliver(self, batch: Sequence[Delivery]) -> None:
        """Record deliveries."""
        self.deliveries += batch

    def notify(self, _notice: Notice) -> None:
        """Record a notice."""

    def congested(self) -> bool:
        """Take more."""
        return False

    def flushed(self) -> bool:
        """Have nothing left to write."""
        return True


@pytest.fixture
async def core(redis: RedisServer) -> AsyncIterator[RedisCore]:
    """Provide a frontend that hands items out."""
    # All tests of one process create nodes of the same few owners.
    given = {"redis_url": redis.url, "xmpp_domain": "queue.localhost", "xmpp_secret": "secret", "node_quota": "100000"}
    made = RedisCore(Settings.model_validate(given), Outlet())
    await made.start()
    yield made
    await made.stop()


async def _until(answer: Any, wanted: Any) -> None:  # noqa: ANN401  (whatever is compared)
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while (found := await asyncio.to_thread(answer)) != wanted:
        assert asyncio.get_running_loop().time() < deadline, found
        await asyncio.sleep(0.05)


def _counts(http: httpx.Client, name: str) -> dict[str, int]:
    found: dict[str, int] = http.get(f"/queues/{name}", headers={"Accept": "application/json"}).json()["counts"]
    return found


def _overview(http: httpx.Client, query: str = "?limit=500") -> dict[str, dict[str, Any]]:
    return {each["name"]: each for each in http.get(f"/overview{query}").json()["queues"]}


async def test_dead_letters_go_home(core: RedisCore, alice: httpx.Client, bob: httpx.Client) -> None:
    """Q32: an owner sees each dead letter's reason, and redrives one, those of a reason, or all, step by step with counts."""
    name = f"jobs-{secrets.token_hex(4)}"
    assert alice.put(f"/queues/{name}").status_code == 201
    batch = [{"text": "x", "guid": f"item-{number}"} for number in range(LETTERS)]
    for first in (0, 200):
        await asyncio.to_thread(alice.post, f"/batches/{name}", json=batch[first : first + 200])
    assert isinstance(await core.ask(Subscribe(name, WORKER, WORKER, LETTERS)), Subscribed)
    for number in range(LETTERS):
        reason = "torn" if number % 2 else "late"
        unlocked = await core.ask(Unlock(name, WORKER, f"item-{number}", reason=reason, dead_letter=True))
        assert isinstance(unlocked, Unlocked)
    dead = _overview(alice)[name]["dead_letters"]
    assert dead == f"{name}/dead"
    await _until(lambda: _counts(alice, dead)["waiting"], LETTERS)
    page = alice.get(f"/surveys/{dead}?limit=150").json()
    rest = alice.get(page["next"]).json()
    letters = {each["died"]["item"]: each for each in (*page["items"], *rest["items"])}
    assert len(letters) == LETTERS and "next" not in rest
    one = letters["item-1"]
    ended = one["died"]["history"][0].pop("ended")
    assert one["died"].pop("history") == [{"outcome": "released", "holder": WORKER, "reason": "torn"}]
    assert one["history"] == [] and ended <= one["published"]
    assert one["died"] | {"holder": ""} == {
        "reason": "torn", "node": name, "item": "item-1", "attempts": "1", "holder": "", "publisher": ALICE,
    }  # fmt: skip
    assert one["died"]["holder"] == WORKER and alice.get(one["href"]).status_code == 200
    # Nobody else sees or does any of it.
    for path in (f"/surveys/{dead}", f"/subscribers/{name}"):
        assert problem(bob.get(path)) == (403, "forbidden")
    assert problem(bob.post(f"/redrives/{dead}", json={"all": True})) == (403, "forbidden")
    # Returned items are not taken by the test's own worker.
    assert alice.patch(f"/queues/{name}", json={"options": {"stanzaq#state": "paused"}}).status_code == 200
    assert alice.post(f"/redrives/{dead}", json={"items": [one["id"]]}).json() == {"moved": 1, "stayed": {}}
    assert alice.post(f"/redrives/{dead}", json={"items": [one["id"]]}).json() == {"moved": 0, "stayed": {}}
    said = alice.post(f"/redrives/{dead}", json={"reason": "torn"}).json()
    moved, steps = said["moved"], 1
    while "scan" in said:
        said = alice.post(f"/redrives/{dead}", json={"reason": "torn", "scan": said["scan"]}).json()
        moved, steps = moved + said["moved"], steps + 1
    assert moved == LETTERS // 2 - 1 and steps > 1
    await _until(lambda: _counts(alice, name)["waiting"], LETTERS // 2)
    by_header = {"reason": "late", "headers": {"stanzaq-dead-item": "item-0"}}
    assert alice.post(f"/redrives/{dead}", json=by_header).json()["moved"] == 1
    said = alice.post(f"/redrives/{dead}", json={"all": True}).json()
    assert said["moved"] == LETTERS - LETTERS // 2 - 1
    await _until(lambda: _counts(alice, name)["waiting"], LETTERS)
    # Totals of published and finished items give the rates, whichever frontend is asked.
    assert _counts(alice, name)["published"] == 2 * LETTERS and _counts(alice, name)["attempts"] == LETTERS
    assert _counts(alice, dead)["removed"] == _counts(alice, dead)["published"] >= LETTERS
    assert _counts(alice, dead)["finished"] == 0
    assert alice.post(f"/redrives/{name}", json={"all": True}).json() == {"moved": 0, "stayed": {}}


async def test_the_dead_letters_of_a_queue(core: RedisCore, alice: httpx.Client) -> None:
    """Q32: a redrive of a queue moves the letters that died in it, wherever they are, and no others."""
    top = f"shop-{secrets.token_hex(4)}"
    one, other, grave = (f"{top}/{each}" for each in ("books", "toys", "grave"))
    alice.put(f"/queues/{grave}")
    for name in (one, other):
        options = {"stanzaq#dead_letter_node": grave, "stanzaq#partitions": 2}
        assert alice.put(f"/queues/{name}", json={"options": options}).status_code == 201
        assert isinstance(await core.ask(Subscribe(name, WORKER, WORKER, 400, group="g")), Subscribed)
        for first in (0, 100):
            batch = [{"text": "x", "guid": f"{first + number}"} for number in range(100)]
            await asyncio.to_thread(alice.post, f"/batches/{name}", json=batch)
        await _until(lambda name=name: _counts(alice, name)["in_flight"], 200)
        for number in range(200):
            dead = await core.ask(Unlock(name, WORKER, str(number), reason="torn", dead_letter=True))
            assert isinstance(dead, Unlocked)
        alice.patch(f"/queues/{name}", json={"options": {"stanzaq#state": "paused"}})
    await _until(lambda: _counts(alice, grave)["waiting"], 400)
    (letter,) = [
        each["id"]
        for each in alice.get(f"/surveys/{grave}?limit=500").json()["items"]
        if (each["died"]["node"], each["died"]["item"]) == (one, "7")
    ]
    assert alice.post(f"/redrives/{one}", json={"items": [letter]}).json() == {"moved": 1, "stayed": {}}
    moved, asked, steps = 1, {"all": True}, 0
    while True:
        said = alice.post(f"/redrives/{one}", json=asked).json()
        moved, steps = moved + said["moved"], steps + 1
        if "scan" not in said:
            break
        asked = {"all": True, "scan": said["scan"]}
    assert moved == 200 and steps > 1
    await _until(lambda: _counts(alice, one)["waiting"], 200)
    assert (_counts(alice, grave)["waiting"], _counts(alice, other)["waiting"]) == (200, 0)
    assert alice.post(f"/redrives/{one}", json={"reason": "torn"}).json()["moved"] == 0
    assert alice.post(f"/redrives/{grave}", json={"items": ["none"]}).json() == {"moved": 0, "stayed": {}}
    assert alice.post(f"/redrives/{grave}", json={"all": True}).json()["moved"] == 200


def test_previews(alice: httpx.Client) -> None:
    """R5: a list has the beginning of each payload that is text, in whole characters, on its next pages too."""
    name = f"jobs-{secrets.token_hex(4)}"
    alice.put(f"/queues/{name}")
    bodies = ("a\nb\N{EURO SIGN}", "x" * 300, "", "\x00")
    batch = [*({"text": body} for body in bodies), {"base64": "/w=="}]
    alice.post(f"/batches/{name}", json=batch)
    page = alice.get(f"/surveys/{name}?preview=5&limit=2").json()
    rest = alice.get(page["next"].replace("limit=2", "limit=50")).json()
    shown = [each.get("preview") for each in (*page["items"], *rest["items"])]
    assert shown == ["a\nb", "xxxxx", "", None, None]
    assert "preview" not in alice.get(f"/surveys/{name}").json()["items"][0]
    assert problem(alice.get(f"/surveys/{name}?preview=201")) == (400, "bad-request")


def test_search(alice: httpx.Client) -> None:
    """R5: items are found by key and header, each request examines so many and its link continues the same search."""
    name = f"jobs-{secrets.token_hex(4)}"
    alice.put(f"/queues/{name}", json={"options": {"stanzaq#partitions": 2}})
    batch = [
        {"text": "x", "guid": str(number), "group_key": f"k{number % 3}", "headers": {"a=b": "", "n": str(number % 2)}}
        for number in range(30)
    ]
    alice.post(f"/batches/{name}", json=batch)

    def found(**asked: str) -> tuple[set[int], int]:
        ids, examined, link = set[int](), 0, f"/surveys/{name}?{httpx.QueryParams({'limit': '7', **asked})}"
        while link:
            page = alice.get(link).json()
            ids |= {int(each["id"]) for each in page["items"]}
            examined, link = examined + page["examined"], page.get("next", "")
        return ids, examined

    assert found(group_key="k1") == ({*range(1, 30, 3)}, 30)
    assert found(header="n=1", group_key="k1") == ({*range(1, 30, 6)}, 30)
    assert found(header="n=") == found(reason="torn") == (set(), 30)
    assert found(item="4", header="n=0") == ({4}, 1)
    for wrong in ("n", "=1"):
        assert problem(alice.get(f"/surveys/{name}", params={"header": wrong})) == (400, "bad-request")


def test_ends(alice: httpx.Client, bob: httpx.Client) -> None:
    """R5: an owner lists how messages have ended, of all partitions, the latest first, each with its result."""
    name = f"jobs-{secrets.token_hex(4)}"
    alice.put(f"/queues/{name}", json={"options": {"stanzaq#partitions": 2}})
    asked = {"Message-Reply": "true"}
    for item in ("a", "b", "c"):
        alice.post(f"/queues/{name}?guid={item}", content=b"x", headers=asked)
    lease = alice.post("/subscriptions", json={"destinations": [name], "prefetch": 1}).json()["href"]
    (held,) = alice.get(f"{lease}?wait=10", headers={"Accept": "application/json"}).json()["messages"]
    done = alice.post(held["complete"], content=b"42", headers={"Content-Type": "application/json"})
    assert done.status_code == 200
    alice.delete(lease)
    (left, _) = sorted({"a", "b", "c"} - {held["id"]})
    alice.post(f"/cancellations/{name}", json={"items": [left]})
    cancelled, acknowledged = alice.get(f"/ends/{name}?preview=10").json()["ends"]
    assert (cancelled["id"], cancelled["state"]) == (left, "cancelled") and "result" not in cancelled
    assert (acknowledged["id"], acknowledged["state"]) == (held["id"], "acknowledged")
    assert acknowledged["result"] == {"content_type": "application/json", "bytes": 2, "preview": "42"}
    assert acknowledged["expires"] <= cancelled["expires"]
    assert alice.get(f"/ends/{name}?limit=1").json()["ends"] == [cancelled]
    assert problem(bob.get(f"/ends/{name}")) == (403, "forbidden")


async def test_subscribers_and_locks(core: RedisCore, alice: httpx.Client) -> None:
    """Q9, P26: locks and credit of each subscriber are shown, and a stuck lock is ended, or all of a holder's."""
    name = f"jobs-{secrets.token_hex(4)}"
    alice.put(f"/queues/{name}")
    assert isinstance(await core.ask(Subscribe(name, WORKER, WORKER, 7)), Subscribed)
    for number in range(4):
        alice.post(f"/queues/{name}?guid=i{number}", content=b"x")

    def listed() -> list[tuple[str, int, int]]:
        return [
            (each["jid"], each["credit"], each["held"])
            for each in alice.get(f"/subscribers/{name}").json()["subscribers"]
        ]

    await _until(listed, [(WORKER, 7, 4)])
    (item,) = [each for each in alice.get(f"/surveys/{name}").json()["items"] if each["id"] == "i0"]
    assert item["state"] == "locked" and item["lock"]["holder"] == WORKER and item["attempts"] == 1
    alice.patch(f"/queues/{name}", json={"options": {"stanzaq#state": "paused"}})
    assert alice.post(f"/releases/{name}", json={"items": ["i0"]}).json() == {"released": 1}
    assert problem(alice.post(f"/releases/{name}", json={"items": ["i0"]})) == (404, "item-not-found")
    assert alice.post(f"/releases/{name}", json={"holder": WORKER}).json() == {"released": 3}
    assert listed() == [(WORKER, 7, 0)]


async def test_programs_of_subscribers(core: RedisCore, alice: httpx.Client) -> None:
    """P26: each subscriber is shown with its program, over HTTP the User-Agent, until another subscribe names another."""
    name = f"jobs-{secrets.token_hex(4)}"
    alice.put(f"/queues/{name}")
    headers = {"User-Agent": f"stanzaq/1.2.3 (one)\t{'x' * 200}"}
    lease = alice.post("/subscriptions", json={"destinations": name, "prefetch": 1}, headers=headers).json()["href"]

    def listed() -> set[str]:
        return {each["client"] for each in alice.get(f"/subscribers/{name}").json()["subscribers"]}

    for other in ("stanzaq/1.2.3 (two)", ""):
        await core.ask(Subscribe(name, WORKER, WORKER, 7, client=other))
        await _until(listed, {other, f"stanzaq/1.2.3 (one){'x' * 109}"})
    alice.delete(lease)
    await _until(listed, {""})


def test_cancellations(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """A held message is cancelled by its publisher; each has its own result, and a repeat within a minute the same."""
    name = queue.removeprefix("/queues/")
    lease = alice.post("/subscriptions", json={"destinations": name, "prefetch": 1}).json()["href"]
    for item in ("held", "waits"):
        assert alice.post(queue, params={"guid": item}, content=b"x").status_code == 200
    (held,) = alice.get(lease, params={"wait": 20}, headers={"Accept": "application/json"}).json()["messages"]
    path = f"/cancellations/{name}"

    def cancelled(who: httpx.Client, *items: str) -> list[int]:
        answer = who.post(path, json={"items": items})
        assert answer.status_code == 200, answer.text
        return [each["status"] for each in answer.json()["results"]]

    assert cancelled(bob, "held", "waits") == [403, 403]
    assert cancelled(alice, "held", "waits", "nothing") == [200, 200, 404]
    assert cancelled(alice, "waits") == [200]
    assert alice.delete(held["href"]).status_code == 409
    assert alice.get(queue, headers={"Accept": "application/json"}).json()["messages"] == []


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("cancellations", {}),
        ("cancellations", {"items": []}),
        ("cancellations", {"items": ["a"] * 101}),
        ("redrives", {}),
        ("redrives", {"all": False}),
        ("redrives", {"all": True, "reason": "x"}),
        ("redrives", {"all": 1}),
        ("redrives", {"items": []}),
        ("redrives", {"items": ["a"] * 101}),
        ("redrives", {"items": ["a"], "scan": "1"}),
        ("redrives", {"all": True, "scan": "nonsense"}),
        ("redrives", {"all": True, "scan": "\u00e9"}),
        ("redrives", {"reason": 1}),
        ("redrives", {"headers": {}}),
        ("redrives", {"headers": ["region"]}),
        ("redrives", {"headers": {"region": 1}}),
        ("redrives", {"headers": {f"h{number}": "x" for number in range(33)}}),
        ("redrives", {"all": True, "headers": {"region": "eu"}}),
        ("redrives", []),
        ("releases", {}),
        ("releases", {"items": ["a"], "holder": "a@b"}),
        ("releases", {"items": [1]}),
        ("releases", {"holder": " "}),
        ("releases", {"holders": "a@b"}),
    ],
)
def test_unclear_orders(alice: httpx.Client, queue: str, path: str, body: object) -> None:
    """A request that does not clearly name items changes nothing."""
    assert problem(alice.post(queue.replace("queues", path), json=body)) == (400, "bad-request")


def test_overview(frontend: RestFrontend, redis: RedisServer, alice: httpx.Client, bob: httpx.Client) -> None:
    """P9: administrators see all queues, page by page; others those that they are affiliated with."""
    name = f"mine-{secrets.token_hex(4)}"
    alice.put(f"/queues/{name}", json={"options": {"pubsub#title": "Mine", "stanzaq#dead_letter_node": ""}})
    shown = _overview(alice)[name]
    assert (shown["standing"], shown["state"], shown["title"], shown["type"]) == ("owner", "running", "Mine", "leaf")
    assert shown["dead_letters"] == "" and shown["href"] == f"/queues/{name}"
    assert name not in _overview(bob)
    assert problem(bob.get("/frontends")) == (403, "forbidden")
    assert problem(bob.get("/overview?first=x")) == (400, "bad-request")
    with RestFrontend(redis.url, ADMINS="bob@example.org") as other, client(other, "bob@example.org") as admin:
        page, seen = admin.get("/overview?limit=7").json(), 0
        while True:
            seen += len(page["queues"])
            assert len(page["queues"]) <= 7
            if "next" not in page:
                break
            page = admin.get(page["next"]).json()
        assert seen == page["total"] > 0
        assert name in _overview(admin)
        assert admin.get("/frontends").status_code == 200


def until(ask: Callable[[], httpx.Response], status: int) -> httpx.Response:
    """Ask until the answer has this status."""
    ends = time.monotonic() + PATIENCE_SECONDS
    while (answer := ask()).status_code != status:
        assert time.monotonic() < ends, answer.text
        time.sleep(0.1)
    return answer


def test_quotas(redis: RedisServer, bob: httpx.Client) -> None:
    """An administrator sets the quota of an owner, who sees it; 507 and 403 say which quota is used up, and by how much."""
    # Nobody else creates queues of this owner's.
    carol = "carol@example.org"
    accounts = f"{ALICE}:{HASH}\n{carol}:{HASH}\n"
    with (
        RestFrontend(redis.url, ADMINS=ALICE, HTTP_PASSWORDS=accounts) as one,
        client(one) as admin,
        client(one, carol) as owner,
    ):
        assert (
            admin.put(f"/quotas/{carol}", json={"nodes": 2.0, "items": "2", "publish_rate": "1000/s"}).status_code
            == 204
        )
        try:
            queue = owner.post("/queues").headers["Location"]
            assert [owner.post(queue, content=b"x").status_code for _ in range(2)] == [201, 201]
            # It is measured within seconds; what is published until then is stored.
            full = until(lambda: owner.post(queue, content=b"x"), 507)
            assert problem(full) == (507, "quota-exceeded") and full.headers["Retry-After"] == "1"
            assert "the node's owner is 2 items in all nodes, and " in full.json()["detail"]
            used = owner.get("/quotas", params={"owner": carol}).json()["quotas"][0]["used"]["items"]
            results = owner.post(queue.replace("queues", "batches"), json=[{"text": "x"}]).json()["results"]
            assert [(each["status"], each["retry_after"]) for each in results] == [(507, 1)]
            limits = {"nodes": 2, "items": 2, "publish_rate": "1000/s"}
            told = {
                "quotas": [{"subject": carol, "limits": limits, "used": {"nodes": 1, "partitions": 1, "items": used}}]
            }
            assert admin.get("/quotas").json() == told
            (own,) = owner.get("/quotas", params={"owner": carol}).json()["quotas"]
            assert own["limits"] == limits | {"bytes": 2**30} and own["used"].keys() == {
                *told["quotas"][0]["used"],
                "bytes",
            }
            assert owner.post("/queues").status_code == 201
            assert problem(owner.post("/queues")) == (403, "too-many-nodes")
        finally:
            assert admin.delete(f"/quotas/{carol}").status_code == 204
        until(lambda: owner.post(queue, content=b"x"), 201)
        assert problem(admin.delete(f"/quotas/{carol}")) == (404, "item-not-found")
        for wrong in ({}, {"items": 1.5}, {"items": True}, {"queues": 1}):
            assert problem(admin.put(f"/quotas/{carol}", json=wrong)) == (400, "bad-request"), wrong
        for name, value in (("items", -1), ("items", "many"), ("bytes", 10**16), ("publish_rate", "0/s")):
            assert problem(admin.put(f"/quotas/{carol}", json={name: value})) == (422, "not-acceptable"), (name, value)
        assert problem(admin.put("/quotas/not%20a%20domain", json={"items": 1})) == (400, "bad-request")
        assert problem(owner.put("/quotas/default", json={"items": 1})) == (403, "forbidden")
    assert problem(bob.get("/quotas")) == (403, "forbidden")


def test_history(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """R5: a queue's counts since its creation, if that is less than an hour ago, and its present ones."""
    history = queue.replace("queues", "histories")
    for _ in range(3):
        assert alice.post(queue, content=b"x").status_code == 201
    lease = alice.post("/subscriptions", json={"destinations": [queue.removeprefix("/queues/")], "prefetch": 1})
    (held,) = alice.get(f"{lease.json()['href']}?wait=10", headers={"Accept": "application/json"}).json()["messages"]
    assert alice.delete(held["href"]).status_code == 200
    alice.delete(lease.json()["href"])
    first, *_, last = alice.get(history).json()["samples"]
    assert {name: value for name, value in first.items() if name != "at"} == dict.fromkeys(
        ("waiting", "in_flight", "oldest_ms", "published", "finished", "attempts"), 0
    )
    assert (last["published"], last["finished"], last["waiting"]) == (3, 1, 2) and last["at"] > first["at"]
    # Who may read its items may see that too, and nobody else.
    assert bob.get(history).status_code == bob.get(queue).status_code == 200
    alice.patch(queue, json={"options": {"pubsub#access_model": "whitelist"}})
    assert bob.get(history).status_code == bob.get(queue).status_code == 403
    assert problem(alice.get("/histories/nowhere")) == (404, "node-not-found")


def _name(frontend: RestFrontend | AmqpFrontend) -> str:
    (line,) = [line for line in map(json.loads, frontend.log.splitlines()) if line["event"] == "serving"]
    return str(line["frontend"])


async def test_doors_are_listed(redis: RedisServer) -> None:
    """R5: administrators see the frontends of every door: an orderly stopped one is not listed, a dead one is."""
    with RestFrontend(redis.url, ADMINS=ALICE) as one, client(one) as http:

        def listed() -> dict[str, tuple[str, bool]]:
            found = http.get("/frontends").json()["frontends"]
            return {each["name"]: (each["door"], each["heard_ms"] < 30_000) for each in found}

        with RestFrontend(redis.url) as two, AmqpFrontend(redis.url) as three:
            others = {_name(two): ("rest", True), _name(three): ("amqp", True)}
            here = {_name(one): ("rest", True), **others}
            await _until(lambda: here.items() <= listed().items(), wanted=True)
            two.stop()
            three.stop()
        await _until(lambda: others.keys() & listed().keys(), set())
        with Redis.from_url(redis.url) as server:
            now = int(time.time() * 1000)
            server.zadd(
                "sq:{service}:http_amqp_frontends", {"amqp 0000000a": now - 60_000, "rest 0000000b": now - 4_000_000}
            )
            found = listed()
            assert found["0000000a"] == ("amqp", False) and "0000000b" not in found
            # The next door that starts removes entries that are not shown any more.
            with RestFrontend(redis.url) as later:
                await _until(lambda: _name(later) in listed(), wanted=True)
                assert server.zscore("sq:{service}:http_amqp_frontends", "rest 0000000b") is None
            server.zrem("sq:{service}:http_amqp_frontends", "amqp 0000000a")


def test_one_item(alice: httpx.Client, queue: str) -> None:
    """R5: an owner finds one item by its id, with its headers, its key and its due time; an unknown one is no item."""
    name, survey = queue.removeprefix("/queues/"), queue.replace("queues", "surveys")
    asks = {"Group-Key": "austen", "Item-Colour": "red", "Message-Delay": "3000", "Content-Type": "text/plain"}
    for number in range(3):
        assert alice.post(f"{queue}?guid=i{number}", content=b"x", headers=asks).status_code == 200
    (found,) = alice.get(f"{survey}?item=i1").json()["items"]
    assert (found["id"], found["group_key"], found["headers"], found["state"]) == (
        "i1",
        "austen",
        {"colour": "red"},
        "delayed",
    )
    assert found["delayed_until"] > found["published"]
    assert alice.get(f"{survey}?item=i9").json() == {"items": [], "examined": 0}
    for wrong in ("item=", "item=%07"):
        assert alice.get(f"{survey}?{wrong}").status_code == 400, wrong
    assert _overview(alice)[name]["queueing"] is True
    assert alice.put(f"/queues/{name}-log", json={"options": {"pubsub#queueing": False}}).status_code == 201
    assert _overview(alice)[f"{name}-log"]["queueing"] is False


def test_collections(alice: httpx.Client) -> None:
    """R5, RX4, H3: a collection shows its children, and neither messages nor counts of its own."""
    top = f"shop-{secrets.token_hex(4)}"
    kinds: dict[str, dict[str, str]] = {
        top: {"pubsub#node_type": "collection"},
        f"{top}-fruit": {"pubsub#node_type": "collection", "pubsub#collection": top},
        f"{top}-orders": {"pubsub#collection": top},
        f"{top}/aside": {},
    }
    for name, options in kinds.items():
        assert [alice.put(f"/queues/{name}", json={"options": options}).status_code for _ in range(2)] == [201, 200]
    options = {"pubsub#node_type": "collection", "pubsub#children": f"{top}-orders"}
    assert problem(alice.put(f"/queues/{top}", json={"options": options}))[0] == 409
    assert [alice.put(f"/queues/{top}-two", json={"options": options}).status_code for _ in range(2)] == [201, 200]
    assert alice.patch(f"/queues/{top}-orders", json={"options": {"pubsub#collection": top}}).status_code == 200
    shown = alice.get(f"/queues/{top}", headers={"Accept": "application/json"})
    assert shown.status_code == 200
    page = shown.json()
    assert {(each["name"], each["is_queue"]) for each in page["children"]} == {
        (f"{top}-fruit", False), (f"{top}-orders", True), (f"{top}/aside", True),
    }  # fmt: skip
    assert page["is_queue"] is False and page["messages"] == [] and "counts" not in page
    assert page["options"]["pubsub#node_type"] == "collection"
    assert b"<entry>" in alice.get(f"/queues/{top}").content
    root = {
        each["name"]: each["is_queue"]
        for each in alice.get("/queues", headers={"Accept": "application/json"}).json()["children"]
    }
    assert root.get(top, False) is False and f"{top}-orders" not in root
    assert _overview(alice)[f"{top}-orders"]["parent"] == top
    # RFC 9110 §15.6.2: there is no message, and this resource lacks the method; it is no server error.
    assert problem(alice.get(f"/messages/{top}/x")) == (404, "items-unsupported")
    assert problem(alice.post(f"/queues/{top}", content=b"x")) == (409, "publish-unsupported")
    assert problem(alice.post(f"/purges/{top}"))[0] == 409


def test_purged(alice: httpx.Client, bob: httpx.Client, queue: str) -> None:
    """P25: a queue's owner deletes all waiting messages; held ones stay."""
    batch = [{"text": "x"} for _ in range(7)]
    assert alice.post(queue.replace("queues", "batches"), json=batch).status_code == 200
    lease = alice.post("/subscriptions", json={"destinations": queue.removeprefix("/queues/"), "prefetch": 2})
    held = alice.get(lease.headers["Location"], headers={"Accept": "application/json"}).json()["messages"]
    purge = queue.replace("queues", "purges")
    assert problem(bob.post(purge)) == (403, "forbidden")
    assert alice.post(purge).json() == {"purged": 5}
    assert alice.post(purge).json() == {"purged": 0}
    assert [alice.delete(each["href"]).status_code for each in held] == [200, 200]
    assert problem(alice.post("/purges/never-made")) == (404, "node-not-found")
