"""The worker of a backend, which calls tasks by their names. Must not know how they were enqueued."""

import platform
from collections.abc import Iterable
from functools import partial
from traceback import format_exception
from typing import Any, TypedDict

from django.apps import apps
from django.db import close_old_connections
from django.utils import timezone
from django.utils.module_loading import import_string

from stanzaq import payloads
from stanzaq.django.backend import StanzaqBackend
from stanzaq.django.framework import Status, base, change, find_task, make_error, make_result, signals
from stanzaq.job import Job
from stanzaq.retry import Reject
from stanzaq.worker.worker import Worker


class Call(TypedDict):
    """What an item says: a task, and its arguments."""

    task: str
    args: list[Any]
    kwargs: dict[str, Any]


def make_worker(backend: StanzaqBackend, queues: Iterable[str], concurrency: int) -> Worker:
    """Return a worker for queues of a backend, which creates those that are missing; raises ValueError."""
    worker = Worker(**backend.options, concurrency=concurrency, create="if-missing")
    for queue in queues:
        worker.task(queue)(partial(_run, type(backend)))
    return worker


def _run(sender: type[StanzaqBackend], job: Job[Call]) -> Any:  # noqa: ANN401  (what a task returns)
    """Run a task in this thread, a coroutine in a loop of its own; raises what it raises."""
    call, began = job.payload, timezone.now()
    task = _import_task(call["task"])
    known = {"args": call["args"], "kwargs": call["kwargs"], "enqueued_at": job.published}
    # Nobody tells which workers the earlier attempts had.
    known |= {
        "started_at": began,
        "last_attempted_at": began,
        "worker_ids": [""] * (job.attempt - 1) + [platform.node()],
    }
    result = make_result(task.using(queue_name=job.node), job.id, Status.RUNNING, **known)
    context = [base.TaskContext(task_result=result)] if task.takes_context else []
    close_old_connections()
    try:
        signals.task_started.send(sender, task_result=result)
        try:
            value = task.call(*context, *result.args, **result.kwargs)
            # Who enqueued it may ask for the value at any time, so one that cannot be sent is a failure.
            payloads.encode(value)
        except BaseException as error:
            errors = [make_error(error, "".join(format_exception(error)))]
            change(result, status=Status.FAILED, finished_at=timezone.now(), errors=errors)
            signals.task_finished.send(sender, task_result=result)
            raise
        ended = {"finished_at": timezone.now(), "_return_value": value}
        change(result, status=Status.SUCCESSFUL, **ended)
        signals.task_finished.send(sender, task_result=result)
        return value
    finally:
        close_old_connections()


def _import_task(path: str) -> Any:  # noqa: ANN401  (a task)
    """Return a task by its name; raises Reject if the worker's program has none.

    The name is a publisher's, so no module is imported for it but those of the site's apps.
    """
    if find_task(path) is None and apps.get_containing_app_config(path) is None:
        msg = f"the worker has no task {path}: write it in an app of INSTALLED_APPS, or import its module at the start"
        raise Reject(msg)
    try:
        import_string(path)
    except ImportError as error:
        msg = f"the worker has no task {path}, start one whose program has it: {error}"
        raise Reject(msg) from error
    task = find_task(path)
    if task is None:
        msg = f"{path} is no task: enqueue what `task` has decorated"
        raise Reject(msg)
    return task
