"""What a call is. Knows the shape that every partition script's reply has; must not know any one operation."""

import hashlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import lru_cache
from itertools import repeat
from typing import Any

from broker import keys
from broker.model.items import Delivery, LockEnded, OwnershipLost
from broker.model.names import Jid, Partition, bare
from broker.model.nodes import NodeRecord
from broker.model.options import NodeConfig
from broker.model.problems import Problem, ScriptDefect
from broker.model.qos import Stage
from broker.model.results import Refused
from broker.redis_core.commands.admin_parts import Handover
from broker.redis_core.commands.credit import CreditReport, Grant, HeldCredit

Values = Mapping[str, str | int | bytes]


def _nothing(_command: object, _record: NodeRecord) -> Values:
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
class LockOver:
    """A lock has ended, of which its subscriber is told; `expired`: by its time."""

    ended: LockEnded
    expired: bool


@dataclass(frozen=True, slots=True)
class LeaseOver:
    """The lease of a subscription is over."""

    jid: Jid
    subid: str


@dataclass(frozen=True, slots=True)
class SubscriptionOver:
    """A subscription, or what came of one through a `collection`, has ended by itself: nothing reached its subscriber."""

    jid: Jid
    collection: str


@dataclass(frozen=True, slots=True)
class LeaseFilled:
    """Items were locked for one who comes for them."""

    jid: Jid


@dataclass(frozen=True, slots=True)
class ToCount:
    """A counter of this process is to go up."""

    counter: str
    amount: int


ScriptNotice = OwnershipLost | LockOver | LeaseOver | SubscriptionOver | LeaseFilled | ToCount
"""What a script tells of its own accord."""


@dataclass(frozen=True, slots=True)
class Reply:
    """What every partition script answers after `ok`; `due_ms` 0 means that nothing is due, times are Redis's ms.

    `rows` are for the command's own call to read. `credit` is what a script that hands items out says of credit that several
    partitions share, None where none is.
    """

    rows: list[Any]
    deliveries: tuple[Delivery, ...]
    notices: tuple[ScriptNotice, ...]
    handovers: tuple[Handover, ...]
    due_ms: int
    more: bool
    token: int
    credit: CreditReport | None

    @staticmethod
    def read(reply: list[Any], partition: Partition, config: NodeConfig) -> "Reply | None":
        """Read a reply; None where the script did nothing, for it was told an old record."""
        if reply[0] != b"ok":
            return None
        _code, rows, deliveries, notices, handovers, due_ms, more, token, *told = reply
        return Reply(
            rows,
            tuple(map(_delivery, deliveries, repeat(partition), repeat(config))),
            tuple(map(_notice, notices, repeat(partition))),
            tuple(map(_handover, handovers)),
            due_ms,
            bool(more),
            token,
            _credit_report(*told),
        )


def _delivery(row: list[Any], partition: Partition, config: NodeConfig) -> Delivery:
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


def _handover(row: list[bytes]) -> Handover:
    position, to, note = row
    return Handover(position.decode(), to.decode(), note.decode())


def _notice(row: list[Any], partition: Partition) -> ScriptNotice:  # noqa: PLR0911  (a table of cases)
    kind, *values = row
    match kind, values:
        case b"lost", (jid, group, epoch, fence, reason):
            owned = (partition.number, group.decode(), int(epoch), fence, reason.decode())
            return OwnershipLost(partition.node, Jid(jid.decode()), *owned)
        case b"lapsed", (jid, whose):
            return LeaseOver(Jid(jid.decode()), whose.decode())
        case b"unsubscribed", (jid, through):
            return SubscriptionOver(Jid(jid.decode()), collection(through.decode()))
        case b"perished", (amount,):
            return ToCount("perished", amount)
        case b"fetched", (amount,):
            return ToCount("delivered", amount)
        case b"filled", (jid,):
            return LeaseFilled(Jid(jid.decode()))
        case b"unlocked" | b"ended", (jid, item, token, *told):
            ended = LockEnded(partition.node, Jid(jid.decode()), item.decode(), token, *subscription(*told))
            return LockOver(ended, expired=kind == b"unlocked")
    msg = f"a script told {kind!r}, which is no notice"
    raise ScriptDefect(msg)


def _credit_report(report: list[Any] | None = None) -> CreditReport | None:
    """Read what a script says of shared credit; None where no credit is shared."""
    if not report:
        return None
    version, wanted, since, whom, held, pools, grants = report
    return CreditReport(
        version,
        wanted,
        since.decode(),
        whom.decode() if isinstance(whom, bytes) else tuple((whose.decode(), pool.decode()) for whose, pool in whom),
        tuple(HeldCredit(whose.decode(), many, last, pool.decode(), state) for whose, many, last, pool, state in held),
        # Every other word is a number.
        tuple(pools.decode().split(" ")[::2]) if pools else (),
        tuple(Grant(int(number), whose.decode(), int(grant), amount) for number, whose, grant, amount in grants),
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


def collection(pool: str) -> str:
    """Give the name of the collection that a pool is of, as a script names it; empty when it names none."""
    return keys.unescaped(pool.partition(":")[2].rpartition("@")[0])


def subscription(pool: bytes = b"", whose: bytes = b"") -> tuple[str, str]:
    """Give what a script says of a subscription: the collection that it is to, and its name where its JID may have several."""
    through, name = pool.decode(), whose.decode()
    return collection(through), above(through, name) if through and name else name


def below(pool: str, whose: str) -> str:
    """Name in the leaves a subscription that `whose` names in the coordinator."""
    return str((int(whose) + int(pool.partition(":")[0])) % _NAMES)


def above(pool: str, whose: str) -> str:
    """Name in the coordinator a subscription that `whose` names in the leaves."""
    return str((int(whose) - int(pool.partition(":")[0])) % _NAMES)


def token_text(token: int | None) -> str:
    """Write a token as scripts compare it; the empty string means none was given."""
    return "" if token is None else str(token)
