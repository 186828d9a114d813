"""Schedules over HTTP: made, shown, paused and deleted by a queue's owner."""

import json
import time
from typing import Any

import httpx
import pytest

from tests.doors.rest.served import problem

DAILY = {"cron": "0 9 * * 1-5", "zone": "Europe/Berlin"}


@pytest.fixture
def schedules(queue: str) -> str:
    """Return the path of the queue's schedules."""
    return queue.replace("/queues/", "/schedules/")


def one(schedules: str, name: str) -> str:
    """Return the path of a schedule."""
    return f"{schedules.replace('/schedules/', '/schedule/')}/{name}"


def test_a_life(alice: httpx.Client, schedules: str) -> None:
    """Issue 25: a schedule is put, shown with its message, listed, paused, resumed and deleted."""
    path = one(schedules, "re%20port")
    body: dict[str, Any] = {
        **DAILY,
        "jitter": "5s",
        "json": {"a": 1},
        "group_key": "k",
        "priority": 7,
        "headers": {"kind": "x"},
    }
    made = alice.put(path, json=body, headers={"traceparent": f"00-{'1' * 32}-{'2' * 16}-01"})
    assert made.status_code == 200, made.text
    told = made.json()
    assert (told["id"], told["state"], told["by"], told["published"]) == ("re port", "active", "alice@example.org", 0)
    assert told["cron"] == DAILY["cron"] and told["href"].startswith(path) and "message" not in told
    assert alice.put(path, json=body, headers={"traceparent": f"00-{'3' * 32}-{'2' * 16}-01"}).json() == told
    shown = alice.get(path).json()["message"]
    assert (json.loads(shown["text"]), shown["content_type"], shown["headers"]) == (
        {"a": 1},
        "application/json",
        {"kind": "x"},
    )
    assert (shown["group_key"], shown["priority"]) == ("k", 7)
    assert alice.patch(path, json={"paused": True}).json()["state"] == "paused"
    assert alice.patch(path, json={"paused": False}).json()["next"] == told["next"]
    for name in "bac":
        assert alice.put(one(schedules, name), json={"every": "1h", "base64": "/w=="}).status_code == 200
    first = alice.get(schedules, params={"limit": 3}).json()
    rest = alice.get(first["next"]).json()
    assert [each["id"] for page in (first, rest) for each in page["schedules"]] == ["a", "b", "c", "re port"]
    assert "next" not in rest and alice.get(one(schedules, "a")).json()["message"]["base64"] == "/w=="
    assert (
        alice.delete(path).status_code == 204 and alice.get(path).status_code == alice.delete(path).status_code == 404
    )


def test_published(alice: httpx.Client, queue: str, schedules: str) -> None:
    """Without any frontend that sends, the process of this door publishes at each time."""
    made = alice.put(one(schedules, "tick"), json={"every": "1s", "text": "now"}).json()
    deadline = time.monotonic() + 60
    while not (found := alice.get(queue, headers={"Accept": "application/json"}).json()["messages"]):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert found[0]["id"] == f"tick@{made['next']}" and found[0]["headers"]["stanzaq-schedule"] == "tick"
    assert alice.delete(one(schedules, "tick")).status_code == 204


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({}, 400),
        ([], 400),
        ({"every": "1s"}, 400),
        ({"text": "x"}, 400),
        ({"every": 5, "text": "x"}, 400),
        ({"every": "0", "text": "x"}, 400),
        ({**DAILY, "zone": "Mars/Phobos", "text": "x"}, 400),
        ({"cron": "0 0 30 2 *", "text": "x"}, 400),
        ({"cron": "  ", "text": "x"}, 400),
        ({"cron": "0 0 L * *", "text": "x"}, 400),
        ({**DAILY, "every": "1s", "text": "x"}, 400),
        ({**DAILY, "text": "x", "guid": "a"}, 400),
        ({**DAILY, "text": "x", "at": "2030-01-01T00:00:00Z"}, 400),
        ({**DAILY, "text": "x", "reply": True}, 400),
        ({**DAILY, "text": "x", "keep": True}, 400),
        ({**DAILY, "text": "x", "more": 1}, 400),
        ({**DAILY, "text": "x", "overlap": "never"}, 400),
    ],
)
def test_bad_input(alice: httpx.Client, schedules: str, body: object, status: int) -> None:
    """Guarantee 7: what cannot be is a problem with a detail."""
    refused = alice.put(one(schedules, "a"), json=body)
    assert refused.status_code == status and problem(refused)
    assert alice.get(schedules).json() == {"schedules": []}


def test_others(alice: httpx.Client, bob: httpx.Client, schedules: str) -> None:
    """Only owners may; a body is JSON; what is not there is 404."""
    assert bob.put(one(schedules, "a"), json={"every": "1h", "text": "x"}).status_code == 403
    assert bob.get(schedules).status_code == 403
    assert alice.put(one(schedules, "a"), content=b"x").status_code == 415
    assert alice.patch(one(schedules, "a"), json={"paused": 1}).status_code == 400
    assert alice.patch(one(schedules, "a"), json={"paused": True}).status_code == 404
    assert alice.put("/schedule/no%20such/a", json={"every": "1h", "text": "x"}).status_code == 404
    assert alice.get(schedules, params={"limit": "0"}).status_code == 400
