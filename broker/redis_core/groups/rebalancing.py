"""Which partitions change hands so that the members of a group have them evenly. Pure; must not know who does it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from broker.model.groups import spread
from broker.redis_core.commands.internal import EPOCH_NEXT, AcquirePartition
from broker.redis_core.records.group_members import Member, PartitionOwnership


@dataclass(frozen=True, slots=True)
class Move:
    """A partition that a member is to have, or (`given` False) is to have no more, for want of credit."""

    member: Member
    standing: PartitionOwnership
    given: bool = True


def moves(members: Mapping[str, Member], standings: Sequence[PartitionOwnership]) -> list[Move]:
    """Give what has to be handed over, and to whom, so that each group's members have its partitions evenly."""
    found = []
    for group in sorted({member.group for member in members.values()}):
        most = {name: member.most for name, member in members.items() if member.group == group}
        # What one who named it owns is not for others, nor what another group has (E26).
        theirs = {
            each.partition: each for each in standings if not each.subid or (each.subid in most and each.group == group)
        }
        given = spread(most, {number: each.subid or None for number, each in theirs.items()})
        for number, standing in theirs.items():
            name = given.get(number)
            if name is not None and name != standing.subid:
                found.append(Move(members[name], standing))
            elif name is None and standing.subid:
                found.append(Move(members[standing.subid], standing, given=False))
    return found


def handing_over(node: str, move: Move) -> AcquirePartition:
    """Let the member have it, if it still stands as the move was computed from."""
    member, standing = move.member, move.standing
    return AcquirePartition(
        node,
        member.jid,
        member.jid,
        member.share,
        member.qos,
        member.group,
        EPOCH_NEXT,
        standing.partition,
        standing.fence,
        "moved",
    )
