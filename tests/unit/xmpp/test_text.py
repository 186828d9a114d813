"""Hand-written XML holds any text that other doors may bring."""

from xml.etree import ElementTree as ET

import pytest
from hypothesis import given
from hypothesis import strategies as st

from frontends.xmpp.xml.text import FORBIDDEN, escape, moment


@given(st.text())
def test_any_text_is_an_attribute_and_a_content(text: str) -> None:
    """A parser reads back the same text, with U+FFFD for what XML cannot hold."""
    written = escape(text)
    element = ET.fromstring(f"<a k='{written}' l=\"{written}\">{written}</a>")
    expected = FORBIDDEN.sub("\ufffd", text)
    assert (element.get("k"), element.get("l"), element.text or "") == (expected, expected, expected)


@pytest.mark.parametrize(
    ("since_1970_ms", "written"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (1_700_000_000_005, "2023-11-14T22:13:20.005Z"),
        (4_102_444_799_999, "2099-12-31T23:59:59.999Z"),
    ],
)
def test_moments_are_utc(since_1970_ms: int, written: str) -> None:
    """A time is written in UTC with milliseconds (XEP-0082 §3.2)."""
    assert moment(since_1970_ms) == written
