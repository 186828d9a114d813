"""Tasks of a site under test: those of library.md, and some more."""

from typing import Any

from stanzaq.django.framework import NAME, tasks
from tests.frameworks.documented import program

add: Any
mail: Any
exec(program("tasks").replace("django.tasks", NAME))  # noqa: S102


@tasks.task(takes_context=True)  # type: ignore[untyped-decorator]
async def greet(context: Any, name: str) -> list[Any]:  # noqa: ANN401
    """Greet somebody, in a loop."""
    return [f"hello {name}", context.attempt, context.task_result.id, context.task_result.status]


@tasks.task  # type: ignore[untyped-decorator]
def fail() -> None:
    """Fail."""
    msg = "nobody is at home"
    raise OSError(msg)


@tasks.task  # type: ignore[untyped-decorator]
def give() -> object:
    """Return what cannot be sent."""
    return object()
