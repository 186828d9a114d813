"""Tasks of a site under test: those of library.md, and two more."""

from typing import Any

from stanzaq import Reject
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
    """Fail for good."""
    msg = "nobody is at home"
    raise Reject(msg)
