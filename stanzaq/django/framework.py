"""Django's Tasks framework: its own since version 6, or that of the package django-tasks. Must not know any backend."""

import sys
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

NAME: Final = "django.tasks" if find_spec("django.tasks") else "django_tasks"

tasks: Final = import_module(NAME)
base: Final = import_module(f"{NAME}.base")
backends: Final = import_module(f"{NAME}.backends.base")
exceptions: Final = import_module(f"{NAME}.exceptions")
signals: Final = import_module(f"{NAME}.signals")
Status: Final = base.TaskResultStatus


def find_task(path: str) -> Any:  # noqa: ANN401  (a task)
    """Return the task of a name such as `shop.tasks.book`; None if no module that is imported has it."""
    # Nothing is imported here: the name may be anybody's, such as that in the URL of a result.
    module, _, name = path.rpartition(".")
    found = getattr(sys.modules.get(module), name, None)
    return found if isinstance(found, base.Task) else None


def make_result(task: Any, id: str, status: str, **known: Any) -> Any:  # noqa: A002, ANN401
    """Return a result of a task, with what is known of it."""
    times = dict.fromkeys(("enqueued_at", "started_at", "finished_at", "last_attempted_at"))
    unknown: dict[str, Any] = {**times, "args": [], "kwargs": {}, "errors": [], "worker_ids": []}
    return base.TaskResult(task=task, id=id, status=status, backend=task.backend, **(unknown | known))


def change(result: Any, **known: Any) -> None:  # noqa: ANN401
    """Note what has become known of a result, which is frozen for everybody else."""
    for name, value in known.items():
        object.__setattr__(result, name, value)


def make_error(fault: BaseException, text: str) -> Any:  # noqa: ANN401
    """Return what a result tells of an exception."""
    kind = type(fault)
    return base.TaskError(exception_class_path=f"{kind.__module__}.{kind.__qualname__}", traceback=text)
