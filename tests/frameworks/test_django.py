"""A site of Django that enqueues tasks, and the worker that `manage.py` runs for it, against a real service."""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

from stanzaq import Job, Publisher, Queue, Worker
from tests.doors.frontend import ALICE, PASSWORD
from tests.doors.rest.served import RestFrontend
from tests.waiting import PATIENCE_SECONDS

_ROOT = Path(__file__).parents[2]
_SITE = "import django; django.setup(); from tests.frameworks.shop.client import main; main()"

_SHOP = "tests.frameworks.shop"
_REFUSED = [
    "Unsupported type: <class 'datetime.datetime'>",
    "the payload's ['args'][0] is nan: JSON has no such number, so send None or a text",
    "Queue 'none' is not valid for backend.",
    "cannot publish to none: item-not-found (there is no such node)",
    "TASKS['wrong']['OPTIONS']: '': write xmpp://user@example.org, and give the password as STANZAQ_PASSWORD or password=",
    "TASKS['wrong']['OPTIONS']: account() got an unexpected keyword argument 'prefix'",
    "--backend none: TASKS has default, any, dummy",
    "--backend dummy: its tasks are for a DummyBackend, and not for this command",
    "TASKS['any'] names no QUEUES: say whose tasks to run, e.g. --queue default",
    "--queue none: TASKS['default'] has default, mail",
    "concurrency=0, prefetch=0: together 1 to 1000 items are held at once",
    "dead: the worker has no task this.s: write it in an app of INSTALLED_APPS, or import its module at the start",
    f"dead: {_SHOP}.tasks.tasks is no task: enqueue what `task` has decorated",
    f"dead: the worker has no task {_SHOP}.none.x, start one whose program has it: No module named '{_SHOP}.none'",
    "dead: the payload (application/json) is no Call: Object missing required field `args`",
]


async def _start(url: str, *arguments: str) -> Process:
    """Start a program of the site; warnings are errors."""
    known = {"SHOP_URL": url, "SHOP_PASSWORD": PASSWORD, "PYTHONPATH": str(_ROOT)}
    known["DJANGO_SETTINGS_MODULE"] = "tests.frameworks.shop.settings"
    program = (sys.executable, "-W", "error", *arguments)
    return await asyncio.create_subprocess_exec(*program, stdout=PIPE, stderr=PIPE, env=os.environ | known)


async def test_tasks(door: RestFrontend) -> None:
    """Tasks run in the worker, with the results, priorities and times that Django promises; each fault is a sentence."""
    url = f"http://{ALICE}@127.0.0.1:{door.port}"
    async with Publisher(url, password=PASSWORD) as owner:
        await owner.declare(Queue("default", max_deliveries=1))
        await owner.declare(Queue("mail"))
    worker = await _start(url, "-m", "django", "stanzaq_worker", "--queue", "default", "--concurrency", "2")
    try:
        assert worker.stderr is not None
        async with asyncio.timeout(PATIENCE_SECONDS):
            while b"ready for items of default, up to 2" not in (line := await worker.stderr.readline()):
                assert line, "the worker has ended"
            site = await _start(url, "-c", _SITE)
            printed, log = await site.communicate()
            assert site.returncode == 0, log.decode()
            assert json.loads(printed) == _REFUSED
            worker.terminate()
            _, log = await worker.communicate()
    finally:
        if worker.returncode is None:
            worker.kill()
    assert worker.returncode == 0, log.decode()
    assert await _read_mails(url) == ["first", "second", "last"]


async def _read_mails(url: str) -> list[str]:
    """Return what the site has sent for later, in the order in which a worker gets it."""
    worker, mails = Worker(url, password=PASSWORD), list[str]()

    @worker.task("mail")
    async def _read(job: Job[dict[str, Any]]) -> None:
        mails.append(job.payload["args"][0])
        if len(mails) == 3:
            worker.stop()

    async with asyncio.timeout(PATIENCE_SECONDS):
        await worker.serve()
    return mails
