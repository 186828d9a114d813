"""Quotas of owners and domains: how they are read, shown, and which hold for an owner. Pure; must not know Redis or a wire."""

import json
from collections.abc import Mapping
from typing import Final

from broker.model.frozen import frozen
from broker.model.names import Jid, domain
from broker.model.nodes.fields import Rate, Whole
from broker.model.nodes.options import MAX_RATE
from broker.model.problems import MalformedRequest, Problem

DEFAULT: Final = "default"
"""The subject whose quota holds for each owner without a quota of its own."""

FIELDS: Final = ("nodes", "partitions", "items", "bytes", "publish_rate")
MOST: Final = 10**15
MOST_QUOTAS: Final = 1_000

_NUMBER: Final = Whole(0, MOST)
_RATE: Final = Rate(MAX_RATE)


@frozen
class Quota:
    """What the nodes of a subject may hold together; None and the empty rate are no limit."""

    nodes: int | None = None
    partitions: int | None = None
    items: int | None = None
    bytes: int | None = None
    publish_rate: str = ""

    @staticmethod
    def read(values: Mapping[str, str]) -> "Quota":
        """Read a quota of texts; raises MalformedRequest that names the wrong field."""
        read = dict[str, object]()
        for name, text in values.items():
            if name not in FIELDS:
                msg = f"{name[:80]} is not part of a quota: use {', '.join(FIELDS)}"
                raise MalformedRequest(Problem.BAD_REQUEST, msg)
            try:
                read[name] = _RATE(text) if name == "publish_rate" else _NUMBER(text)
            except ValueError as wrong:
                raise MalformedRequest(Problem.NOT_ACCEPTABLE, f"{name}: {wrong}") from None
        if not any(value != "" for value in read.values()):
            raise MalformedRequest(Problem.BAD_REQUEST, f"a quota limits something: {', '.join(FIELDS)}")
        return Quota(**read)  # type: ignore[arg-type]

    def limits_by_name(self) -> dict[str, int | str]:
        """Return the limits by name."""
        found = {name: getattr(self, name) for name in FIELDS}
        return {name: value for name, value in found.items() if value not in {None, ""}}

    def __str__(self) -> str:
        """Write it as it is stored."""
        return json.dumps(self.limits_by_name())

    @staticmethod
    def parse(text: str) -> "Quota":
        """Read what `str` wrote; raises ValueError, TypeError or MalformedRequest on anything else."""
        return Quota.read({name: str(value) for name, value in dict(json.loads(text)).items()})

    @property
    def measures(self) -> bool:
        """Whether what is stored must be measured."""
        return self.items is not None or self.bytes is not None

    @property
    def limits_publishes(self) -> bool:
        """Whether it limits publishes."""
        return self.measures or bool(self.publish_rate)


@frozen
class QuotaStatus:
    """The quota of a subject and what its nodes use of it; None: not measured."""

    subject: str
    quota: Quota
    nodes: int | None = None
    partitions: int | None = None
    items: int | None = None
    bytes: int | None = None

    @property
    def used(self) -> dict[str, int]:
        """What is measured, by name."""
        found = {name: getattr(self, name) for name in FIELDS[:-1]}
        return {name: value for name, value in found.items() if value is not None}

    @property
    def share(self) -> float | None:
        """The largest share that is used of any limit; None without one that is measured. A limit of 0 is used up."""
        limits = self.quota.limits_by_name()
        shares = [
            used / most if (most := int(limits[name])) else 1.0 for name, used in self.used.items() if name in limits
        ]
        return max(shares, default=None)


def counts_for(subject: str, owner: Jid | None) -> bool:
    """Return whether the nodes of an owner count for the quota of a subject."""
    return owner is not None and subject in {owner, domain(owner)}


def find_quotas(quotas: Mapping[str, Quota], owner: Jid) -> dict[str, Quota]:
    """Return the quotas that hold for an owner, by subject: its own or the default one, and that of its domain."""
    whose = domain(owner)
    found: dict[str, Quota | None] = {owner: quotas.get(owner) or quotas.get(DEFAULT)}
    # An owner that is a domain has one quota, and the default quota is none of a domain that has the same name.
    if whose not in {owner, DEFAULT}:
        found[whose] = quotas.get(whose)
    return {name: quota for name, quota in found.items() if quota is not None}
