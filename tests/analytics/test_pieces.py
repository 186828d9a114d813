"""However a stream is split and distributed, each id is in exactly one piece."""

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from broker.analytics.source.offsets import MOST, START, Id, Offset
from broker.analytics.source.pieces import Piece, Sized, cut, pack
from broker.analytics.source.plan import begin, deal, size
from broker.analytics.source.servers import Process
from broker.analytics.source.snapshot import Bounds
from broker.journal.schema import JournalPartition

PLACE = JournalPartition("jobs", "ab12", 0)
IDS = st.builds(Id, st.integers(0, 10_000), st.one_of(st.integers(0, 3), st.integers(MOST - 2, MOST)))


def inside(piece: Piece, at: Id) -> bool:
    """Return whether a read of the piece would return an entry of this id."""
    return piece.after < at <= piece.upto


@given(IDS, IDS, st.integers(0, 5_000), st.integers(1, 700), st.lists(IDS, max_size=20))
def test_cut(one: Id, other: Id, rows: int, most: int, ids: list[Id]) -> None:
    """Parts follow each other without a gap; only the first knows how many entries were before it."""
    after, upto = min(one, other), max(one, other).next()
    parts = [sized.piece for sized in cut(Sized(Piece(PLACE, "key", after, upto, 7), rows), most)]
    assert (parts[0].after, parts[-1].upto) == (after, upto)
    assert all(left.upto == right.after < right.upto for left, right in pairwise(parts))
    assert [part.before for part in parts] == [7] + [None] * (len(parts) - 1)
    for at in [*ids, after, after.next(), upto]:
        assert sum(inside(part, at) for part in parts) == (after < at <= upto)


@given(st.lists(st.integers(0, 1_000), max_size=30), st.integers(1, 8))
def test_pack(rows: list[int], tasks: int) -> None:
    """Every piece is distributed once, and no task has much more than another."""
    pieces = [Sized(Piece(PLACE, f"key{number}", START, Id(1), 0), many) for number, many in enumerate(rows)]
    hands = pack(pieces, tasks)
    assert sorted(piece for hand in hands for piece in hand) == sorted(piece for piece, _ in pieces)
    assert len(hands) == min(tasks, len(rows))
    counts = [len(hand) for hand in hands]
    assert not counts or max(counts) <= 2 * min(counts) + 1


@given(st.lists(st.tuples(st.integers(0, 2), st.integers(0, 600_000)), min_size=1, max_size=12), st.integers(1, 9))
def test_deal(streams: list[tuple[int, int]], least: int) -> None:
    """Each task reads from one process; each stream is read completely; large ones are shared."""
    sized = []
    for number, (port, rows) in enumerate(streams):
        place = JournalPartition("jobs", "ab12", number)
        bounds = Bounds(Process("host", port), place, f"key{number}", Id(1), Id(1_000_000), rows, rows)
        sized.append((bounds.process, size(begin(bounds, Offset(START)), bounds)))
    works = deal(sized, least)
    for process, whole in sized:
        mine = sorted(
            piece for work in works if work.process == process for piece in work.pieces if piece.key == whole.piece.key
        )
        assert (mine[0].after, mine[-1].upto) == (whole.piece.after, whole.piece.upto)
        assert all(left.upto == right.after for left, right in pairwise(mine))
    total = sum(rows for _, rows in streams)
    assert len(works) >= total // 250_000 // 2
