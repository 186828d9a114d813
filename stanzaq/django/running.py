"""The worker of a backend, which calls tasks by their names. Must not know how they were enqueued."""

import platform
from collections.abc import Iterable
from functools import partial
from traceback import format_exception
from typing import Any, TypedDict

from django.db import close_old_connections
from django.utils import timezone

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
    """Run a task in this thread, a coroutine in a loop of its own; raises what it raises, and Reject for one that is unknown."""
    call, began = job.payload, timezone.now()
    task = find_task(call["task"])
    if task is None:
        msg = f"the worker has no task {call['task']}: start one whose program has it"
        raise Reject(msg)
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
