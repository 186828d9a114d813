"""Outcomes of commands, refusals among them. Values only; must not know how a wire writes an outcome."""

from broker.model.results.admin import (
    AdminResult,
    Disconnected,
    FrontendList,
    FrontendStatus,
    History,
    InspectedItems,
    MovedItems,
    Overviewed,
    Released,
    Sample,
    Summary,
)
from broker.model.results.items import (
    Browsed,
    Fetched,
    HeldItem,
    HeldLocks,
    ItemResult,
    Published,
    Renewed,
    Reserved,
    Retracted,
    Unlocked,
)
from broker.model.results.log import Bound, Event, Extents, LogResult, Replay, Stream
from broker.model.results.nodes import Counted, Declared, Described, Listing, NodeResult, Purged
from broker.model.results.outcomes import Done, Refused
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
    "Counted",
    "Declared",
    "Described",
    "Disconnected",
    "Done",
    "Event",
    "Extents",
    "Fetched",
    "FrontendList",
    "FrontendStatus",
    "HeldItem",
    "HeldLocks",
    "History",
    "InspectedItems",
    "Listing",
    "Managed",
    "MovedItems",
    "Overviewed",
    "OwnershipsRenewed",
    "Published",
    "Purged",
    "Refused",
    "Released",
    "Renewed",
    "Replay",
    "Reserved",
    "Result",
    "Retracted",
    "Sample",
    "Stream",
    "Subscribed",
    "SubscriptionList",
    "Summary",
    "Unaffiliated",
    "Unlocked",
    "Unsubscribed",
]

Result = Refused | Done | ItemResult | SubscriptionResult | LogResult | NodeResult | AdminResult
