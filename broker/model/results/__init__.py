"""Outcomes of commands, refusals among them. Values only; must not know how a wire writes an outcome."""

from broker.model.frozen import frozen
from broker.model.problems import Problem
from broker.model.results.admin import (
    AdminResult,
    Disconnected,
    FrontendList,
    FrontendStatus,
    History,
    InspectedItems,
    MovedItems,
    Overviewed,
    QuotaList,
    Released,
    Sample,
    Summary,
)
from broker.model.results.items import (
    Browsed,
    Cancelled,
    Ended,
    HeldItem,
    HeldLocks,
    ItemResult,
    Published,
    Received,
    Renewed,
    Reserved,
    Retracted,
    RetractedBatch,
    Unlocked,
)
from broker.model.results.log import Bound, Event, Extents, LogResult, LogStart, Replay
from broker.model.results.nodes import Counted, Declared, Described, Listing, NodeResult, Purged
from broker.model.results.schedules import Scheduled, ScheduleList, ScheduleResult
from broker.model.results.subscriptions import (
    AffiliationList,
    Managed,
    OwnershipsRenewed,
    Subscribed,
    SubscriptionList,
    SubscriptionResult,
    Unaffiliated,
    Unsubscribed,
)

__all__ = [
    "AffiliationList",
    "Bound",
    "Browsed",
    "Cancelled",
    "Counted",
    "Declared",
    "Described",
    "Disconnected",
    "Done",
    "Ended",
    "Event",
    "Extents",
    "FrontendList",
    "FrontendStatus",
    "HeldItem",
    "HeldLocks",
    "History",
    "InspectedItems",
    "Listing",
    "LogStart",
    "Managed",
    "MovedItems",
    "Overviewed",
    "OwnershipsRenewed",
    "Published",
    "Purged",
    "QuotaList",
    "Received",
    "Refused",
    "Released",
    "Renewed",
    "Replay",
    "Reserved",
    "Result",
    "Retracted",
    "RetractedBatch",
    "Sample",
    "ScheduleList",
    "Scheduled",
    "Subscribed",
    "SubscriptionList",
    "Summary",
    "Unaffiliated",
    "Unlocked",
    "Unsubscribed",
]


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
