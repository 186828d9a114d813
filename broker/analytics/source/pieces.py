"""Ranges of streams cut into tasks of about equal size. Pure arithmetic on ids; must not know Redis or Spark.

A stream cannot be asked for its middle, so it is cut by time, as if entries came evenly.
"""

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from broker.analytics.source.offsets import MOST, Id
from broker.journal.schema import Place

TASK_ROWS: Final = 250_000
"""Fewer, and starting a task costs more than its read."""


class Piece(NamedTuple):
    """A part of one stream, `after` one id and up to another; `before` counts the entries up to `after`, None: nobody knows."""

    place: Place
    key: str
    after: Id
    upto: Id
    before: int | None


class Sized(NamedTuple):
    """A piece and about how many rows it has."""

    piece: Piece
    rows: int


def cut(sized: Sized, most: int) -> list[Sized]:
    """Cut a piece into parts of about `most` rows; together they are the piece, and no two have an id in common."""
    piece, rows = sized
    first, last = piece.after.next().ms, piece.upto.ms
    parts = max(1, min(-(-rows // most), last - first + 1))
    # Each but the last ends with the end of a millisecond.
    ends = [Id(first + (last - first + 1) * number // parts - 1, MOST) for number in range(1, parts)]
    starts = [piece.after, *ends]
    return [
        Sized(
            piece._replace(after=after, upto=upto, before=piece.before if after == piece.after else None), rows // parts
        )
        for after, upto in zip(starts, [*ends, piece.upto], strict=True)
    ]


def pack(pieces: Iterable[Sized], tasks: int) -> list[Sequence[Piece]]:
    """Deal pieces out to at most so many tasks, the largest first and each to the one that has least."""
    hands: list[tuple[int, list[Piece]]] = [(0, []) for _ in range(tasks)]
    for piece, rows in sorted(pieces, key=lambda sized: (-sized.rows, sized.piece)):
        number = min(range(tasks), key=lambda number: hands[number][0])
        # A piece costs a few round trips even when it has no rows.
        hands[number] = (hands[number][0] + rows + 1_000, [*hands[number][1], piece])
    return [dealt for _, dealt in hands if dealt]
