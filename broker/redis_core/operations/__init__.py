"""One call per operation: command -> arguments of its script, reply -> result. Pure; knows no connection.

A call that has a `row` is batched: commands of one batch share the fixed arguments and each has its own row and result.
"""

from broker.model import commands
from broker.redis_core.commands.admin_parts import Admit, Arrived, Handed, Letters, SurveyPart, TransferPart
from broker.redis_core.commands.credit import (
    GrantCredit,
    HandOut,
    Join,
    ListHoldings,
    ListUsage,
    Reach,
    Register,
    Reregister,
)
from broker.redis_core.commands.former import PublishIfKnown
from broker.redis_core.commands.internal import (
    Attach,
    Detach,
    Expire,
    Extent,
    FetchPart,
    Find,
    Follow,
    KeepOne,
    Leave,
    Resend,
    Subscribers,
)
from broker.redis_core.operations.admin import admit, arrived, handed, letters, release, survey, transfer
from broker.redis_core.operations.credit import grant_credit, hand_out, list_holdings, list_usage
from broker.redis_core.operations.items import (
    bounce,
    browse,
    confirm,
    find,
    publish,
    publish_if_known,
    renew,
    retract,
    unlock,
)
from broker.redis_core.operations.log import bind, commit, extent, follow, read, unbind
from broker.redis_core.operations.maintenance import expire, purge, resend, stats, subscribers
from broker.redis_core.operations.operation import Call
from broker.redis_core.operations.ownership import attach, detach, keep
from broker.redis_core.operations.subscriptions import (
    adjust,
    fetch,
    join,
    leave,
    locks,
    options,
    reach,
    register,
    reregister,
    subscribe,
    unsubscribe,
)

OF: dict[type, Call] = {
    commands.Publish: publish,
    commands.Retract: retract,
    commands.Unlock: unlock,
    commands.Renew: renew,
    commands.Browse: browse,
    commands.Bounce: bounce,
    commands.Confirm: confirm,
    commands.Subscribe: subscribe,
    commands.Commit: commit,
    commands.Read: read,
    commands.Bind: bind,
    commands.Unbind: unbind,
    commands.Adjust: adjust,
    commands.Options: options,
    commands.Unsubscribe: unsubscribe,
    commands.Locks: locks,
    commands.Purge: purge,
    commands.Release: release,
    commands.Stats: stats,
    Follow: follow,
    Extent: extent,
    FetchPart: fetch,
    Letters: letters,
    Admit: admit,
    PublishIfKnown: publish_if_known,
    SurveyPart: survey,
    TransferPart: transfer,
    Find: find,
    Handed: handed,
    Arrived: arrived,
    Leave: leave,
    Attach: attach,
    Detach: detach,
    KeepOne: keep,
    Reregister: reregister,
    Register: register,
    Join: join,
    Reach: reach,
    GrantCredit: grant_credit,
    HandOut: hand_out,
    ListHoldings: list_holdings,
    ListUsage: list_usage,
    Expire: expire,
    Resend: resend,
    Subscribers: subscribers,
}
"""The call of each command that one partition's script carries out."""

__all__ = ["OF", "Call"]
