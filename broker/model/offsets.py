"""Offsets: the external names of places in the log (EX6), and the start positions of readers. Pure text rules.

All offsets have the same length, so texts sort in the order of the log (E18): milliseconds and sequence of the position, twenty
digits each, then the partition's number, then a checksum over these and the node's incarnation. A reader must not interpret
an offset: one of another node or incarnation, or a made-up one, fails the check (E17).
"""

import hashlib
import re
from typing import Final

from broker.model.names import Partition
from broker.model.problems import MalformedRequest, Problem

EARLIEST: Final = "@earliest"
LATEST: Final = "@latest"

_OFFSET: Final = re.compile(r"([0-9]{20})([0-9]{20})([0-9]{4})([0-9a-f]{8})", re.ASCII)
_MOST: Final = 2**64 - 1
"""Largest number in either part of a Redis stream id."""
_MOMENT: Final = re.compile(r"[0-9]{1,15}", re.ASCII)


def write_offset(partition: Partition, position: str) -> str:
    """Return the offset of a position."""
    ms, _, seq = position.partition("-")
    plain = f"{int(ms):020d}{int(seq):020d}{partition.number:04d}"
    return plain + _check(plain, partition)


def read(text: str, partition: Partition) -> str:
    """Return the position of an offset; raises MalformedRequest unless it belongs to this partition."""
    found = _parse_offset(text)
    if found[4] != _check(text[:-8], partition):
        raise MalformedRequest(Problem.OFFSET_NOT_FOUND, "the offset does not belong to this node and partition")
    ms, seq = int(found[1]), int(found[2])
    if ms > _MOST or seq > _MOST:
        raise MalformedRequest(Problem.OFFSET_NOT_FOUND, "the offset lies in the future")
    return f"{ms}-{seq}"


def read_partition(start: str) -> int | None:
    """Return the partition number in a start offset; None when the start is not an offset."""
    if start in {EARLIEST, LATEST} or _MOMENT.fullmatch(start):
        return None
    return int(_parse_offset(start.removeprefix(">"))[3])


def write_start(start: str, partition: Partition) -> str:
    """Return a start as operations read it: a word, `=POSITION` (from there on), `>POSITION` (after it) or `tMS`."""
    if start in {EARLIEST, LATEST}:
        return start
    if _MOMENT.fullmatch(start):
        return f"t{int(start)}"
    kind = ">" if start.startswith(">") else "="
    return kind + read(start.removeprefix(">"), partition)


def _parse_offset(text: str) -> re.Match[str]:
    found = _OFFSET.fullmatch(text)
    if found is None:
        raise MalformedRequest(
            Problem.OFFSET_INVALID,
            f"an offset as the service gave it, > and an offset, {EARLIEST}, {LATEST}, a time, or ms since 1970",
        )
    return found


def _check(plain: str, partition: Partition) -> str:
    # Guards against mistakes, not against forgers, who could only read what they may read anyway.
    return hashlib.blake2b(f"{plain} {partition}".encode(), digest_size=4).hexdigest()
