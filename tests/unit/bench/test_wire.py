"""The load's client finds every tag once, however the bytes come in pieces."""

import re

import pytest

from bench.doors.wire import Wire

_STREAM = b"<iq type='result' id='p1'/><message to='a'><lock item='7' token='9'/></message><iq type='result' id='p2'/>"


@pytest.mark.parametrize("size", range(1, len(_STREAM) + 1))
async def test_pieces(size: int) -> None:
    """A tag that is cut anywhere is seen whole, once and in its place."""
    heard: list[bytes] = []
    wire = Wire(
        re.compile(rb"<(?:iq [^>]*id='(\w+)'|lock [^>]*item='(\w+)')[^>]*>"), lambda found: heard.append(found[0])
    )
    for first in range(0, len(_STREAM), size):
        wire.data_received(_STREAM[first : first + size])
    assert heard == [b"<iq type='result' id='p1'/>", b"<lock item='7' token='9'/>", b"<iq type='result' id='p2'/>"]
