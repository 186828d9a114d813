"""Destinations: queues by their names, or by wildcards over the tree that the slashes in names make (R12, RX4). Pure text rules.

`*` stands for one whole step, and `**` at the end for one or more; anywhere else a star is a character like any other, and so
is a dot.
"""

from typing import Final

MOST: Final = 32
"""Most destinations of a collection."""


def is_wildcard(destination: str) -> bool:
    """Tell whether a destination may stand for several queues."""
    steps = destination.split("/")
    return "*" in steps or steps[-1] == "**"


def meets(destination: str, name: str) -> bool:
    """Tell whether a queue of this name is meant."""
    wanted, steps = destination.split("/"), name.split("/")
    if wanted[-1] == "**":
        wanted = wanted[:-1]
        if len(steps) <= len(wanted):
            return False
        steps = steps[: len(wanted)]
    return len(wanted) == len(steps) and all(want in {"*", step} for want, step in zip(wanted, steps, strict=True))
