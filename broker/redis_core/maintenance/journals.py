"""Reads the ends of journals for people who watch. Must not know what a record means; reports read whole journals elsewhere."""

from collections.abc import Mapping

from broker import keys
from broker.journal.schema import record
from broker.model.names import Partition
from broker.redis_core.redis_client.client import Line, Server

Record = tuple[str, dict[str, str | int]]
"""A record with its position."""


async def read_journals(server: Server, after: Mapping[Partition, str], most: int) -> dict[Partition, list[Record]]:
    """Read up to `most` records of each partition that follow a position; with an empty one, the newest, in their order."""
    lines: list[Line] = []
    for partition, position in after.items():
        key = keys.of_partition("journal", partition)
        newest: Line = ("XREVRANGE", key, "+", "-", "COUNT", most)
        lines.append(("XRANGE", key, f"({position}", "+", "COUNT", most) if position else newest)
    found = await server.commands(lines) if lines else []
    records = {}
    for (partition, position), entries in zip(after.items(), found, strict=True):
        ordered = entries if position else reversed(entries)
        records[partition] = [(at.decode(), record(_fields(fields))) for at, fields in ordered]
    return records


def _fields(flat: list[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))
