"""Schedules through ejabberd and two frontends: made, listed, paused and deleted by whichever of them gets the request."""

import asyncio

from tests.journeys.client import STANZAQ, Answer, Client, Delivery
from tests.journeys.conftest import Join
from tests.journeys.test_adhoc import run, told

JOB = "<job xmlns='urn:x'/>"


async def _ask(client: Client, name: str, node: str, more: str = "", inside: str = "", *, kind: str = "set") -> Answer:
    return await client.ask(f"<{name} xmlns='{STANZAQ}' node='{node}' {more}>{inside}</{name}>", kind)


async def test_every_second(join: Join) -> None:
    """Issue 25: a worker gets one item for each second; a paused schedule is silent, and a deleted one is gone."""
    owner, worker = await join(), await join()
    node = await owner.queue()
    assert (await worker.subscribe(node, 10)).error == ""
    made = await _ask(owner, "schedule", node, "id='tick' every='1s'", f"<item key='k'>{JOB}</item>")
    assert made.error == ""
    seen = list[str]()
    while len(seen) < 3:
        held = await worker.next(Delivery)
        seen.append(held.item)
        assert (await worker.retract(node, held.item, held.token)).error == ""
    assert len(set(seen)) == 3 and seen == sorted(seen) and all(name.startswith("tick@") for name in seen)
    assert (await _ask(owner, "pause-schedule", node, "id='tick'")).error == ""
    (shown,) = (await _ask(owner, "schedules", node, kind="get")).element[0]
    assert shown.get("state") == "paused" and int(shown.get("published", "0")) >= 3 and shown.get("missed") == "0"
    (one,) = (await _ask(owner, "schedules", node, "id='tick'", kind="get")).element[0]
    assert one[0].get("key") == "k" and one[0][0].tag == "{urn:x}job"
    assert (await _ask(owner, "unschedule", node, "id='tick'")).error == ""
    assert (await _ask(owner, "unschedule", node, "id='tick'")).error == "cancel item-not-found"


async def test_by_hand(join: Join) -> None:
    """XEP-0050: an owner makes, lists, pauses and deletes a schedule by forms; others may not."""
    owner, other = await join(), await join()
    node = await owner.queue()
    form = {"node": node, "id": "daily", "cron": "0 9 * * 1-5", "zone": "Europe/Berlin", "payload": '{"a": 1}'}
    assert told(await run(owner, "schedule", form))[0] == "completed"
    assert told(await run(owner, "schedules", {"node": node})) == ("completed", f"1 schedules of {node}")
    status, note = told(await run(owner, "pause-schedule", {"node": node, "id": "daily"}))
    assert (status, note) == ("completed", "daily is paused")
    assert "next at" in told(await run(owner, "resume-schedule", {"node": node, "id": "daily"}))[1]
    assert (await run(other, "unschedule", {"node": node, "id": "daily"})).error == "auth forbidden"
    assert told(await run(owner, "unschedule", {"node": node, "id": "daily"}))[0] == "completed"


async def test_bad_input(join: Join) -> None:
    """Issue 25: what cannot be, and what the sender may not, is a clear error."""
    owner, other = await join(), await join()
    node = await owner.queue()
    item = f"<item>{JOB}</item>"
    for words, error in (
        ("id='a' cron='0 9 * * 8'", "modify bad-request"),
        ("id='a' cron='  '", "modify bad-request"),
        ("id='a' cron='0 9 * * 5#2'", "modify bad-request"),
        ("id='a' cron='0 9 * * *' zone='Mars/Phobos'", "modify bad-request"),
        ("id='a' every='0'", "modify bad-request"),
        ("id='a' every='1s' start='2026-12-02T00:00:00Z' end='2026-12-01T00:00:00Z'", "modify bad-request"),
        ("every='1s'", "modify bad-request"),
    ):
        assert (await _ask(owner, "schedule", node, words, item)).error == error, words
    assert (await _ask(other, "schedule", node, "id='a' every='1s'", item)).error == "auth forbidden"
    assert (await _ask(owner, "schedule", f"{node}-none", "id='a' every='1s'", item)).error == "cancel item-not-found"
    answers = await asyncio.gather(*(_ask(owner, "schedules", node, kind="get") for _ in range(4)))
    assert [len(each.element[0]) for each in answers] == [0] * 4
