"""A source filter as decoded from the wire (part 3 §3.5.8). A value only."""

from typing import Any

from broker.model.frozen import frozen


@frozen
class Filter:
    """One filter of a set: its descriptor, a symbol or number, and the described value."""

    descriptor: str | int
    value: Any
