"""What requests of the site under test do, beside a worker of the queue `default`; it asserts that all goes as it should."""

import asyncio
import json
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from functools import partial
from typing import Any

from django.core.exceptions import ImproperlyConfigured
from django.core.management import CommandError, call_command
from django.db import transaction
from django.utils import timezone

from stanzaq import StanzaqError
from stanzaq.django import StanzaqBackend
from stanzaq.django.framework import exceptions, signals
from stanzaq.sync import Publisher
from tests.frameworks.shop.settings import ACCOUNT
from tests.frameworks.shop.tasks import add, fail, give, greet, mail
from tests.waiting import PATIENCE_SECONDS


def main() -> None:
    """Do all, and print what was refused."""
    enqueued = list[Any]()
    signals.task_enqueued.connect(lambda task_result, **_: enqueued.append(task_result), weak=False)
    with Publisher(**ACCOUNT) as publisher:
        _read_results(enqueued)
        _commit(publisher)
        print(json.dumps(_refuse(publisher)))  # noqa: T201
    _send_later()


def _wait(result: Any) -> Any:  # noqa: ANN401
    ends = time.monotonic() + PATIENCE_SECONDS
    while not result.is_finished:
        assert time.monotonic() < ends, result
        time.sleep(0.02)
        result.refresh()
    return result


def _refused(kind: type[Exception], call: Callable[..., Any], *given: Any, **more: Any) -> str:  # noqa: ANN401
    try:
        call(*given, **more)
    except kind as error:
        return str(error)
    raise AssertionError(kind)


def _read_results(enqueued: list[Any]) -> None:
    """Run tasks, and read how they have ended."""
    five = add.enqueue(2, b=3)
    assert enqueued == [five] and five.enqueued_at and five.id.startswith(f"default/{add.module_path}/")
    assert _wait(five).return_value == 5 and add.get_result(five.id).return_value == 5
    assert _wait(asyncio.run(add.aenqueue(1, 2))).return_value == 3
    hello = _wait(greet.enqueue("cat"))
    assert hello.return_value == ["hello cat", 1, hello.id, "RUNNING"]
    failed = _wait(fail.enqueue())
    assert (failed.status, failed.errors[0].exception_class) == ("FAILED", StanzaqError)
    assert failed.errors[0].traceback == f"{failed.id} is dead: attempt 1 of 1 failed: OSError: nobody is at home"
    assert "TypeError: a object is no payload" in _wait(give.enqueue()).errors[0].traceback
    assert "received" in _refused(exceptions.TaskResultMismatch, add.get_result, failed.id)
    for nonsense in (
        "",
        "x",
        "default/x",
        "default/os.system/1",
        "default/antigravity.x/1",
        f"other/{add.module_path}/1",
    ):
        assert _refused(exceptions.TaskResultDoesNotExist, add.get_result, nonsense) == nonsense
    assert "antigravity" not in sys.modules
    assert add.get_result(f"default/{add.module_path}/1").status == "READY"


def _commit(publisher: Publisher) -> None:
    """Enqueue in transactions: a task is published with the commit, and never without."""
    with transaction.atomic():
        kept = add.enqueue(1)
        assert not kept.enqueued_at and not publisher.cancel("default", kept.id)
    assert kept.enqueued_at and _wait(kept).return_value == 1
    lost = None
    with suppress(KeyError), transaction.atomic():
        lost = mail.enqueue("lost")
        raise KeyError
    assert lost and not publisher.cancel("mail", lost.id)


def _refuse(publisher: Publisher) -> list[str]:
    """Return what is said of what cannot be enqueued, configured, run by the command, or called by the worker."""
    command = partial(_refused, CommandError, call_command, "stanzaq_worker")
    shop = add.module_path.rpartition(".tasks.")[0]
    names = ("this.s", f"{shop}.tasks.tasks", f"{shop}.none.x")
    calls: list[Any] = [{"task": task, "args": ["true"], "kwargs": {}} for task in names]
    calls.append({"task": add.module_path})
    replies = [publisher.publish("default", call, reply=True) for call in calls]
    return [
        _refused(TypeError, add.enqueue, timezone.now()),
        _refused(ValueError, add.enqueue, float("nan")),
        _refused(exceptions.TaskException, add.using, queue_name="none"),
        _refused(StanzaqError, add.using(backend="any", queue_name="none").enqueue, 1),
        _refused(ImproperlyConfigured, StanzaqBackend, "wrong", {"OPTIONS": {"url": ""}}),
        _refused(ImproperlyConfigured, StanzaqBackend, "wrong", {"OPTIONS": {**ACCOUNT, "prefix": "shop-"}}),
        command(backend="none"),
        command(backend="dummy"),
        command(backend="any"),
        command(queue=["mail", "none"]),
        command(concurrency=0),
        *(_refused(StanzaqError, each.result, PATIENCE_SECONDS).partition(" is ")[2] for each in replies),
    ]


def _send_later() -> None:
    """Send what no worker gets here."""
    mail.using(priority=-100).enqueue("last")
    mail.using(priority=0, run_after=timezone.now() - timedelta(hours=1)).enqueue("second")
    mail.using(run_after=timezone.now() + timedelta(hours=1)).enqueue("delayed")
    mail.enqueue("first")
