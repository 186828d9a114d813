"""How often Python collects garbage in a program of ours. Knows only the interpreter."""

import gc
from typing import Final

OBJECTS: Final = (20_000, 20, 20)
"""New objects before a garbage collection, by generation.

Imports and commands create hardly any cycles. With Python's 700 a program spent a sixth of its start, and a third of a burst
of sweeps, in collections that found nothing.
"""


def collect_rarely() -> None:
    """Set it for this process, before it imports the rest."""
    gc.set_threshold(*OBJECTS)
