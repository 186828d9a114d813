"""Plans which partitions change owners, so that each group's members have equally many, and with which share of credit.

Pure; must not know who carries it out.
"""

from collections.abc import Mapping, Sequence

from broker.model.frozen import frozen
from broker.model.nodes.groups import assign_evenly
from broker.redis_core.commands.internal import EPOCH_NEXT, AcquirePartition
from broker.redis_core.operations.operation import subid
from broker.redis_core.records.group_members import Member, PartitionOwnership


@frozen
class Move:
    """A partition that a member is to acquire, or (`acquires` False) to release for want of credit."""

    member: Member
    ownership: PartitionOwnership
    acquires: bool = True


def plan_rebalance(members: Mapping[str, Member], ownerships: Sequence[PartitionOwnership]) -> list[Move]:
    """Return the moves that spread each group's partitions evenly over its members."""
    found = []
    for group in sorted({member.group for member in members.values()}):
        most = {name: member.most for name, member in members.items() if member.group == group}
        # Partitions that were acquired by name, or that another group owns, stay where they are (E26).
        theirs = {
            each.partition: each
            for each in ownerships
            if not each.subid or (each.subid in most and each.group == group)
        }
        assigned = assign_evenly(most, {number: each.subid or None for number, each in theirs.items()})
        for number, ownership in theirs.items():
            name = assigned.get(number)
            if name is not None and name != ownership.subid:
                found.append(Move(members[name], ownership))
            elif name is None and ownership.subid:
                found.append(Move(members[ownership.subid], ownership, acquires=False))
    return found


def find_own_moves(members: Mapping[str, Member], ownerships: Sequence[PartitionOwnership]) -> list[Move]:
    """Return the moves that give members, with other shares, what they own in their groups already."""
    return [
        Move(members[each.subid], each)
        for each in ownerships
        if each.subid in members and each.group == members[each.subid].group
    ]


def find_changed(planned: Sequence[Move], members: Mapping[str, Member]) -> dict[str, Member]:
    """Return the members whose membership has changed since acquisitions of theirs were planned."""
    moved = {subid(move.member.jid): move.member for move in planned if move.acquires}
    return {name: members[name] for name, member in moved.items() if members.get(name, member) != member}


def acquisition(node: str, move: Move) -> AcquirePartition:
    """Turn a move into a command that only succeeds while the partition's fence is still the same."""
    member, ownership = move.member, move.ownership
    return AcquirePartition(
        node,
        member.jid,
        member.jid,
        member.share,
        member.sending,
        member.group,
        EPOCH_NEXT,
        ownership.partition,
        ownership.fence,
        "moved",
        alone=True,
    )
