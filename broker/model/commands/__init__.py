"""What may be asked of the core, in the imperative. Values only: no defaults that hide a decision of the asker's.

`sender` is always the full JID that the asker's server vouched for. `request` names one request of that sender, so that its
replay is recognised (Q27); the empty string names none. `partition` is where the item is, else it is looked for.
"""

from broker.model.commands.admin import Disconnect, Frontends, Overview, Release, ShowHistory, Survey, Transfer
from broker.model.commands.items import (
    Bounce,
    Browse,
    Confirm,
    Deliver,
    Fetch,
    Hold,
    Locks,
    Publish,
    Redeem,
    Renew,
    Reserve,
    Retract,
    Unlock,
)
from broker.model.commands.log import Bind, Commit, Partitions, Read, Reading, Unbind
from broker.model.commands.nodes import (
    Associate,
    Children,
    Configure,
    Declare,
    Delete,
    Describe,
    Dissociate,
    Nodes,
    Purge,
    Stats,
)
from broker.model.commands.subscriptions import (
    Adjust,
    Affiliate,
    Affiliations,
    Approve,
    Keep,
    ListPending,
    ListSubscribers,
    ManageSubscribers,
    Options,
    Presence,
    SendPending,
    Subscribe,
    Subscriptions,
    Unsubscribe,
)

__all__ = [
    "Adjust",
    "Affiliate",
    "Affiliations",
    "Approve",
    "Associate",
    "Bind",
    "Bounce",
    "Browse",
    "Children",
    "Command",
    "Commit",
    "Configure",
    "Confirm",
    "Declare",
    "Delete",
    "Deliver",
    "Describe",
    "Disconnect",
    "Dissociate",
    "Fetch",
    "Frontends",
    "Hold",
    "Keep",
    "ListPending",
    "ListSubscribers",
    "Locks",
    "ManageSubscribers",
    "Nodes",
    "Options",
    "Overview",
    "Partitions",
    "Presence",
    "Publish",
    "Purge",
    "Read",
    "Reading",
    "Redeem",
    "Release",
    "Renew",
    "Reserve",
    "Retract",
    "SendPending",
    "ShowHistory",
    "Stats",
    "Subscribe",
    "Subscriptions",
    "Survey",
    "Transfer",
    "Unbind",
    "Unlock",
    "Unsubscribe",
]

Command = (
    Publish
    | Hold
    | Deliver
    | Reserve
    | Redeem
    | Retract
    | Unlock
    | Renew
    | Locks
    | Fetch
    | Subscribe
    | Reading
    | Partitions
    | Keep
    | Adjust
    | Options
    | Unsubscribe
    | Subscriptions
    | Affiliations
    | ListSubscribers
    | ManageSubscribers
    | Approve
    | ListPending
    | SendPending
    | Presence
    | Bounce
    | Confirm
    | Browse
    | Declare
    | Configure
    | Describe
    | Affiliate
    | Associate
    | Dissociate
    | Children
    | Purge
    | Delete
    | Stats
    | Nodes
    | Survey
    | Transfer
    | Release
    | Overview
    | ShowHistory
    | Frontends
    | Disconnect
)
