"""Pages of a list (XEP-0059): parses requests for a page, and writes its place in the list. Must not know what is listed."""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.pages import Page
from broker.model.problems import MalformedRequest, Problem
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes
from frontends.xmpp.xml.text import escape

SET: Final = f"{{{ns.RSM}}}set"
_AMBIGUOUS: Final = "a page has only one of after, before and index"


def asks_for_page(iq: Element) -> bool:
    """Tell whether a request asks for a page."""
    return iq.find(f"*/{SET}") is not None


def read(parent: Element, most: int) -> Page:
    """Parse which page a request asks for; by default the first of `most` entries."""
    wanted = parent.find(SET)
    if wanted is None:
        return Page(most)
    limit = _number(wanted, "max")
    after, before, index = _text(wanted, "after"), _text(wanted, "before"), _number(wanted, "index")
    # An empty `after` means the first page (XEP-0059 §2.2).
    after = after or None
    if sum(each is not None for each in (after, before, index)) > 1:
        raise MalformedRequest(Problem.BAD_REQUEST, _AMBIGUOUS)
    # No list is that long, and Lua counts exactly up to there.
    first = None if index is None else min(index, 10**9)
    return Page(most if limit is None else min(limit, most), after, before, first)


def write_page(ends: tuple[str, str] | None, count: int, index: int | None) -> str:
    """Write the place of a page by its first and last entry; `index` None where counting would be expensive.

    The count has no attributes, because its schema has none (XEP-0059 §6).
    """
    inside = ""
    if ends is not None:
        number = "" if index is None else f" index='{index}'"
        inside = f"<first{number}>{escape(ends[0])}</first><last>{escape(ends[1])}</last>"
    return f"<set xmlns='{ns.RSM}'>{inside}<count>{count}</count></set>"


def _text(wanted: Element, name: str) -> str | None:
    found = wanted.find(f"{{{ns.RSM}}}{name}")
    return None if found is None else found.text or ""


def _number(wanted: Element, name: str) -> int | None:
    text = _text(wanted, name)
    if text is None:
        return None
    number = attributes.number_of(text.strip())
    if number is None:
        raise MalformedRequest(Problem.BAD_REQUEST, f"{name} must be a whole number of at least 0")
    return number
