"""Commands to the core, in the imperative. Values only, without defaults that hide a caller's decision.

`sender` is always the full JID that the sender's server vouched for. `request` identifies a request of that sender, so that a
repeat is recognised (Q27); empty: none. `partition` is where the item is; without it the item is searched for.
"""

from broker.model.commands.admin import *
from broker.model.commands.admin import AdminCommand
from broker.model.commands.items import *
from broker.model.commands.items import ItemCommand
from broker.model.commands.log import *
from broker.model.commands.log import LogCommand
from broker.model.commands.nodes import *
from broker.model.commands.nodes import NodeCommand
from broker.model.commands.schedules import *
from broker.model.commands.schedules import ScheduleCommand
from broker.model.commands.subscriptions import *
from broker.model.commands.subscriptions import SubscriptionCommand

Command = ItemCommand | SubscriptionCommand | LogCommand | NodeCommand | ScheduleCommand | AdminCommand
