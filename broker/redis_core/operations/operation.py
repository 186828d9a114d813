"""What a call is. Knows the shape that every partition script's reply has; must not know any one operation."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from broker import keys
from broker.model.items import Delivery, OwnershipLost
from broker.model.names import Jid, Partition, bare
from broker.model.nodes import NodeRecord
from broker.model.options import NodeConfig
from broker.model.problems import Problem, ScriptDefect
from broker.model.qos import Stage
from broker.model.results import Refused
from broker.redis_core.commands.credit import CreditReport

Values = Mapping[str, str | int | bytes]


def _nothing(_command: Any, _record: NodeRecord) -> Values:
    return {}


@dataclass(frozen=True, slots=True)
class Call:
    """How a command becomes arguments and a reply becomes its result.

    `fixed` gives the arguments of the whole call by their header names, `row` those of one command. A call with `row` is
    shared by the commands of a batch and `result` reads the command's own part of the reply; one without is the
    command's alone, may have `rows`, and its `result` reads the whole `Reply`.
    """

    script: str
    result: Callable[[Any, Any, NodeRecord], Any]
    fixed: Callable[[Any, NodeRecord], Values] = _nothing
    row: Callable[[Any, NodeRecord], Values] | None = None
    rows: Callable[[Any, NodeRecord], list[Values]] | None = None


_STAGES = {stage.value.encode(): stage for stage in Stage}


@dataclass(frozen=True, slots=True)
class Reply:
    """What every partition script answers after `ok`; `due_ms` 0 means that nothing is due, times are Redis's ms.

    `credit` is what a script that hands items out says of credit that several partitions share, None where none is.
    """

    rows: list[Any]
    deliveries: list[list[Any]]
    notices: list[list[Any]]
    handovers: list[list[Any]]
    due_ms: int
    more: bool
    token: int
    credit: CreditReport | None

    @staticmethod
    def read(reply: list[Any]) -> "Reply":
        """Read a reply whose code word is `ok`."""
        _code, rows, deliveries, notices, handovers, due_ms, more, token, *told = reply
        report = CreditReport.read(told[0]) if told else None
        return Reply(rows, deliveries, notices, handovers, due_ms, bool(more), token, report)


def delivery(row: list[Any], partition: Partition, config: NodeConfig) -> Delivery:
    """Read one of a reply's deliveries."""
    jid, position, item, token, attempt, deadline, by, body, sequence, stage, key, *told = row
    through, whose = subscription(*told)
    return Delivery(
        partition,
        position.decode(),
        item.decode(),
        Jid(jid.decode()),
        token,
        attempt,
        config.max_deliveries,
        deadline,
        Jid(by.decode()),
        body,
        sequence,
        _STAGES[stage],
        key.decode(),
        partitioned=config.partitions > 1,
        collection=through,
        subid=whose,
    )


def ownership_lost(values: list[Any], partition: Partition) -> OwnershipLost:
    """Read a notice of the kind `lost`."""
    jid, group, epoch, fence, reason = values
    return OwnershipLost(
        partition.node, Jid(jid.decode()), partition.number, group.decode(), int(epoch), fence, reason.decode()
    )


_PROBLEMS = {problem.value.encode(): problem for problem in Problem}


def refused(code: bytes, detail: str = "") -> Refused:
    """Read a code word as a refusal; raises ScriptDefect on a word that is no problem's."""
    problem = _PROBLEMS.get(code)
    if problem is None:
        msg = f"a script answered {code!r}, which is no problem's code"
        raise ScriptDefect(msg)
    return Refused(problem, detail)


@lru_cache(maxsize=10_000)
def subid(jid: str) -> str:
    """Name a subscription by its JID, so that a worker who comes back is known by the locks it still holds.

    A number of 52 bits: Redis orders what a subscriber holds by it, and a score holds no more.
    """
    return str(int(hashlib.sha1(jid.encode(), usedforsecurity=False).hexdigest()[:13], 16))


@lru_cache(maxsize=10_000)
def subids(jid: str) -> str:
    """Name the subscriptions that a sender may have: by its full JID, and by its bare one."""
    return f"{subid(jid)} {subid(bare(jid))}"


_NAMES = 2**52
MOST_OF_ONE = 32
"""Subscriptions to one node that a JID may have."""


@lru_cache(maxsize=1_000)
def family(jid: str) -> tuple[str, ...]:
    """Name the subscriptions that a JID may have where it may have several, the first one first.

    lua/lib/subscriptions/subscription_ids.lua says the same.
    """
    first = int(subid(jid))
    bits = first % MOST_OF_ONE
    return tuple(str(first - bits + (bits + number) % MOST_OF_ONE) for number in range(MOST_OF_ONE))


def reach(whose: str) -> tuple[int, int]:
    """Give the first and the last number that any of one JID's subscriptions may have."""
    first = kin(whose) * MOST_OF_ONE
    return first, first + MOST_OF_ONE - 1


def kin(whose: str) -> int:
    """Give a number that all of one JID's subscriptions have in common."""
    return int(whose) // MOST_OF_ONE


def pool(collection: Partition) -> str:
    """Name the pool of a collection, given its own partition, as scripts know it (lua/lib/credit/pools.lua)."""
    life = f"{collection.node}@{collection.incarnation}"
    return f"{subid(life)}:{keys.escaped(life)}"


def collection(pool: bytes = b"") -> str:
    """Give the name of the collection that a pool is of, as a script names it; empty when it names none."""
    return keys.unescaped(pool.decode().partition(":")[2].rpartition("@")[0])


def subscription(pool: bytes = b"", whose: bytes = b"") -> tuple[str, str]:
    """Give what a script says of a subscription: the collection that it is to, and its name where its JID may have several."""
    return collection(pool), above(pool.decode(), whose.decode()) if pool and whose else whose.decode()


def below(pool: str, whose: str) -> str:
    """Name in the leaves a subscription that `whose` names in the coordinator."""
    return str((int(whose) + int(pool.partition(":")[0])) % _NAMES)


def above(pool: str, whose: str) -> str:
    """Name in the coordinator a subscription that `whose` names in the leaves."""
    return str((int(whose) - int(pool.partition(":")[0])) % _NAMES)


def token_text(token: int | None) -> str:
    """Write a token as scripts compare it; the empty string means none was given."""
    return "" if token is None else str(token)
