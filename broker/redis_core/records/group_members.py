"""Stored members of groups and owners of partitions. Must not know what follows from a change."""

from broker import keys
from broker.model.frozen import frozen
from broker.model.items.qos import Sending
from broker.model.names import Jid
from broker.model.nodes.nodes import MAX_SUBSCRIBERS, NodeRecord
from broker.redis_core.operations.operation import subid
from broker.redis_core.redis_client.client import Server, Value


@frozen
class Member:
    """A group member whose partitions the service assigns; it has `share` of its credit in each of them."""

    group: str
    credit: int
    share: int
    sending: Sending
    jid: Jid

    @property
    def most(self) -> int:
        """How many partitions the member can own."""
        return self.credit // self.share

    def __str__(self) -> str:
        """Return the member's line in Redis."""
        return f"{self.group} {self.credit} {self.share} {self.sending} {self.jid}"

    @staticmethod
    def parse(line: str) -> "Member":
        """Read what `str` wrote."""
        group, credit, share, sending, jid = line.split(" ", 4)
        return Member(group, int(credit), int(share), Sending.parse(sending), Jid(jid))


@frozen
class PartitionOwnership:
    """A partition's fence and owner; the subid is empty while it has none."""

    partition: int
    fence: int
    subid: str
    group: str


@frozen
class Removed:
    """What the JID was as a `member`, None for none, and how many `others` there are."""

    member: Member | None
    others: int


class GroupMembers:
    """Reads and writes members; keeps all state in Redis."""

    def __init__(self, server: Server) -> None:
        """Use `server`."""
        self._server = server

    async def members(self, node: str) -> dict[str, Member]:
        """Return the members of all groups of a node by subid."""
        found = await self._server.command("HGETALL", keys.of_node("members", node))
        return {name.decode(): Member.parse(line.decode()) for name, line in found.items()}

    async def count(self, node: str) -> int:
        """Return how many members the groups of a node have."""
        return int(await self._server.command("HLEN", keys.of_node("members", node)))

    async def member(self, node: str, jid: Jid) -> Member | None:
        """Return one member."""
        line = await self._server.command("HGET", keys.of_node("members", node), subid(jid))
        return Member.parse(line.decode()) if line else None

    async def join(self, record: NodeRecord, member: Member) -> bool:
        """Add or change a member; False when the node has no room for it or was created again."""
        members, _ = await self._change(record, "joined", member.jid, str(member))
        return members > 0

    async def remove(self, record: NodeRecord, jid: Jid) -> Removed:
        """Remove a member."""
        others, line = await self._change(record, "left", jid, "")
        return Removed(Member.parse(line.decode()) if line else None, others)

    async def remove_unchanged(self, record: NodeRecord, member: Member) -> None:
        """Remove a member, unless it has been changed by others since it was this."""
        await self._change(record, "left", member.jid, "", str(member))

    async def ownerships(self, record: NodeRecord) -> list[PartitionOwnership]:
        """Return the ownership of each partition."""
        asked = [("HMGET", keys.of_partition("meta", partition), "fence", "owner") for partition in record.partitions]
        found = []
        for number, (fence, line) in enumerate(await self._server.commands(asked)):
            # `subid lease clearing group`, as lua/lib/groups/partition_owner.lua writes it.
            whose, _lease, _clearing, group = line.decode().split(" ") if line else ("", "", "", "")
            found.append(PartitionOwnership(number, int(fence or 0), whose, group))
        return found

    async def _change(
        self, record: NodeRecord, kind: str, jid: Jid, member: str, former: str = ""
    ) -> tuple[int, bytes]:
        fixed: dict[str, Value] = {
            "incarnation": record.incarnation,
            "kind": kind,
            "subid": subid(jid),
            "member": member,
            "former": former,
            "most": MAX_SUBSCRIBERS,
        }
        names = [keys.of_node(key, record.name) for key in self._server.operations["set_group_member"].keys]
        answer = await self._server.run(self._server.write_call("set_group_member", names, fixed))
        return (answer.count, answer.member) if answer.code == b"ok" else (0, b"")
