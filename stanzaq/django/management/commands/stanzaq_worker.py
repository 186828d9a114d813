"""The command `manage.py stanzaq_worker`. Must not know how tasks run."""

from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from stanzaq.django.backend import StanzaqBackend
from stanzaq.django.framework import tasks
from stanzaq.django.running import make_worker


class Command(BaseCommand):  # type: ignore[misc]  # Django has no types
    """Runs a worker."""

    help = "Runs tasks of a backend of TASKS until SIGTERM or Ctrl-C."

    def add_arguments(self, parser: CommandParser) -> None:
        """Say what can be chosen."""
        parser.add_argument("--backend", default="default", help="the backend, by its alias in TASKS")
        parser.add_argument("--queue", action="append", help="a queue of the backend, repeatable; default: all")
        parser.add_argument("--concurrency", type=int, default=1, help="tasks at once, each in a thread")

    def handle(self, *, backend: str, queue: list[str] | None, concurrency: int, **_options: Any) -> None:  # noqa: ANN401
        """Run until a signal; raises CommandError for what cannot be run."""
        known = tasks.task_backends
        if backend not in known.settings:
            msg = f"--backend {backend}: TASKS has {', '.join(known)}"
            raise CommandError(msg)
        found = known[backend]
        if not isinstance(found, StanzaqBackend):
            msg = f"--backend {backend}: its tasks are for a {type(found).__name__}, and not for this command"
            raise CommandError(msg)
        queues = queue or sorted(found.queues)
        if not queues:
            msg = f"TASKS[{backend!r}] names no QUEUES: say whose tasks to run, e.g. --queue default"
            raise CommandError(msg)
        if found.queues and (unknown := set(queues) - found.queues):
            msg = f"--queue {min(unknown)}: TASKS[{backend!r}] has {', '.join(sorted(found.queues))}"
            raise CommandError(msg)
        try:
            worker = make_worker(found, queues, concurrency)
        except ValueError as error:
            raise CommandError(str(error)) from error
        worker.run()
