"""Outcomes of commands, refusals among them. Values only; must not know how a wire writes an outcome."""

from broker.model.frozen import frozen
from broker.model.problems import Problem
from broker.model.results.admin import *
from broker.model.results.admin import AdminResult
from broker.model.results.items import *
from broker.model.results.items import ItemResult, Received, Retracted
from broker.model.results.log import *
from broker.model.results.log import LogResult
from broker.model.results.nodes import *
from broker.model.results.nodes import NodeResult
from broker.model.results.schedules import *
from broker.model.results.schedules import ScheduleResult
from broker.model.results.subscriptions import *
from broker.model.results.subscriptions import SubscriptionResult, Unaffiliated


@frozen
class Refused:
    """The command changed nothing; `detail` is a sentence for people. It may succeed after `wait_ms`, 0 if nobody knows."""

    problem: Problem
    detail: str = ""
    wait_ms: int = 0


@frozen
class Done:
    """The command took effect and returns nothing."""


@frozen
class AcknowledgedAndReceived:
    """What became of an acknowledgement, and what was then locked by the receive that it asked for."""

    outcome: Retracted | Refused
    received: Received | Refused


Result = (
    Refused
    | Done
    | AcknowledgedAndReceived
    | ItemResult
    | SubscriptionResult
    | LogResult
    | NodeResult
    | ScheduleResult
    | AdminResult
)


def refusal_of(result: Result) -> Refused | None:
    """Return why a command was refused, None if it was not; one that changes affiliations is answered with more than that."""
    if isinstance(result, Unaffiliated):
        return Refused(result.problem, result.detail)
    return result if isinstance(result, Refused) else None
