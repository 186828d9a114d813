"""Schedules of a node: requests to make, list, pause and delete them, and their replies. Must not know when they publish."""

from typing import Final
from xml.etree.ElementTree import Element

from broker.model.commands import ListSchedules, PauseSchedule, PutSchedule, RemoveSchedule
from broker.model.items.hints import USUAL_PRIORITY
from broker.model.nodes.schedules import FIELDS, Schedule, ScheduledItem, ScheduleStatus, check_id
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Scheduled, ScheduleList
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import attributes, paging, payloads
from frontends.xmpp.stanzas import Iq, Question, expect
from frontends.xmpp.xml.text import escape

PAGE: Final = 100
"""Schedules in one answer, at most."""

_ITEMS: Final = (f"{{{ns.STANZAQ}}}item", f"{{{ns.PUBSUB}}}item")
_MADE: Final = ("id", "partition", "at", "reply", "keep", "after", "regardless", "confirm")
"""What an item of a schedule cannot say: it is published many times."""


def put(iq: Iq, asked: Element) -> Question:
    """Make or replace a schedule."""
    expect(iq, "set")
    node = attributes.node(asked)
    schedule = Schedule.read({name: asked.get(name, "") for name in FIELDS if name in asked.attrib})
    items = [each for each in asked if each.tag in _ITEMS]
    if len(items) != 1:
        raise MalformedRequest(Problem.ITEM_REQUIRED, "a schedule has one item")
    (item,) = items
    for name in _MADE:
        if item.get(name, item.get(f"{{{ns.STANZAQ}}}{name}")) is not None:
            raise MalformedRequest(
                Problem.BAD_REQUEST, f"an item of a schedule has no {name}: it is published many times"
            )
    # Without a trace: each item begins one of its own.
    envelope, size = payloads.read_payload(item)
    key, hints = attributes.group_key(item), attributes.hints(item)
    return Question(iq, PutSchedule(node, iq.sender, schedule, envelope, size, key, hints))


def listing(iq: Iq, asked: Element) -> Question:
    """List schedules, or one with its item."""
    expect(iq, "get")
    page = paging.read(asked, PAGE)
    if page.before is not None or page.index is not None:
        raise MalformedRequest(Problem.UNSUPPORTED, "schedules are listed forwards: name the last one in after")
    name = check_id(asked.get("id", "")) if "id" in asked.attrib else ""
    return Question(iq, ListSchedules(attributes.node(asked), iq.sender, page.most, page.after or "", name))


def pause(iq: Iq, asked: Element) -> Question:
    """Pause a schedule."""
    return _switch(iq, asked, paused=True)


def resume(iq: Iq, asked: Element) -> Question:
    """Resume a schedule."""
    return _switch(iq, asked, paused=False)


def _switch(iq: Iq, asked: Element, *, paused: bool) -> Question:
    expect(iq, "set")
    return Question(iq, PauseSchedule(attributes.node(asked), iq.sender, check_id(asked.get("id", "")), paused))


def remove(iq: Iq, asked: Element) -> Question:
    """Delete a schedule."""
    expect(iq, "set")
    return Question(iq, RemoveSchedule(attributes.node(asked), iq.sender, check_id(asked.get("id", ""))))


def write_schedule(node: str, outcome: Scheduled) -> bytes:
    """Write a schedule as it is now."""
    return _write_status(outcome.status, f" xmlns='{ns.STANZAQ}' node='{escape(node)}'")


def write_schedules(asked: ListSchedules, found: ScheduleList) -> bytes:
    """Write schedules, and the place of a page."""
    inside = b"".join(_write_status(each) for each in found.schedules)
    page = ""
    names = [each.schedule.id for each in found.schedules]
    if found.after or (names and asked.after):
        # The last one of a page that others follow may be one that cannot be read.
        last = found.after or names[-1]
        page = f"<set xmlns='{ns.RSM}'><first>{escape((*names, last)[0])}</first><last>{escape(last)}</last></set>"
    head = f"<schedules xmlns='{ns.STANZAQ}' node='{escape(asked.node)}'>".encode()
    return b"%b%b%b</schedules>" % (head, inside, page.encode())


def _write_status(status: ScheduleStatus, about: str = "") -> bytes:
    told = {**status.schedule.write(), **status.write_state()}
    words = "".join(f" {name.replace('_', '-')}='{escape(value)}'" for name, value in told.items())
    if status.item is None:
        return f"<schedule{about}{words}/>".encode()
    return b"%b%b</schedule>" % (f"<schedule{about}{words}>".encode(), _item(status.item))


def _item(item: ScheduledItem) -> bytes:
    hints = item.hints
    told = {
        "key": item.key,
        "delay": str(hints.delay_ms // 1000) if hints.delay_ms else "",
        "priority": str(hints.priority) if hints.priority != USUAL_PRIORITY else "",
        "ttl": str(hints.ttl_ms // 1000) if hints.ttl_ms else "",
    }
    words = "".join(f" {name}='{escape(value)}'" for name, value in told.items() if value)
    payload, headers = payloads.payload_and_headers(item.envelope, {})
    return b"<item%b>%b%b</item>" % (words.encode(), payload, headers)
