"""Outcomes of commands, refusals among them. Values only; must not know how a wire writes an outcome."""

from broker.model.results.admin import (
    AdminResult,
    Disconnected,
    FrontendList,
    FrontendStatus,
    History,
    Overviewed,
    Released,
    Sample,
    Summary,
    Surveyed,
    Transferred,
)
from broker.model.results.items import (
    Browsed,
    Fetched,
    Held,
    HeldItem,
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
    Kept,
    Managed,
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
    "Held",
    "HeldItem",
    "History",
    "Kept",
    "Listing",
    "Managed",
    "Overviewed",
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
    "Surveyed",
    "Transferred",
    "Unaffiliated",
    "Unlocked",
    "Unsubscribed",
]

Result = Refused | Done | ItemResult | SubscriptionResult | LogResult | NodeResult | AdminResult
