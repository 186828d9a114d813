"""Schedules by hand, through ejabberd and two frontends; tests/journeys/test_library.py has those of programs."""

from tests.journeys.conftest import Join
from tests.journeys.test_adhoc import run, told


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
