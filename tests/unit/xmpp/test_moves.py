"""Moves by ad-hoc commands: forms to batches, and progress to forms again."""

from collections.abc import Callable, Mapping
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import MoveItems
from broker.model.problems import MalformedRequest
from broker.model.results import MovedItems
from frontends.xmpp import namespaces as ns
from frontends.xmpp.errors import wire
from frontends.xmpp.stanzas import DoorAnswer, MoveBatch, Question
from tests.unit.xmpp.test_administration import ADMIN, command, reply

SCAN = "5-18446744073709551615 0 3-1"

Read = Callable[..., Question | DoorAnswer]
Fault = Callable[..., MalformedRequest]


def _move_batch(read: Read, node: str, fields: Mapping[str, str | tuple[str, ...]], more: str = "") -> MoveBatch:
    asked = read(command(node, fields, more), sender=ADMIN)
    assert isinstance(asked, MoveBatch)
    return asked


def _fields(told: ET.Element) -> dict[str, str]:
    return {
        field.get("var", ""): field.findtext(f"{{{ns.FORM}}}value", "")
        for field in told.iterfind(f"{{{ns.FORM}}}x/{{{ns.FORM}}}field")
    }


@pytest.mark.parametrize(
    ("node", "fields", "meant", "rate"),
    [
        (ns.ADMIN_REDRIVE, {"all": "1"}, MoveItems("jobs", ADMIN, None, (), "", 1), 100),
        (ns.ADMIN_REDRIVE, {"reason": "expired"}, MoveItems("jobs", ADMIN, None, (), "expired", 1), 100),
        (
            ns.ADMIN_REDRIVE,
            {"reason": "expired", "headers": ("region=eu", "", "kind=a=b", "empty=")},
            MoveItems(
                *("jobs", ADMIN, None, (), "expired", 1), headers=(("region", "eu"), ("kind", "a=b"), ("empty", ""))
            ),
            100,
        ),
        (
            ns.ADMIN_REDRIVE,
            {"items": ("a", "b"), "all": "0", "rate": "7"},
            MoveItems("jobs", ADMIN, None, ("a", "b"), "", 1),
            7,
        ),
        (ns.ADMIN_MOVE, {"to": "slow"}, MoveItems("jobs", ADMIN, "slow", (), "", 1), 1000),
        (ns.ADMIN_MOVE, {"to": "slow", "items": "a"}, MoveItems("jobs", ADMIN, "slow", ("a",), "", 1), 1000),
    ],
)
def test_meant(read: Read, node: str, fields: Mapping[str, str], meant: MoveItems, rate: int) -> None:
    """A form is a move at a rate."""
    asked = _move_batch(read, node, {"node": "jobs", **fields})
    assert (asked.command, asked.rate, asked.moved, asked.stayed) == (meant, rate, 0, 0)


@pytest.mark.parametrize(
    ("node", "fields", "named"),
    [
        (ns.ADMIN_REDRIVE, {}, "items"),
        (ns.ADMIN_REDRIVE, {"all": "yes"}, "all"),
        (ns.ADMIN_REDRIVE, {"all": "1", "reason": "expired"}, "all"),
        (ns.ADMIN_REDRIVE, {"all": "1", "headers": "region=eu"}, "all"),
        (ns.ADMIN_REDRIVE, {"headers": "region"}, "headers"),
        (ns.ADMIN_REDRIVE, {"headers": "=eu"}, "headers"),
        (ns.ADMIN_REDRIVE, {"headers": tuple(f"h{number}=x" for number in range(33))}, "headers"),
        (ns.ADMIN_REDRIVE, {"reason": "r" * 1025}, "reason"),
        (ns.ADMIN_REDRIVE, {"items": tuple(map(str, range(101)))}, "items"),
        (ns.ADMIN_REDRIVE, {"items": "a", "scan": SCAN}, "items"),
        (ns.ADMIN_REDRIVE, {"all": "1", "rate": "0"}, "rate"),
        (ns.ADMIN_REDRIVE, {"all": "1", "rate": "10001"}, "rate"),
        (ns.ADMIN_REDRIVE, {"all": "1", "rate": "1.5"}, "rate"),
        (ns.ADMIN_REDRIVE, {"all": "1", "moved": "-1"}, "moved"),
        (ns.ADMIN_REDRIVE, {"all": "1", "scan": "s" * 101}, "scan"),
        (ns.ADMIN_REDRIVE, {"all": "1", "to": "slow"}, "to"),
        (ns.ADMIN_MOVE, {}, "to"),
        (ns.ADMIN_MOVE, {"to": ""}, "to"),
        (ns.ADMIN_MOVE, {"to": "slow", "reason": "expired"}, "reason"),
    ],
)
def test_bad_fields(fault: Fault, node: str, fields: Mapping[str, str | tuple[str, ...]], named: str) -> None:
    """A field out of range is named in a bad-payload (XEP-0050 §4.4)."""
    found = fault(command(node, {"node": "jobs", **fields}), sender=ADMIN)
    assert wire(found).command == "bad-payload" and found.detail.startswith(f"{named}: ")


@pytest.mark.parametrize(
    ("node", "fields", "meant"),
    [
        (
            ns.ADMIN_REDRIVE,
            {"node": "jobs/dead", "reason": "expired", "rate": "20"},
            MoveItems("jobs/dead", ADMIN, None, (), "expired", 1, SCAN),
        ),
        (
            ns.ADMIN_REDRIVE,
            {"node": "jobs/dead", "headers": "region=eu", "rate": "20"},
            MoveItems("jobs/dead", ADMIN, None, (), "", 1, SCAN, headers=(("region", "eu"),)),
        ),
        (
            ns.ADMIN_REDRIVE,
            {"node": "jobs/dead", "all": "1", "rate": "20"},
            MoveItems("jobs/dead", ADMIN, None, (), "", 1, SCAN),
        ),
        (
            ns.ADMIN_MOVE,
            {"node": "jobs", "to": "slow", "rate": "20"},
            MoveItems("jobs", ADMIN, "slow", (), "", 1, SCAN),
        ),
    ],
)
def test_goes_on(read: Read, node: str, fields: Mapping[str, str], meant: MoveItems) -> None:
    """The form has the place to continue from: any frontend that gets it continues, and counts on."""
    told = reply(_move_batch(read, node, fields), MovedItems(20, {"it is locked": 2, "it is no dead letter": 1}, SCAN))
    assert told.get("status") == "executing"
    assert told[0].get("execute") == "next" and [each.tag for each in told[0]] == [f"{{{ns.COMMANDS}}}next"]
    assert told.findtext(f"{{{ns.COMMANDS}}}note") == "moved 20, 3 stayed; 2: it is locked; 1: it is no dead letter"
    again = _move_batch(read, node, _fields(told), f"sessionid='{told.get('sessionid')}' action='next'")
    assert (again.command, again.rate, again.moved, again.stayed) == (meant, 20, 20, 3)
    ended = reply(again, MovedItems(5, {}, ""))
    assert (ended.get("status"), ended.get("sessionid")) == ("completed", told.get("sessionid"))
    assert ended.findtext(f"{{{ns.COMMANDS}}}note") == "moved 25, 3 stayed"


def test_cancelled(read: Read) -> None:
    """XEP-0050 §3.4: the user cancels, and nothing more is requested."""
    told = reply(_move_batch(read, ns.ADMIN_REDRIVE, {"node": "jobs", "all": "1"}), MovedItems(1, {}, SCAN))
    asked = read(command(ns.ADMIN_REDRIVE, more=f"sessionid='{told.get('sessionid')}' action='cancel'"), sender=ADMIN)
    assert isinstance(asked, DoorAnswer) and reply(asked).get("status") == "canceled"
