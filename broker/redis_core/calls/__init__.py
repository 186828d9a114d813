"""One call per operation: command -> arguments of its script, reply -> result. Pure; knows no connection.

A call that has a `row` is batched: commands of one batch share the fixed arguments and each has its own row and result.
"""

from broker.model import commands, oversight, reading
from broker.redis_core.calls.call import Call
from broker.redis_core.calls.items import (
    bounce,
    browse,
    confirm,
    dead_letter,
    find,
    handed,
    publish,
    renew,
    retract,
    unlock,
)
from broker.redis_core.calls.owned import admit, release, survey, transfer
from broker.redis_core.calls.owners import attach, detach, keep
from broker.redis_core.calls.streams import bind, commit, extent, follow, read, unbind
from broker.redis_core.calls.sweeps import expire, purge, resend, stats, subscribers
from broker.redis_core.calls.workers import (
    adjust,
    deposit,
    fetch,
    join,
    leave,
    locks,
    options,
    reach,
    recount,
    settle,
    sit,
    subscribe,
    unsubscribe,
    withdraw,
)
from broker.redis_core.credit import Deposit, Join, Reach, Recount, Settle, Sit, Withdraw
from broker.redis_core.internal import (
    Attach,
    DeadLetter,
    Detach,
    Expire,
    Extent,
    FetchPart,
    Find,
    Follow,
    Handed,
    KeepOne,
    Leave,
    Resend,
    Subscribers,
)
from broker.redis_core.parts import Admit, SurveyPart, TransferPart

OF: dict[type, Call] = {
    commands.Publish: publish,
    commands.Retract: retract,
    commands.Unlock: unlock,
    commands.Renew: renew,
    commands.Browse: browse,
    commands.Bounce: bounce,
    commands.Confirm: confirm,
    commands.Subscribe: subscribe,
    reading.Commit: commit,
    reading.Read: read,
    reading.Bind: bind,
    reading.Unbind: unbind,
    commands.Adjust: adjust,
    commands.Options: options,
    commands.Unsubscribe: unsubscribe,
    commands.Locks: locks,
    commands.Purge: purge,
    oversight.Release: release,
    commands.Stats: stats,
    Follow: follow,
    Extent: extent,
    FetchPart: fetch,
    DeadLetter: dead_letter,
    Admit: admit,
    SurveyPart: survey,
    TransferPart: transfer,
    Find: find,
    Handed: handed,
    Leave: leave,
    Attach: attach,
    Detach: detach,
    KeepOne: keep,
    Recount: recount,
    Sit: sit,
    Join: join,
    Reach: reach,
    Settle: settle,
    Withdraw: withdraw,
    Deposit: deposit,
    Expire: expire,
    Resend: resend,
    Subscribers: subscribers,
}
"""The call of each command that one partition's script carries out."""

__all__ = ["OF", "Call"]
