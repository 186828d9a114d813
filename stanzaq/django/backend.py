"""The backend: a task becomes an item of the node that its queue names, and its end the result. Must not know who runs it."""

import secrets
from collections.abc import Mapping, Sequence
from datetime import datetime
from functools import cache, partial
from typing import Any, Final

from django.core.exceptions import ImproperlyConfigured
from django.db import transaction
from django.utils import timezone

from stanzaq import payloads
from stanzaq.django.framework import Status, backends, change, exceptions, find_task, make_error, make_result, signals
from stanzaq.errors import StanzaqError
from stanzaq.sync import Publisher
from stanzaq.transport.account import Password, Tls
from stanzaq.transport.interface import Content

_PATIENCE: Final = "10s"
"""How long a request waits for the service."""

_ENDS: Final = {"dead", "cancelled", "expired"}


@cache
def account(
    url: str,
    *,
    service: str | None = None,
    password: Password = None,
    address: str | None = None,
    tls: Tls = "required",
) -> Publisher:
    """Return the publisher of an account: all threads of a process, each of which has a backend of its own, share it."""
    return Publisher(url, service=service, password=password, address=address, tls=tls)


class StanzaqBackend(backends.BaseTaskBackend):  # type: ignore[name-defined, misc]  # Django has no types
    """Sends tasks to a queue: `TASKS = {"default": {"BACKEND": "stanzaq.django.StanzaqBackend", "OPTIONS": {"url": …}}}`.

    The options are the account's, as for a `Worker`.
    """

    supports_defer = supports_async_task = supports_get_result = supports_priority = True

    def __init__(self, alias: str, params: dict[str, Any]) -> None:
        """Check the options; raises ImproperlyConfigured. Connects with the first task."""
        super().__init__(alias, params)
        try:
            self._publisher = account(**self.options)
        except (TypeError, ValueError) as error:
            msg = f"TASKS[{alias!r}]['OPTIONS']: {error}"
            raise ImproperlyConfigured(msg) from error

    def enqueue(self, task: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:  # noqa: ANN401
        """Publish a task, inside a transaction when that is committed, and return its result, whose id is the item's.

        Raises InvalidTask, TypeError and ValueError for what cannot be enqueued; StanzaqError and TimeoutError when it publishes.
        """
        self.validate_task(task)
        # Whoever has the id finds the node and the task again.
        item = f"{task.queue_name}/{task.module_path}/{secrets.token_hex(16)}"
        result = make_result(task, item, Status.READY, args=args, kwargs=kwargs)
        content = payloads.encode({"task": task.module_path, "args": result.args, "kwargs": result.kwargs})
        publish = partial(self._publish, result, content)
        if transaction.get_connection().in_atomic_block:
            transaction.on_commit(publish)
        else:
            publish()
        return result

    def _publish(self, result: Any, content: Content) -> None:  # noqa: ANN401
        task = result.task
        how: dict[str, Any] = {"priority": _priority(task.priority), "at": _moment(task.run_after)}
        self._publisher.publish(task.queue_name, content, id=result.id, keep=True, timeout=_PATIENCE, **how)
        change(result, enqueued_at=timezone.now())
        signals.task_enqueued.send(type(self), task_result=result)

    def get_result(self, result_id: str) -> Any:  # noqa: ANN401
        """Return how a task has ended; READY if it has not, or if the service has forgotten it.

        Raises TaskResultDoesNotExist for what is no id of this backend, StanzaqError and TimeoutError.
        """
        queue, _, rest = result_id.rpartition("/")[0].rpartition("/")
        task = find_task(rest)
        if task is None or (self.queues and queue not in self.queues):
            raise exceptions.TaskResultDoesNotExist(result_id)
        result = make_result(task.using(queue_name=queue, backend=self.alias), result_id, Status.READY)
        try:
            value = self._publisher.result(queue, result_id, timeout=_PATIENCE)
        except StanzaqError as error:
            if error.condition in _ENDS:
                change(result, status=Status.FAILED, errors=[make_error(error, str(error))])
            elif error.condition != "item-not-found":
                raise
        else:
            change(result, status=Status.SUCCESSFUL, _return_value=value)
        return result


def _priority(given: int) -> int:
    """Return a priority of the service, 0 to 9, for one of Django, -100 to 100; the defaults are 4 and 0."""
    return 4 + round(given * (5 if given > 0 else 4) / 100)


def _moment(given: datetime | None) -> datetime | None:
    """Return a time with its zone, which it has not where USE_TZ is off."""
    return timezone.make_aware(given) if given is not None and timezone.is_naive(given) else given
