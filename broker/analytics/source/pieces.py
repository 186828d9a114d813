"""Cuts ranges of streams into tasks of about equal size. Pure arithmetic on ids; must not know Redis or Spark.

Redis cannot find the middle of a stream, so it is cut by time, as if entries arrived evenly.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.analytics.source.offsets import MOST, Id
from broker.journal.schema import JournalPartition

TASK_ROWS: Final = 250_000
"""With fewer rows, starting a task costs more than its read."""


class Piece(NamedTuple):
    """A range of one stream, `after` one id and up to another; `before` counts the entries up to `after` (None: unknown)."""

    partition: JournalPartition
    key: str
    after: Id
    upto: Id
    before: int | None


class Sized(NamedTuple):
    """A piece and an estimate of its rows."""

    piece: Piece
    rows: int


def cut(sized: Sized, most: int) -> list[Sized]:
    """Cut a piece into disjoint parts of about `most` rows that together cover it."""
    piece, rows = sized
    first, last = piece.after.next().ms, piece.upto.ms
    parts = max(1, min(-(-rows // most), last - first + 1))
    # Each part but the last ends with the end of a millisecond.
    ends = [Id(first + (last - first + 1) * number // parts - 1, MOST) for number in range(1, parts)]
    starts = [piece.after, *ends]
    return [
        Sized(
            piece._replace(after=after, upto=upto, before=piece.before if after == piece.after else None), rows // parts
        )
        for after, upto in zip(starts, [*ends, piece.upto], strict=True)
    ]


def pack(pieces: Iterable[Sized], tasks: int) -> list[Sequence[Piece]]:
    """Distribute pieces over at most `tasks` tasks, the largest first, each to the task with the fewest rows."""
    loads: list[tuple[int, list[Piece]]] = [(0, []) for _ in range(tasks)]
    for piece, rows in sorted(pieces, key=lambda sized: (-sized.rows, sized.piece)):
        number = min(range(tasks), key=lambda number: loads[number][0])
        # A piece costs a few round trips even when it has no rows.
        loads[number] = (loads[number][0] + rows + 1_000, [*loads[number][1], piece])
    return [dealt for _, dealt in loads if dealt]
