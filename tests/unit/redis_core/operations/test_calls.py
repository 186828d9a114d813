"""Calls: commands become arguments by the names of the operation's header, replies become results."""

# ruff: noqa: ANN401  (calls take commands of every kind)

from dataclasses import replace
from typing import Any

import pytest
from structlog.testing import capture_logs

from broker.model import commands, offsets
from broker.model.commands import Publish, Retract, Subscribe, Unlock
from broker.model.items.items import LockEnded, OwnershipLost
from broker.model.items.progress import Progress
from broker.model.items.qos import Qos, Sending, Stage
from broker.model.names import Jid, Partition
from broker.model.nodes.nodes import Affiliation, NodeRecord
from broker.model.nodes.options import NodeConfig
from broker.model.problems import OperationDefect, Problem
from broker.model.results import Published, Refused, Retracted
from broker.redis_core.commands.admin_parts import InspectPartition, MoveFromPartition
from broker.redis_core.commands.collections import (
    Asks,
    CheckReferences,
    Lent,
    ListReferences,
    Look,
    ReceiveByReference,
    Turn,
)
from broker.redis_core.commands.dependency_parts import AwaitEnd, Child, DependentStored, NoteParent, PublishDependent
from broker.redis_core.commands.internal import (
    EPOCH_NEXT,
    AcquirePartition,
    FindItem,
    Leave,
    LogExtent,
    PassOn,
    RaiseNumbers,
    ReceiveFrom,
    ReleasePartition,
    RenewPartition,
    ScanSubscribers,
    SubscribeLog,
    Sweep,
    TakeOver,
)
from broker.redis_core.commands.outbox import AcceptEntry, EndEntry, Entry, ExpireTicket, OutboxPage, ReadOutbox
from broker.redis_core.commands.schedule_parts import ReadSchedules, StoreSchedule
from broker.redis_core.operations.operation import (
    LeaseOver,
    LockOver,
    OperationReply,
    ReferencesFreed,
    SubscriptionOver,
    ToCount,
    TurnDue,
    WorkWaits,
    refuse,
)
from broker.redis_core.registry.rows import CALLS
from broker.scripts.answers import find_answers
from broker.scripts.location import lua_directory
from broker.scripts.source import operation, operations

ME = Jid("me@x/my desk")
QUEUE = Partition("q", "life")
RECORD = NodeRecord("n", "i1", 3, NodeConfig(), {Jid("me@x"): Affiliation.OWNER})
SAMPLES: tuple[Any, ...] = (
    Publish("n", ME, "i", b"e", 1),
    Retract("n", ME, "i", 5, "r"),
    commands.RetractBatch("n", ME, (Retract("n", ME, "i", 5, "r"), Retract("n", ME, "j"))),
    commands.Cancel("n", ME, "i"),
    commands.Complete("n", ME, "i", 5, "r", envelope=b"e"),
    commands.CompleteAndPublish("n", ME, "i", publishes=(Publish("m", ME, "i", b"e", 1),)),
    commands.ReadOutcome("n", ME, "i"),
    commands.ListEnds("n", ME, 5),
    Unlock("n", ME, "i", None, 10, "why", dead_letter=True, request="r"),
    commands.Renew("n", ME, "i", progress=Progress(0.4, "half")),
    commands.Locks("n", ME),
    Subscribe("n", ME, ME, 5),
    commands.SetSubscriptionOptions("n", ME, ME, "", 5),
    commands.Options("n", ME, ME, ""),
    commands.Unsubscribe("n", ME, ME, ""),
    commands.Bounce(ME, Partition("n", "i1"), "1-0", 5, gone=True),
    commands.Confirm(ME, Partition("n", "i1"), "1-0", 5, Stage.ASSURED, (("1-1", 6),), "5.a"),
    commands.Browse("n", ME, ("i",), 5),
    commands.Purge("n", ME),
    commands.Stats("n", ME),
    commands.Commit("n", ME, 0, offsets.write_offset(RECORD.partition(0), "5-0")),
    commands.Read("n", ME, 0, "@earliest", 5),
    commands.Bind("n", ME, 0, "g", 7),
    commands.Unbind("n", ME, 0, "g", 7, kept=True),
    SubscribeLog("n", ME, ME, 5, Qos.UNACKNOWLEDGED, "@latest", 0),
    LogExtent("n", ME, 0),
    ReceiveFrom("n", ME, ME, 0, 5, 10_000, 0),
    PassOn("n", "1", 0, ""),
    FindItem("n", ME, "i", 5, "r", 1),
    ReadOutbox("n", "i1", 0, ("m",)),
    EndEntry("n", "i1", 0, "item/1-0", "n", 3),
    AcceptEntry("n", "i1", 0, "i", "t", "k", ME, b"e"),
    ExpireTicket("n", "t", 0),
    ReadSchedules("n", "i1", "a"),
    StoreSchedule("n", "i1", "a", b"", b"{}", 5, b"item"),
    Leave("n", ME),
    AcquirePartition("n", ME, ME, 5, Sending(), "g", EPOCH_NEXT, 0, 7, "moved"),
    ReleasePartition("n", ME, 0, "g"),
    RenewPartition("n", ME, 0),
    Sweep("n"),
    RaiseNumbers("n", 0, 5, check=True),
    TakeOver("n", "f", 5),
    ScanSubscribers("n"),
    Turn("n", "i1", "t1", (("r1", "unused"),), ((QUEUE, 1, Asks(3, 5, 60_000, "-")), (QUEUE, 0, None))),
    ReceiveByReference("n", 0, "i1", "all@life", (Lent(QUEUE, "r1", "1", ME, "assured5", 5),)),
    CheckReferences("n", 0, "i1", (Look(QUEUE, "r1", 5), Look(QUEUE, "r2", 5, "withdrawn"))),
    ListReferences("n", "i1"),
    commands.Release("n", ME, ("i",)),
    commands.Erase("n", ME, 0, ME),
    InspectPartition("n", ME, 0, ("i",), 5),
    MoveFromPartition("n", ME, 0, (("1-0", "i", "m"),)),
    commands.ImportItem("n", ME, "i", b"e", Jid("a@x"), "i0/0/1-0", 0, "k"),
    PublishDependent("n", ME, "i", b"e", 1),
    AwaitEnd("n", "i1", "i", "i1/0/1-0/0/n"),
    NoteParent("n", "i1", 0, "1-0", 0, "awaited", 1, "2-0"),
)
ANSWERS = find_answers({name: operation(lua_directory(), name) for name in operations(lua_directory())})
SHARED = {"now", "revision", "frontend", "number", "once_ms", "retry"}


def test_samples_are_all() -> None:
    """Every call of a row has a sample here."""
    assert {type(sample) for sample in SAMPLES} == CALLS.keys()


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda sample: type(sample).__name__)
def test_arguments(sample: Any) -> None:
    """Fixed arguments and columns are those of the header, given or the command's fields, and of types that Redis takes."""
    call = CALLS[type(sample)]
    found = operation(lua_directory(), call.operation)
    fixed = call.fixed(sample, RECORD)
    own = set(found.arguments) - SHARED
    # What comes from elsewhere has windows of its own, and not the service's.
    assert fixed.keys() - {"once_ms"} <= own
    assert ("once_ms" in fixed) == isinstance(sample, AcceptEntry | ExpireTicket | commands.ImportItem)
    rows = [call.row(sample, RECORD)] if call.row else call.rows(sample, RECORD) if call.rows else []
    assert all(row.keys() <= set(found.columns) for row in rows)
    assert bool(found.columns) == bool(rows)
    given = [fixed[name] for name in own] + [row[name] for row in rows for name in found.columns]
    assert all(type(value) in {str, int, bytes} for value in given)


def test_results() -> None:
    """Rows become results; a code word is its problem; an unknown word is a defect of ours."""
    assert _result(Publish, b"i") == Published("i")
    assert _result(Publish, [b"duplicate", b"i"]) == Published("i", duplicate=True)
    assert _result(Retract, b"") == Retracted(None)
    assert _result(Retract, [b"ok", ME.encode(), b"all@life"]) == Retracted(ME, collection="all")
    assert _result(Retract, [b"replayed", ME.encode()]) == Retracted(ME, replayed=True)
    for word in ("item-not-found", "forbidden", "locked-by-another", "lock-lost"):
        result = _result(Retract, [word.encode()])
        assert isinstance(result, Refused) and result.problem is Problem(word) and result.detail
    with pytest.raises(OperationDefect):
        refuse(b"nonsense")


def _result(kind: type, answer: Any, command: Any = None) -> Any:
    """Return the result of the answer to one row."""
    return CALLS[kind].result(command, ANSWERS(CALLS[kind].operation).read_row(answer), RECORD)


def _read(*reply: Any) -> OperationReply:
    named = ANSWERS("sweep").read([b"ok", *reply])
    read = OperationReply.read(named, RECORD.partition(0), RECORD.config)
    assert read is not None
    return read


def test_reply() -> None:
    """Every partition script answers in one shape."""
    read = _read([1], [], [], 1, 7, 1, 9)
    assert (read.rows, read.outbox_due, read.due_ms, read.more, read.token) == ([1], True, 7, True, 9)
    assert OperationReply.read(ANSWERS("sweep").read([b"stale"]), RECORD.partition(0), RECORD.config) is None
    assert _read(None, None, None, None, 0, 0, 9) == _read([], [], [], 0, 0, 0, 9)


def test_lines_of_another_version() -> None:
    """What only another version understands is logged, and hides nothing else of its reply."""
    notices = [[b"perished", b"1", b"strange"], [b"told by a later version"], [b"turn"]]
    delivery = [b"w@x", b"1", b"i", 1, 1, 1, b"a@x", b"", 1, b"?", b"", b""]
    with capture_logs() as logs:
        read = _read([], delivery, notices, 1, 7, 0, 9)
    assert (read.notices, read.deliveries, read.outbox_due, read.due_ms) == ((TurnDue(),), (), True, 7)
    assert [(each["event"], each["node"]) for each in logs] == [("a line of a reply cannot be read", "n")] * 3


def test_deliveries() -> None:
    """A reply has the values of all deliveries in one list; the last one of each names the subscription."""
    values = [ME.encode(), b"5-0", b"i", 7, 2, 9, b"you@x", b"body", 8, b"unacknowledged", b"k"]
    one, two, three = _read([], [*values, b"", *values, b"all@life ", *values, b" 3"], [], None, 0, 0, 9).deliveries
    assert (one.subscriber, one.position, one.token, one.attempt, one.sequence, one.key) == (ME, "5-0", 7, 2, 8, "k")
    assert [(each.collection, each.subid) for each in (one, two, three)] == [("", ""), ("all", ""), ("", "3")]


def test_what_a_script_tells() -> None:
    """Notices of scripts are values; `test_lines_of_another_version` has an unknown one."""
    partition = RECORD.partition(0)
    told: list[list[Any]] = [
        [b"lost", ME.encode(), b"g", b"7", 9, b"gone"],
        [b"unlocked", ME.encode(), b"i", 5],
        [b"ended", ME.encode(), b"i", 5],
        [b"lapsed", ME.encode(), b"1"],
        [b"unsubscribed", ME.encode()],
        [b"waiting", b"p", b"1"],
        [b"freed", b"all@life", b"r1 ended r2 reached"],
        [b"asks", 3, 5, 60_000, b"1 -"],
        [b"turn"],
        [b"perished", 2],
    ]
    ended = LockEnded(partition.node, ME, "i", 5)
    assert _read([], [], told, None, 0, 0, 9) == OperationReply(
        [],
        (),
        (
            OwnershipLost(partition.node, ME, 0, "g", 7, 9, "gone"),
            LockOver(ended, expired=True),
            LockOver(ended, expired=False),
            LeaseOver(ME, "1"),
            SubscriptionOver(ME),
            WorkWaits("p", "1"),
            ReferencesFreed("all", (("r1", "ended"), ("r2", "reached"))),
            Asks(3, 5, 60_000, "1 -"),
            TurnDue(),
            ToCount("perished", 2),
        ),
        outbox_due=False,
        due_ms=0,
        more=False,
        token=9,
    )


def test_outbox() -> None:
    """A page has the entries as the script returns them; what a name says is read from it."""
    reply = _read([], [], [], 1, 0, 1, 9)
    rows = ANSWERS("read_outbox").read_rows([9, [b"child/1-0/i1/0/2-0/0/n", 3, b"end"], [b"later/x", 1]])
    page = CALLS[ReadOutbox].result(ReadOutbox("n", "i1", 0, ("m",)), replace(reply, rows=rows), RECORD)
    child, later = Entry("child/1-0/i1/0/2-0/0/n", 3, (b"end",)), Entry("later/x", 1, ())
    assert page == OutboxPage(9, (child, later), more=True)
    assert (child.kind, child.about, later.kind, later.about) == ("child", "1-0/i1/0/2-0/0/n", "later", "x")


def test_stored_dependent() -> None:
    """Who publishes an item that waits learns where it does, and for what; of one that waits no more only its partition."""
    text = b'{"parents": [{"node": "", "life": "i1", "item": "p", "state": ""}]}'
    waits = _result(PublishDependent, [b"ok", b"i", 0, [b"2", b"5-0", text]])
    (parent,) = waits.child.parents
    assert waits == DependentStored(Published("i"), Child("i1", 2, "5-0", (parent,))) and parent.item_id == "p"
    over = _result(PublishDependent, [b"duplicate", b"i", 1, [b"2"]])
    assert over == DependentStored(Published("i", duplicate=True, differs=True), Child("i1", 2, ""))
