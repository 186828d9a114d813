"""Plans a read as tasks: from bounds and options to pieces. Pure; must not know Redis or Spark."""

from collections.abc import Iterable, Mapping
from typing import NamedTuple

from broker.analytics.faults import Unreadable
from broker.analytics.source.offsets import MOST, START, Id, Offset
from broker.analytics.source.options import LATEST, Options
from broker.analytics.source.pieces import TASK_ROWS, Piece, Sized, cut, pack
from broker.analytics.source.servers import Process
from broker.analytics.source.snapshot import Bounds
from broker.journal.schema import JournalPartition


class Work(NamedTuple):
    """The pieces that one task reads from one process."""

    process: Process
    pieces: tuple[Piece, ...]


def batch(found: Mapping[JournalPartition, Bounds], options: Options) -> list[Work]:
    """Plan a read of everything between the options' bounds."""
    starts, ends = options.starting_offsets, options.ending_offsets
    times = options.starting_offsets_by_timestamp, options.ending_offsets_by_timestamp
    for offsets in (starts, ends, *times):
        missing = set() if isinstance(offsets, str) else set(offsets) - {str(partition) for partition in found}
        if missing:
            msg = f"there is no {options.stream} of {', '.join(sorted(missing))}: take it out of the offsets"
            raise Unreadable(msg)
    if starts == LATEST or (isinstance(ends, str) and ends != LATEST):
        msg = "a batch has no rows from `latest` on or up to `earliest`: name offsets, or leave the options out"
        raise Unreadable(msg)
    sized = []
    for partition, bounds in found.items():
        offset = Offset(START) if isinstance(starts, str) else starts.get(str(partition), Offset(START))
        upto = bounds.last if isinstance(ends, str) else ends.get(str(partition), Offset(bounds.last)).after
        first_ms, last_ms = options.first_ms(partition) or 0, options.last_ms(partition) or MOST
        if first_ms > last_ms:
            msg = f"{partition} would begin at {first_ms}, after its end at {last_ms}: exchange the times"
            raise Unreadable(msg)
        piece = begin(bounds, offset)
        # For a start by time, the stream gives the entries it still has. Only a start by offset demands entries.
        after = Id(first_ms).predecessor()
        if after > piece.after and after >= (bounds.first or START):
            piece = piece._replace(after=after, before=None)
        upto = min(upto, bounds.last, Id(last_ms, MOST))
        if piece.after < upto:
            sized.append((bounds.process, size(piece._replace(upto=upto), bounds)))
    return deal(sized, options.min_partitions)


def begin(bounds: Bounds, offset: Offset) -> Piece:
    """Return the piece of a stream after an offset; for START, everything the stream has."""
    first = bounds.first or bounds.last.next()
    if offset == Offset(START):
        offset = Offset(first.predecessor(), bounds.gone)
    return Piece(bounds.partition, bounds.key, offset.after, bounds.last, offset.read)


def size(piece: Piece, bounds: Bounds) -> Sized:
    """Estimate the rows of a piece, as if entries arrived evenly."""
    first = bounds.first or bounds.last
    whole = bounds.last.ms - first.ms + 1
    part = piece.upto.ms - max(piece.after.ms, first.ms) + 1
    return Sized(piece, max(0, bounds.length * min(part, whole) // whole))


def deal(sized: Iterable[tuple[Process, Sized]], least: int) -> list[Work]:
    """Distribute pieces over tasks: at least `least` of them if there are enough rows, otherwise few and large."""
    of: dict[Process, list[Sized]] = {}
    for process, each in sized:
        of.setdefault(process, []).append(each)
    rows = {process: sum(each.rows for each in pieces) for process, pieces in of.items()}
    total = sum(rows.values())
    works = []
    for process, pieces in sorted(of.items()):
        tasks = max(1, -(-rows[process] // TASK_ROWS), least * rows[process] // max(1, total))
        most = max(1, -(-rows[process] // tasks))
        works += [
            Work(process, tuple(hand)) for hand in pack((part for each in pieces for part in cut(each, most)), tasks)
        ]
    return works
