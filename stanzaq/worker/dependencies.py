"""Dependencies of a handler: what its parameters beside the job ask for, by fast-depends. Must not know what a job is.

Only a handler with such parameters needs that package. Their values are made anew for each call, and closed after it.
"""

import inspect
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from fast_depends.core import CallModel


def inject(handler: Callable[..., Any], name: str) -> Callable[..., Any]:
    """Return a handler that takes the job alone, and gets the rest from its dependencies; itself if it has none.

    Raises TypeError, which says the handler's `name` and what to write.
    """
    if not inspect.isroutine(handler) or _takes_one(handler) or find_spec("fast_depends") is None:
        return handler
    import fast_depends  # noqa: PLC0415  (most handlers need it not)

    models = list["CallModel"]()

    def note(model: "CallModel") -> "CallModel":
        models.append(model)
        return model

    try:
        injected = fast_depends.inject(handler, cast=False, cast_result=False, wrap_model=note)
    except Exception as error:
        msg = f"{name} has dependencies that cannot be read: {error}"
        raise TypeError(msg) from error
    (model,) = models
    jobs = [each.field_name for each in model.params if each.default_value is ...]
    if not model.dependencies or len(jobs) != 1:
        return handler
    unknown = [
        each.field_name for each in model.flat_params if each.default_value is ... and each.field_name not in jobs
    ]
    if unknown:
        told = f"write Annotated[…, Depends(…)], or {jobs[0]} for the job"
        msg = f"{name} has a dependency that takes {unknown[0]}, which nobody provides: {told}"
        raise TypeError(msg)
    injected.__qualname__ = name
    alone = inspect.Signature([inspect.signature(handler).parameters[jobs[0]]])
    setattr(injected, "__signature__", alone)  # noqa: B010  (mypy knows no such attribute)
    return injected


def _takes_one(handler: Callable[..., Any]) -> bool:
    try:
        return len(inspect.signature(handler).parameters) == 1
    except ValueError:
        # It is refused where its parameter is read.
        return True
