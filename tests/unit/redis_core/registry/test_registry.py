"""The registry: each command has one row, and the default is refusal."""

from dataclasses import dataclass, is_dataclass
from typing import get_args

from broker.model.commands import Command, admin, items, log, nodes, schedules, subscriptions
from broker.model.names import Jid
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.problems import Problem
from broker.model.results import Refused
from broker.redis_core.commands.internal import Internal, PartitionCommand
from broker.redis_core.core import RedisCore
from broker.redis_core.registry import authorization as may
from broker.redis_core.registry.partitioner import PartitionChoice
from broker.redis_core.registry.rows import ROWS, Row, raise_unaddressed, refusal
from broker.settings import Settings


@dataclass(frozen=True, slots=True)
class Forgotten:
    """A command that has no row."""

    node: str
    sender: Jid


def test_is_total() -> None:
    """Each command of a door or the core has a row, and nothing else has one."""
    assert ROWS.keys() == {*get_args(Command), *get_args(PartitionCommand)}
    found = [each for part in (admin, items, log, nodes, schedules, subscriptions) for each in vars(part).values()]
    modelled = [each for each in found if is_dataclass(each) and each.__module__.startswith("broker.model.commands")]
    assert set(modelled) == set(get_args(Command))


def test_each_is_carried_out() -> None:
    """Each command has a script, a handler, or parts that have; the core finds the handler of each row that has one."""
    assert all(row.call or row.handler or row.part for row in ROWS.values())
    core = RedisCore(Settings.model_validate({"xmpp_domain": "q.x", "xmpp_secret": "s"}), None)
    assert core._work.keys() == {kind for kind, row in ROWS.items() if row.handler}


def test_each_is_judged() -> None:
    """P3: each command to a partition is authorized; only the core's own commands are not."""
    assert {kind for kind, row in ROWS.items() if row.internal} == set(get_args(Internal))
    unjudged = {kind for kind, row in ROWS.items() if row.judge is may.nobody and not row.internal}
    # Parts are authorized one by one, and handlers of commands on several nodes decide by something else.
    assert all(ROWS[kind].call is None and (ROWS[kind].handler or ROWS[kind].part) for kind in unjudged)


def test_several_answers_become_one() -> None:
    """A command to all partitions has a merge."""
    assert all(row.merge for row in ROWS.values() if row.partition in {PartitionChoice.ALL, PartitionChoice.DEPARTURE})


def test_default_is_refused() -> None:
    """An empty row allows nobody and has no partition; a command without a row is refused."""
    assert Row().judge is may.nobody and Row().partition is raise_unaddressed and Row().call is None
    owner = NodeRecord("n", "i", 1, NodeConfig(), {Jid("me@x"): Affiliation.OWNER})
    refused = refusal(Forgotten("n", Jid("me@x/1")), owner)  # type: ignore[arg-type]
    assert refused is not None and refused.problem is Problem.FORBIDDEN


async def test_core_refuses_what_has_no_row() -> None:
    """A command without a row is answered, and nothing goes to Redis."""
    core = RedisCore(Settings.model_validate({"xmpp_domain": "q.x", "xmpp_secret": "s"}), None)
    node = core.router("n")
    node.cache.store_record(NodeRecord("n", "i", 1, NodeConfig(), {}))
    result = await core.ask(Forgotten("n", Jid("me@x/1")))  # type: ignore[arg-type]
    assert isinstance(result, Refused) and result.problem is Problem.UNAVAILABLE
