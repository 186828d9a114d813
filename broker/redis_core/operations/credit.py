"""Calls about credit that several partitions share: reports to a coordinator, and the use of its grants."""

from typing import Any

from broker.model.nodes import NodeRecord
from broker.model.results import Done, Refused
from broker.redis_core.commands.credit import (
    CreditUsage,
    GrantCredit,
    Granted,
    HandOut,
    HeldCredit,
    Holding,
    Holdings,
    ListHoldings,
    ListUsage,
)
from broker.redis_core.operations.operation import Call, ScriptReply, Values, refuse


def _write_holding(each: Holding) -> str:
    return f"{each.number} {each.subid} {each.version} {each.held} {each.last} {each.state} {int(each.full)}"


def _grant_row(command: GrantCredit, _record: NodeRecord) -> Values:
    wants = command.demand
    return {
        "holdings": " ".join(map(_write_holding, command.holdings)),
        "wants": f"{wants.number} {wants.version} {wants.wanted} {wants.whom}" if wants else "",
        "registered": " ".join(command.registered or ()),
        "gone": " ".join(f"{number} {subid}" for number, subid in command.gone),
    }


def _read_granted(_command: GrantCredit, reply: list[Any], _record: NodeRecord) -> Granted | Refused:
    return Granted(reply[1]) if reply[0] == b"ok" else refuse(reply[0])


def _hand_out_row(command: HandOut, _record: NodeRecord) -> Values:
    return {"subid": command.subid, "grant": command.grant, "amount": command.amount, "pool": command.pool}


def _read_handed_out(_command: HandOut, _reply: list[Any], _record: NodeRecord) -> Done:
    # The credit report tells what was handed out.
    return Done()


def _holdings_rows(command: ListHoldings, _record: NodeRecord) -> list[Values]:
    return [{"subid": subid} for subid in command.subids]


def _holdings(_command: ListHoldings, reply: ScriptReply, _record: NodeRecord) -> Holdings:
    rows, past, version = reply.rows
    found = tuple(HeldCredit(subid.decode(), held, last, pool.decode()) for subid, held, last, pool in rows)
    return Holdings(found, past.decode(), version)


def _usage(_command: ListUsage, reply: ScriptReply, _record: NodeRecord) -> CreditUsage:
    scan, pairs = reply.rows
    return CreditUsage(scan.decode(), tuple((subid.decode(), number, bool(shut)) for subid, number, shut in pairs))


grant_credit = Call("grant_credit", _read_granted, row=_grant_row)
hand_out = Call("hand_out", _read_handed_out, row=_hand_out_row)
list_holdings = Call("list_holdings", _holdings, lambda command, _record: {"after": command.past}, rows=_holdings_rows)
list_usage = Call("list_usage", _usage, lambda command, _record: {"scan": command.scan})
