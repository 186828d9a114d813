"""Batches: the frame is judged as a whole, each row as a request of its own (urn:stanzaq:0#batch)."""

from collections.abc import Callable
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from broker.model.commands import Cancel, Complete, CompleteAndPublish, Publish, Renew, Retract, Unlock
from broker.model.items.hints import Hints
from broker.model.items.progress import Progress
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import Cancelled, Published, Refused, Renewed, Result, Retracted, Unlocked
from frontends.xmpp import namespaces as ns
from frontends.xmpp.pubsub import batches
from frontends.xmpp.stanzas import BatchRequest

_WORKER = Jid("worker@example.org/desk")
_JOB = "<job xmlns='urn:x'/>"

Read = Callable[..., BatchRequest]
Fault = Callable[..., MalformedRequest]


def _publish(inside: str, about: str = "node='jobs'") -> str:
    return f"<publish xmlns='{ns.STANZAQ}' {about}>{inside}</publish>"


def _settle(inside: str, about: str = "node='jobs'") -> str:
    return f"<settle xmlns='{ns.STANZAQ}' {about}>{inside}</settle>"


def _cancel(inside: str, about: str = "node='jobs'") -> str:
    return f"<cancel xmlns='{ns.STANZAQ}' {about}>{inside}</cancel>"


def _commands(batch: BatchRequest) -> list[object]:
    return [command for _, command in batch.rows]


def _said(batch: BatchRequest, *of: Result) -> ET.Element | None:
    outcomes = batches.BatchOutcomes(batch)
    done = [outcomes.add(number, outcome) for number, outcome in reversed(list(enumerate(of)))]
    assert done == [False] * (len(of) - 1) + [True]
    content = outcomes.write()
    return ET.fromstring(content) if content else None


def test_each_item_is_published_as_a_single_one(read: Read) -> None:
    """Ids, partitions, keys and payloads are each item's own; a hint beside them is for all."""
    hint = f"<hint xmlns='{ns.STANZAQ}' priority='7'/>"
    batch = read(
        _publish(
            f"<item id='a' key='k'>{_JOB}</item><x xmlns='urn:other'/><item>{_JOB}</item>"
            f"<item xmlns='{ns.PUBSUB}' id='a' partition='3'>{_JOB}</item>{hint}"
        )
    )
    first, second, third = _commands(batch)
    assert isinstance(first, Publish) and isinstance(second, Publish) and isinstance(third, Publish)
    assert (first.node, first.sender, first.item_id, first.key, first.partition) == ("jobs", _WORKER, "a", "k", None)
    assert (second.item_id, third.item_id, third.partition) == (None, "a", 3)
    assert first.envelope == second.envelope == third.envelope
    assert {first.hints, second.hints, third.hints} == {Hints.validate(None, 7, None)}


def test_each_lock_is_settled_as_by_a_single_request(read: Read) -> None:
    """Rows become the commands of single requests, with the id of the IQ for replays (Q27)."""
    batch = read(
        _settle(
            "<ack id='a' token='7'/><release id='b' token='8' partition='2' delay='5' reason='r' dead-letter='1'/>"
            "<renew id='c' token='9'/><release id='d' token='10'/>"
        )
    )
    about = ("jobs", _WORKER)
    assert _commands(batch) == [
        Retract(*about, "a", 7, "r1"),
        Unlock(*about, "b", 8, 5000, "r", dead_letter=True, request="r1", partition=2),
        Renew(*about, "c", 9),
        Unlock(*about, "d", 10, request="r1"),
    ]
    kinds = [type(_commands(batch)[number]) for number in batches.order(batch)]
    assert sorted(kinds.index(kind) for kind in kinds) == [0, 1, 2, 2]


def test_each_acknowledgement_has_its_own_result(read: Read) -> None:
    """A row's result is its own; a row with something else in it has none (RFC 6120 §8.4)."""
    result = f"<result xmlns='{ns.STANZAQ}'><done xmlns='urn:x'/></result>"
    rows = f"<ack id='a' token='7'>{result}</ack><ack id='b' token='8'><x xmlns='urn:x'/></ack>"
    first, second = _commands(read(_settle(rows)))
    assert isinstance(first, Complete) and (first.item_id, first.token) == ("a", 7)
    assert (first.body_bytes, second) == (len("<done xmlns='urn:x'/>"), Retract("jobs", _WORKER, "b", 8, "r1"))


def test_each_acknowledgement_has_its_own_items(read: Read) -> None:
    """What is published with a row has its node and its options, beside a result or without; a fault is the row's."""
    then = (
        f"<then xmlns='{ns.STANZAQ}' node='next'><item xmlns:q='{ns.STANZAQ}' id='n1' q:delay='5'>{_JOB}</item></then>"
    )
    result = f"<result xmlns='{ns.STANZAQ}'><done xmlns='urn:x'/></result>"
    wrong = "<then node='next'><item/></then>", f"<then><item>{_JOB}</item></then>", "<then node='next'/>"
    rows = (
        f"<ack id='a' token='7'>{result}{then}{then.replace('n1', 'n2')}</ack><ack id='b' token='8'>{then}</ack>",
        *(f"<ack id='{number}' token='8'>{each}</ack>" for number, each in enumerate(wrong)),
    )
    first, second, *refused = _commands(read(_settle("".join(rows))))
    assert isinstance(first, CompleteAndPublish) and isinstance(second, CompleteAndPublish)
    assert [(each.node, each.item_id, each.hints.delay_ms) for each in first.publishes] == [
        ("next", "n1", 5_000),
        ("next", "n2", 5_000),
    ]
    assert (first.body_bytes, second.body_bytes, second.envelope) == (len("<done xmlns='urn:x'/>"), 0, b"")
    assert (second.token, second.request, second.publishes) == (8, "r1", first.publishes[:1])
    problems = [each.problem for each in refused if isinstance(each, Refused)]
    assert problems == [Problem.PAYLOAD_REQUIRED, Problem.NODE_REQUIRED, Problem.ITEM_REQUIRED]


@pytest.mark.parametrize(
    ("payload", "kind", "problem"),
    [
        (_publish(""), "set", Problem.ITEM_REQUIRED),
        (_settle("<x xmlns='urn:other'/>"), "set", Problem.ITEM_REQUIRED),
        (_publish(f"<item>{_JOB}</item>" * 101), "set", Problem.BAD_REQUEST),
        (_settle("".join(f"<ack id='i{n}' token='1'/>" for n in range(101))), "set", Problem.BAD_REQUEST),
        (_publish(f"<item>{_JOB}</item><ack id='a' token='1'/>"), "set", Problem.BAD_REQUEST),
        (_settle("<ack id='a' token='1'/><nack id='b' token='1'/>"), "set", Problem.BAD_REQUEST),
        (_settle("<ack id='a' token='1'/><hint delay='1'/>"), "set", Problem.BAD_REQUEST),
        (_publish(f"<item>{_JOB}</item>", ""), "set", Problem.NODE_REQUIRED),
        (_settle("<ack id='a' token='1'/>", ""), "set", Problem.NODE_REQUIRED),
        (_publish(f"<item>{_JOB}</item>"), "get", Problem.BAD_REQUEST),
        (_settle("<ack id='a' token='1'/>"), "get", Problem.BAD_REQUEST),
    ],
)
def test_a_bad_frame_refuses_all(fault: Fault, payload: str, kind: str, problem: Problem) -> None:
    """No rows, too many, unknown ones, no node, a get: nothing is done."""
    assert fault(payload, kind).problem is problem


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ("<item/>", Problem.PAYLOAD_REQUIRED),
        ("<item><a/><b/></item>", Problem.PAYLOAD_INVALID),
        (f"<item><json xmlns='{ns.JSON}'>NaN</json></item>", Problem.PAYLOAD_INVALID),
        (f"<item><a>{'x' * 300_000}</a></item>", Problem.PAYLOAD_TOO_BIG),
        ("<item id=''><a/></item>", Problem.ITEM_ID_INVALID),
        ("<item delay='x'><a/></item>", Problem.BAD_REQUEST),
        ("<item partition='-1'><a/></item>", Problem.PARTITION_NOT_FOUND),
        ("<ack token='1'/>", Problem.ITEM_REQUIRED),
        ("<ack id='a'/>", Problem.BAD_REQUEST),
        ("<ack id='a' token=''/>", Problem.BAD_REQUEST),
        ("<renew id='a' token='x'/>", Problem.BAD_REQUEST),
        ("<release id='a' token='1' delay='-1'/>", Problem.BAD_REQUEST),
        ("<release id='a' token='1' partition='x'/>", Problem.PARTITION_NOT_FOUND),
        (f"<release id='a' token='1' reason='{'r' * 1025}'/>", Problem.BAD_REQUEST),
    ],
)
def test_a_bad_row_is_refused_alone(read: Read, row: str, problem: Problem) -> None:
    """What is wrong with a row is told about the row, by the error of a single request, and the others are done."""
    batch = read(
        _publish(f"{row}<item>{_JOB}</item>") if row.startswith("<item") else _settle(f"{row}<ack id='z' token='1'/>")
    )
    refused, other = _commands(batch)
    assert isinstance(refused, Refused) and refused.problem is problem and refused.detail
    assert isinstance(other, Publish | Retract)


def test_an_item_is_there_twice(read: Read) -> None:
    """Both publishes of an id are done; of rows about locks, which have no order, the first one of each item is."""
    assert [type(command) for command in _commands(read(_publish(f"<item id='a'>{_JOB}</item>" * 2)))] == [Publish] * 2
    rows = (
        "<ack id='a'/><ack id='a' token='1'/><renew id='a' token='2'/><release id='b' token='3'/>"
        "<ack id='a' token='1'/><ack id='a' token='4' partition='1'/>"
    )
    commands = _commands(read(_settle(rows)))
    assert [getattr(each, "token", None) for each in commands] == [None, 1, None, 3, None, 4]
    assert [each.problem for each in commands if isinstance(each, Refused)] == [Problem.BAD_REQUEST] * 3
    # A lock is the same lock, whether its row tells the partition or not.
    both = "<release id='b' token='3' partition='0' delay='9'/><ack id='b' token='3'/>"
    kept, refused = _commands(read(_settle(both)))
    assert isinstance(kept, Unlock) and isinstance(refused, Refused)
    assert _commands(read(_cancel("<item id='a'/><item id='a'/>")))[0] == Cancel("jobs", _WORKER, "a")


def test_what_became_of_each_item(read: Read) -> None:
    """The answer to a publish has a row for each item, in their order: its id, a repeat, or its error."""
    items = f"<item id='a'>{_JOB}</item><item>{_JOB}</item><item id='c&amp;'>{_JOB}</item><item>{_JOB}</item>"
    batch = read(_publish(items, "node='j&amp;s'"))
    full = Refused(Problem.NODE_FULL, "full")
    said = _said(batch, Published("a", duplicate=True), Published("0-1"), full, full)
    assert said is not None and (said.tag, said.get("node")) == (f"{{{ns.STANZAQ}}}publish", "j&s")
    assert [row.attrib for row in said] == [{"id": "a", "duplicate": "true"}, {"id": "0-1"}, {"id": "c&"}, {}]
    error = said[2][0]
    assert (error.tag, error.get("type")) == (f"{{{ns.CLIENT}}}error", "wait")
    assert [child.tag for child in error] == [
        f"{{{ns.STANZAS}}}conflict",
        f"{{{ns.STANZAS}}}text",
        f"{{{ns.PUBSUB_ERRORS}}}node-full",
    ]


def test_only_what_did_not_succeed(read: Read) -> None:
    """The answer to a settle is empty, or has the earliest new deadline and the rows that failed."""
    rows = "<ack id='a' token='7'/><release id='b' token='8'/><renew id='c' token='9'/><renew id='d' token='10'/>"
    batch = read(_settle(rows))
    lost = Refused(Problem.LOCK_LOST)
    said = _said(batch, lost, Unlocked(_WORKER), Renewed(9, 2_000), Renewed(10, 1_000))
    assert said is not None and said.get("expires") == "1970-01-01T00:00:01.000Z"
    ((row),) = said
    assert (row.tag, row.attrib) == (f"{{{ns.STANZAQ}}}ack", {"id": "a", "token": "7"})
    assert row[0][0].tag == f"{{{ns.STANZAS}}}unexpected-request"
    said = _said(batch, Retracted(None), lost, lost, lost)
    assert said is not None and "expires" not in said.attrib
    assert [each.tag.partition("}")[2] for each in said] == ["release", "renew", "renew"]
    short = read(_settle("<ack id='a' token='7'/><release id='b' token='8'/>"))
    assert _said(short, Retracted(_WORKER), Unlocked(_WORKER)) is None


def test_cancelled_items(read: Read) -> None:
    """Each item is cancelled by itself, wherever it is; the result names those that did not succeed."""
    batch = read(_cancel("<item id='a'/><item id='b' partition='3'/><item id=''/>"))
    assert _commands(batch)[:2] == [Cancel("jobs", _WORKER, "a"), Cancel("jobs", _WORKER, "b", 3)]
    refused = Refused(Problem.FORBIDDEN)
    told = _said(batch, Cancelled(), refused, Refused(Problem.ITEM_ID_INVALID))
    assert told is not None and told.tag == f"{{{ns.STANZAQ}}}cancel"
    assert [(row.tag, row.get("id")) for row in told] == [(f"{{{ns.STANZAQ}}}item", "b"), (f"{{{ns.STANZAQ}}}item", "")]
    assert _said(read(_cancel("<item id='a'/>")), Cancelled(replayed=True)) is None


def test_work_that_has_begun_or_not(read: Read, fault: Fault) -> None:
    """A renewal may tell that work has begun, a release that it has not; each alone or in a batch, with clear refusals."""
    rows = "<renew id='a' token='1' begun='1'/><release id='b' token='2' untried='true'/><renew id='c' token='3' begun='0'/>"
    assert _commands(read(_settle(rows))) == [
        Renew("jobs", _WORKER, "a", 1, begun=True),
        Unlock("jobs", _WORKER, "b", 2, request="r1", untried=True),
        Renew("jobs", _WORKER, "c", 3),
    ]
    alone = f"<renew xmlns='{ns.STANZAQ}' node='jobs' {{}}><item id='a' token='1'/></renew>"
    question: Any = read(alone.format("begun='1'"))
    assert question.command == Renew("jobs", _WORKER, "a", 1, begun=True)
    assert fault(alone.format("begun='perhaps'")).problem is Problem.BAD_REQUEST
    for wrong in ("renew id='a' begun=''", "release id='a' untried='2'", "release id='a' untried='1' dead-letter='1'"):
        (command,) = _commands(read(_settle(f"<{wrong} token='1'/>")))
        assert isinstance(command, Refused) and command.problem is Problem.BAD_REQUEST


def test_renewals_tell_progress(read: Read, fault: Fault) -> None:
    """A renewal may tell how far its sender is: a share from 0 to 1, and a line. What is wrong refuses the row alone."""
    batch = read(_settle("<renew id='a' token='1' progress='0.4' note='ü'/><renew id='b' token='2' note='n'/>"))
    assert _commands(batch) == [
        Renew("jobs", _WORKER, "a", 1, progress=Progress(0.4, "ü")),
        Renew("jobs", _WORKER, "b", 2, progress=Progress(None, "n")),
    ]
    for wrong in ("progress='1.1'", "progress='x'", "progress=''", "note='" + "x" * 201 + "'", "note='a&#x85;b'"):
        (command,) = _commands(read(_settle(f"<renew id='a' token='1' {wrong}/>")))
        assert isinstance(command, Refused) and command.problem is Problem.BAD_REQUEST
        alone = f"<renew xmlns='{ns.STANZAQ}' node='jobs' {wrong}><item id='a' token='1'/></renew>"
        assert fault(alone).problem is Problem.BAD_REQUEST
