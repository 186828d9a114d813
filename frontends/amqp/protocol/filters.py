"""A filter as a peer writes it (part 3 §3.5.8). A value only."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Filter:
    """One of a filter set: its descriptor, a symbol or a number, and what it describes."""

    descriptor: str | int
    value: Any
