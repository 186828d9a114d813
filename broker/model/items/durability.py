"""How durable a publish is before its publisher is told that it succeeded. Values only."""

from enum import Enum


class Durability(Enum):
    """Where an item is when its publish is confirmed: in Redis's memory, also on its disk, or also in replicas."""

    STORED = "stored"
    SYNCED = "synced"
    REPLICATED = "replicated"
