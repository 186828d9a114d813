"""Which stores this version may use: each has a format, the version of the table of keys that its content is kept by.

A store is upgraded in place, node by node (broker/redis_core/maintenance/upgrades.py). It says itself which versions may use it
meanwhile and afterwards: its `least` is the oldest format whose programs understand it. Pure; must not know how it is upgraded.
"""

from typing import Final, NamedTuple

from broker import keys

FORMAT: Final = 9
"""The format that this version keeps. A renamed key, or content that an older version cannot read, needs a new number."""

FIRST: Final = 9
"""The oldest format that is upgraded; older stores are refused."""

LEAST: Final = 9
"""The oldest format whose programs understand what this version writes."""


class StoreFormat(NamedTuple):
    """The format of a store, and the oldest format whose programs may use it."""

    format: int
    least: int

    @property
    def is_upgradable(self) -> bool:
        """Whether this version upgrades it."""
        return FIRST <= self.format < FORMAT

    @property
    def is_usable(self) -> bool:
        """Whether programs of this version may read and write it."""
        return self.least <= FORMAT <= self.format

    def refusal(self) -> tuple[str, str]:
        """Return a sentence on a store that this version may not use, and its remedy."""
        fault = f"Redis holds a store of format {self.format}, and this version of stanzaq keeps format {FORMAT}"
        if self.least > FORMAT:
            return fault, f"install a version of stanzaq that keeps format {self.least} or a later one"
        if self.is_upgradable:
            return fault, "start a frontend of this version, which upgrades it in place"
        kept = f"{keys.prefix()}:*"
        return (
            fault,
            f"work its queues empty with the version that wrote it and delete its keys, {kept}, or use another Redis",
        )


OWN: Final = StoreFormat(FORMAT, LEAST)
"""The format of a store that this version has begun or upgraded."""


def question() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the commands whose replies `found` takes, in this order: a store has its format before its first node."""
    nodes = ("EXISTS", keys.of_service("all_nodes"), keys.of_service("names"))
    return nodes, ("HMGET", keys.of_service("store"), "format", "least")


def found(nodes: int, noted: list[bytes | None]) -> StoreFormat:
    """Return the format of a store: nodes without a format number are older than all formats, so 0; no nodes, this version's."""
    number, least = noted
    if number is None and not nodes:
        return OWN
    return StoreFormat(int(number or 0), int(least or number or 0))
