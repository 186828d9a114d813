"""A client's part of SASL."""

import pytest

from frontends.amqp.protocol import sasl, types
from tests.doors.amqp.raw import framed

FIELDS = types.write_list([types.symbol("PLAIN"), types.binary(b"\0a@b\0c")])


@pytest.mark.parametrize(
    "descriptor", [b"\x53\x41", b"\x80\x00\x00\x00\x00\x00\x00\x00\x41", types.symbol("amqp:sasl-init:list")]
)
def test_descriptors(descriptor: bytes) -> None:
    """Part 1 §1.2: an init has its number, in any width, or its name."""
    found = sasl.init(framed(b"\x00" + descriptor + FIELDS, kind=1))
    assert found == sasl.Init("PLAIN", b"\0a@b\0c") and sasl.parse_plain(found.response) == ("", "a@b", "c")
