"""Destinations of a lease: names of queues, or wildcards over the steps between slashes (R12, RX4). Pure text rules.

`*` matches one whole step, and `**` at the end one or more; any other star is a plain character, and so is a dot. A last step
`dead`, as nodes for dead letters have it, must be written: a worker that rejects what it gets would get it again for ever.
"""

from typing import Final

MOST: Final = 32
"""Most destinations of a lease."""

DEAD: Final = "dead"
"""The last step of the default name of a node for dead letters."""


def is_wildcard(destination: str) -> bool:
    """Return whether a destination may match several queues."""
    steps = destination.split("/")
    return "*" in steps or steps[-1] == "**"


def matches(destination: str, name: str) -> bool:
    """Return whether a destination matches the name of a queue."""
    wanted, steps = destination.split("/"), name.split("/")
    if steps[-1] == DEAD != wanted[-1]:
        return False
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        if len(steps) <= len(wanted):
            return False
        steps = steps[: len(wanted)]
    return len(wanted) == len(steps) and all(want in {"*", step} for want, step in zip(wanted, steps, strict=True))
