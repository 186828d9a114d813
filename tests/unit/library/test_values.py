"""What users write and what is on the wire: accounts, times, policies, payloads and stanzas of the library."""

import dataclasses
import inspect
import math
import re
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, date, datetime
from decimal import Decimal
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, NewType, TypedDict
from xml.etree import ElementTree as ET
from xml.etree.ElementTree import Element

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, computed_field

import stanzaq
from stanzaq import Job, Publisher, Retry, StanzaqError, Task, Worker, sync
from stanzaq.durations import seconds
from stanzaq.payloads import Unfit, decode, encode, payload_type
from stanzaq.publisher.publisher import make_item
from stanzaq.retry import Release
from stanzaq.transport.account import Account
from stanzaq.transport.backoff import Backoff
from stanzaq.transport.interface import Content, Hints, Lock
from stanzaq.xmpp import stanzas

ROOT = Path(__file__).resolve().parents[3]
TEXTS = st.text(st.characters(codec="utf-8", exclude_categories=("Cc", "Cs", "Cn")))


@dataclass
class Size:
    """A dataclass."""

    width: int
    names: list[str]


class Point(TypedDict):
    """A TypedDict."""

    x: float


class Model(BaseModel):
    """A model of pydantic's."""

    a: int


@pytest.mark.parametrize(
    ("text", "length"),
    [("250ms", 0.25), ("1s", 1), ("1.5 m", 90), ("2h", 7200), ("7d", 604800), (3, 3), (0.5, 0.5)],
)
def test_durations(text: float | str, length: float) -> None:
    """Times are seconds, or a number with a unit."""
    assert seconds(text) == length


@pytest.mark.parametrize("text", ["", "10", "1w", "-1s", "s", -1, float("nan"), float("inf"), "1e3s"])
def test_no_durations(text: float | str) -> None:
    """Anything else is refused with what to write."""
    with pytest.raises(ValueError, match="give seconds, or a text such as '250ms'"):
        seconds(text)


@given(st.integers(1, 10_000), st.floats(1, 10), st.floats(0, 100), st.floats(0, 50_000), st.floats(0, 1))
def test_delays(attempt: int, backoff: float, delay: float, limit: float, chance: float) -> None:
    """A delay is never longer than its limit and what the service takes, nor is more than half of it cut off."""
    policy = Retry(delay=delay, backoff=backoff, limit=limit)
    whole = min(limit, 43_200, delay * backoff ** min(attempt - 1, 64))
    assert whole / 2 <= policy.delay_after(attempt, lambda: chance) <= whole


@pytest.mark.parametrize("more", [{"attempts": 0}, {"backoff": 0.5}, {"delay": "soon"}])
def test_no_policies(more: dict[str, Any]) -> None:
    """A policy that cannot be meant is refused."""
    with pytest.raises(ValueError, match=r"tried at least once|at least as long|no length of time"):
        Retry(**more)


def test_accounts(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is not said is taken from the account's domain and the environment; each worker has a resource of its own."""
    monkeypatch.setenv("STANZAQ_PASSWORD", "secret")
    one, two = (Account.read("xmpp://w%40x@example.org", None, None, None, "required") for _ in range(2))
    assert re.fullmatch(r"w@x@example\.org/stanzaq-[0-9a-f]{16}", one.jid) and one.jid != two.jid
    assert (one.password(), one.service, one.address) == ("secret", "queue.example.org", None)
    named = Account.read("xmpp://w@example.org/a", "q.x", lambda: "other", "[::1]:5222", "disabled")
    assert (named.jid, named.password(), named.service, named.address) == (
        "w@example.org/a",
        "other",
        "q.x",
        ("::1", 5222),
    )
    # Answers come from the domain as servers write it.
    assert Account.read("xmpp://w@example.org", "Q.Example.ORG", "x", None, "required").service == "q.example.org"
    monkeypatch.delenv("STANZAQ_PASSWORD")
    with pytest.raises(StanzaqError, match="set STANZAQ_PASSWORD"):
        one.password()


@pytest.mark.parametrize(
    ("more", "line"),
    [
        ({"url": "worker@example.org"}, "write xmpp://user@example.org"),
        ({"url": "xmpp://w:secret@example.org"}, "give the password as STANZAQ_PASSWORD"),
        ({"url": "xmpp://w@example.org:5222"}, "give the server's port by address="),
        ({"address": "example.org"}, "write host:port"),
        ({"tls": "disabled"}, "on loopback alone"),
        ({"tls": "disabled", "address": "example.org:5222"}, "on loopback alone"),
        ({"tls": "maybe"}, "'required' or 'disabled'"),
        ({"concurrency": 0}, "together 1 to 1000"),
        ({"concurrency": 1000, "prefetch": 1}, "together 1 to 1000"),
    ],
)
def test_no_workers(more: dict[str, Any], line: str) -> None:
    """What a worker cannot be made of is told when it is made, with what to write."""
    with pytest.raises(ValueError, match=line):
        Worker(**{"url": "xmpp://w@example.org", "password": "x", **more})


_LATE = {
    "aiohttp",
    "asyncpg",
    "boto3",
    "broker",
    "cryptography",
    "concurrent.futures.process",
    "frontends",
    "multiprocessing",
    "opentelemetry",
}
_LATE |= {
    "prometheus_client",
    "psycopg",
    "pydantic",
    "pytest",
    "redis",
    "slixmpp",
    "sqlite3",
    "stanzaq.http",
    "stanzaq.xmpp",
}


@pytest.mark.parametrize(
    ("program", "late"),
    [
        ("import stanzaq", {*_LATE, "stanzaq.worker"}),
        ("from stanzaq import Job, Worker; Worker('xmpp://w@example.org')", _LATE - {"multiprocessing"}),
    ],
)
def test_imports(program: str, late: set[str]) -> None:
    """A program begins soon: what some programs need is imported where they need it."""
    told = f"{program}; import sys; print(*({late} & sys.modules.keys()))"
    done = subprocess.run(
        [sys.executable, "-c", told], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout == "\n"


def test_names_that_are_imported_late() -> None:
    """All public names are there, and no others."""
    assert all(getattr(stanzaq, name) is not None for name in stanzaq.__all__)
    with pytest.raises(AttributeError, match="module 'stanzaq' has no attribute 'Wroker'"):
        _ = stanzaq.Wroker  # type: ignore[attr-defined]


ACCOUNT = "service=None, password=None, address=None, tls='required'"
SIGNATURES = {
    Worker: f"(url, *, {ACCOUNT}, concurrency=1, prefetch=0, grace=30.0, create='never', group=None, codec=None)",
    Worker.task: "(self, queue, *, name='', retry=None, timeout=None, run_in=None, retry_on=None, never_retry=(),"
    " max_jobs_per_process=None, batch=None, wait=None)",
    Task: "(queue, name='')",
    Task.send: "(self, payload, **how)",
    Task.send_many: "(self, payloads, **how)",
    Task.call: "(self, payload, *, timeout=None, **how)",
    Worker.schedule: "(self, payload=None, *, id='', **when)",
    Worker.run: "(self, *, concurrency=None)",
    Worker.serve: "(self)",
    Worker.stop: "(self)",
    Publisher.declare: "(self, queue, *, create='if-missing')",
    Publisher.affiliate: "(self, node, changes)",
    Publisher.decide: "(self, node, jid, *, allow)",
    Publisher: f"(url, *, {ACCOUNT}, outbox=None, codec=None)",
    sync.Publisher: f"(url, *, {ACCOUNT}, outbox=None, codec=None)",
    Retry: "(attempts=None, *, delay='1s', backoff=2.0, limit='10m', jitter=True)",
    Job.renew: "(self)",
    Job.complete: "(self, result=None)",
    Job.fail: "(self, fault)",
    Job.progress: "(self, share, note='')",
    Job.fence: "(self, connection, name, key)",
}


@pytest.mark.parametrize("said", SIGNATURES)
def test_signatures(said: Callable[..., Any]) -> None:
    """Issue 23: programs rely on these names, their order and their defaults."""
    told = inspect.signature(said)
    names = [each.replace(annotation=each.empty) for each in told.parameters.values()]
    assert str(told.replace(parameters=names, return_annotation=told.empty)) == SIGNATURES[said]


def test_public_names() -> None:
    """Issue 23: what a program may import, and what a job has."""
    assert set(stanzaq.__all__) == {
        *("Job", "Publisher", "Reject", "Retry", "StanzaqError", "Worker"),
        *("CallNext", "Codec", "Fenced", "Reply", "Router", "Flow", "Queue", "Schedule", "Task", "chain", "group"),
    }
    fields = [each.name for each in dataclasses.fields(Job) if not each.name.startswith("_")]
    assert fields == [
        *("payload", "id", "node", "token", "attempt", "max_attempts", "headers", "key", "published", "deadline"),
        "state",
    ]


def test_delays_between_connections() -> None:
    """Each delay is twice as long as the one before, up to a limit, less at most half by chance; a success begins again."""
    backoff, whole, drawn = Backoff(0.5, 60.0), [min(60.0, 0.5 * 2**number) for number in range(12)], set()
    for _ in range(20):
        delays = [backoff.delay() for _ in whole]
        assert all(length / 2 <= delay <= length for delay, length in zip(delays, whole, strict=True))
        drawn.add(tuple(delays))
        backoff.reset()
    assert len(drawn) == 20


def test_tasks() -> None:
    """A task's function takes one argument, a job; a node has one task."""
    worker = Worker("xmpp://w@example.org")

    async def fine(job: Job[Size]) -> None:
        pass

    async def whatever(job: Job[object]) -> None:
        pass

    async def two(job: Job[Size], more: int) -> None:
        pass

    async def other(job: dict[str, int]) -> None:
        pass

    assert worker.task("a")(fine).handler is fine
    with pytest.raises(ValueError, match="a has a task already"):
        worker.task("a")(fine)
    with pytest.raises(TypeError, match="takes 2 arguments: a handler takes one, the job"):
        worker.task("b")(two)
    with pytest.raises(TypeError, match=r"annotate its parameter as Job\[…\]"):
        worker.task("c")(other)  # type: ignore[arg-type]
    assert payload_type(fine, "fine") is Size
    assert payload_type(whatever, "whatever") is payload_type(lambda _job: None, "") is Any


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        ({"a": [1, None, "ü"]}, dict[str, Any]),
        ({"a": 1}, Any),
        (Size(1, ["a"]), Size),
        ({"x": 1.5}, Point),
        (Model(a=1), Model),
        (["a"], list[str]),
        ("text ü", str),
        ("text ü", Any),
        (b"\x00\xff", bytes),
        (b"\x00\xff", Any),
    ],
)
def test_payloads(payload: Any, wanted: Any) -> None:  # noqa: ANN401
    """What is published is what a handler of that type is given, through a stanza."""
    content = encode(payload)
    iq = ET.fromstring(stanzas.publish("jobs", stanzas.item("one", content, {}, Hints())))
    (item,) = iq.iter(f"{{{stanzas.PUBSUB}}}item")
    assert decode(stanzas._content(item), wanted) == payload


@pytest.mark.parametrize(
    "text",
    [
        "<a/>",
        "<a b='xmlns=1'><c xmlns='urn:y'/></a>",
        "<a xmlns='urn:x'><b/></a>",
        "<p:a xmlns:p='urn:p' p:b='1'><c/></p:a>",
        "<a xmlns:p='urn:p' p:b='1'>x &lt; y</a>",
    ],
)
def test_elements(text: str) -> None:
    """An element comes as it is, in its own namespace or in none, and without what followed it in its document."""
    element = ET.fromstring(text)
    element.tail = "after it"
    iq = ET.fromstring(stanzas.publish("jobs", stanzas.item("one", encode(element), {}, Hints())))
    (item,) = iq.iter(f"{{{stanzas.PUBSUB}}}item")
    read = decode(stanzas._content(item), Element)
    assert (read.tag, read.attrib, [each.tag for each in read]) == (
        element.tag,
        element.attrib,
        [each.tag for each in element],
    )
    assert item[0].tail is None


@pytest.mark.parametrize("body", ["é", "a", "====", "<b/>", ""])
def test_what_is_no_base64(body: str) -> None:
    """An element that has the name of ours is read, whatever is in it: a message that fails would end the stream."""
    read = stanzas._content(ET.fromstring(f"<item><data xmlns='{stanzas.STANZAQ}'>{body}</data></item>"))
    assert isinstance(read.body, bytes)


@pytest.mark.parametrize(
    ("body", "kind", "wanted", "why"),
    [
        (
            b'{"width": "1", "names": []}',
            "application/json",
            Size,
            r"no Size: Expected `int`, got `str` - at `\$.width`",
        ),
        (b"{", "application/json", Any, "truncated"),
        (b'{"a": "b"}', "application/json", Model, "(?s)no Model: .*valid integer"),
        (b"<a", "application/xml", Element, "no Element"),
        (b"\xff", "text/plain", str, "no str"),
    ],
)
def test_unfit(body: bytes, kind: str, wanted: Any, why: str) -> None:  # noqa: ANN401
    """A payload that does not fit says what it is, what it should be, and where it is not."""
    with pytest.raises(Unfit, match=why):
        decode(Content(body, kind), wanted)


class Shade(Enum):
    """A value that no text can be."""

    NONE = float("nan")
    ONE = 1


class Direction(Enum):
    """Whole numbers with names."""

    UP = 1


class Attachment(BaseModel):
    """A model with bytes."""

    body: bytes


class Pair(NamedTuple):
    """A tuple whose fields have types."""

    name: str
    body: bytes


Body = NewType("Body", bytes)


@dataclass
class File:
    """A dataclass whose annotations say bytes, in many ways."""

    body: bytes
    parts: dict[str, list[bytearray | None]] = dataclasses.field(default_factory=dict)
    named: "Body | None" = None
    size: float = 0.0
    more: Any = None


class Record(msgspec.Struct):
    """A Struct with bytes."""

    body: bytes
    more: Any = None


class Report(BaseModel, extra="allow"):
    """A model of pydantic's, which alone would write nan as null, and any bytes as text."""

    body: bytes = b"a"
    share: float = 0.0
    more: Any = None
    counts: dict[Any, int] = {}

    @computed_field  # type: ignore[prop-decorator]
    @property
    def half(self) -> float:
        """A value that only its JSON has."""
        return self.share / 2 if self.share < 100 else math.nan


NAN, LOOP = float("nan"), list[Any]()
LOOP.append(LOOP)

UNSAYABLE: list[tuple[Any, str]] = [
    (NAN, "the payload is nan: "),
    ({"a": [1, NAN]}, "the payload's ['a'][1] is nan: "),
    (({"a": math.inf},), "the payload's [0]['a'] is inf: "),
    ({-math.inf}, "the payload's [0] is -inf: "),
    ({NAN: 1}, "the payload has a key that is nan: "),
    ({"a": {Shade.NONE: 1}}, "the payload's ['a'] has a key that is nan: "),
    ([Shade.NONE], "the payload's [0] is nan: "),
    ({1: "a", "1": "b"}, "the payload has keys that are the same in JSON"),
    ([{1.5: "a", "1.5": "b"}], "the payload's [0] has keys that are the same in JSON"),
    ({Shade.ONE: 1, 1: 2}, "the payload has keys that are the same in JSON"),
    ({"a": b"x"}, "the payload's ['a'] is bytes"),
    ([[bytearray(b"x")]], "the payload's [0][0] is bytes"),
    ((memoryview(b"x"),), "the payload's [0] is bytes"),
    (frozenset({b"x"}), "the payload's [0] is bytes"),
    ({b"a": 1}, "the payload has a key that is bytes"),
    (defaultdict(list, {"a": [b"x"]}), "the payload's ['a'][0] is bytes"),
    (File(b"x", size=NAN), "the payload's .size is nan: "),
    (File(b"x", more={"a": b"x"}), "the payload's .more['a'] is bytes"),
    ([Record(b"x", [b"x"])], "the payload's [0].more[0] is bytes"),
    (Report(share=NAN), "the payload's .share is nan: "),
    (Report(more=NAN), "the payload's .more is nan: "),
    ({"a": Report(more=[b"x"])}, "the payload's ['a'].more[0] is bytes"),
    (Report(counts={1: 1, "1": 2}), "the payload's .counts has keys that are the same in JSON"),
    (Report.model_validate({"extra": NAN}), "the payload's .extra is nan: "),
    (Report(share=100), "the payload's ['half'] is nan: "),
    (Content(b"[NaN]", "application/json; charset=utf-8"), "the payload is not JSON: "),
    (Content(b'"\xff"', "application/json"), "the payload is not JSON: "),
    ([msgspec.Raw(b"NaN")], "the payload's [0] is not JSON: "),
    (LOOP, "the payload contains itself, or is nested too deeply"),
]
"""Values that JSON cannot say, and how the sentence begins."""


@pytest.mark.parametrize(("payload", "begins"), UNSAYABLE, ids=[begins for _, begins in UNSAYABLE])
def test_what_json_cannot_say(payload: Any, begins: str) -> None:  # noqa: ANN401
    """Issue 48.8: what a reader could not get back is refused where it is published, and the sentence says where it is."""
    with pytest.raises((TypeError, ValueError)) as refused:
        encode(payload)
    assert str(refused.value).startswith(begins) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("payload", "wanted"),
    [
        ({1: "a", 2: "b"}, dict[int, str]),
        ({1.5: "a", 2.5: "b"}, dict[float, str]),
        ({Direction.UP: 1}, dict[Direction, int]),
        ({date(2026, 12, 1): Decimal("1.50")}, dict[date, Decimal]),
        (Decimal("NaN"), Decimal),
        ({(1, 2), (3, 4)}, set[tuple[int, int]]),
        (File(b"\xff", {"a": [bytearray(b"\xfe"), None]}, Body(b"\0")), File),
        (Record(b"\xff", {"a": None}), Record),
        (Pair("a", b"\xff"), Pair),
        (Attachment(body="é".encode()), Attachment),
        ([{"a": Record(b"\xff")}], list[dict[str, Record]]),
        (2**200, int),
        (bytearray(b"\xff"), bytes),
    ],
    ids=repr,
)
def test_what_the_same_type_reads_back(payload: Any, wanted: Any) -> None:  # noqa: ANN401
    """Whole numbers as keys, typed bytes, and what else is a text in JSON stay as they are for who asks for the same type."""
    found = decode(encode(payload), wanted)
    assert found == payload or (found != found and payload != payload)  # noqa: PLR0124  (not a number)


def test_trace_headers() -> None:
    """A trace is in attributes of the item, since its headers are the publisher's."""
    root = ET.fromstring(
        stanzas.publish("jobs", stanzas.item("one", encode({}), {"a": "b", "traceparent": "00-1"}, Hints()))
    )
    (sent,) = root.iter(f"{{{stanzas.PUBSUB}}}item")
    assert sent.get(f"{{{stanzas.STANZAQ}}}traceparent") == "00-1"
    assert [each.get("name") for each in root.iter(f"{{{stanzas.HEADERS}}}header")] == ["a"]


def test_no_payload() -> None:
    """What no payload can be made of is refused when it is published."""
    with pytest.raises(TypeError, match="a object is no payload: give bytes, text, an Element, or what JSON can say"):
        encode({"a": object()})


@given(TEXTS, TEXTS, TEXTS, TEXTS)
def test_texts_survive(node: str, item: str, key: str, header: str) -> None:
    """Whatever XML can hold comes through names, keys and headers as it was given."""
    hints = Hints(key, 1.4, 0, 0.2)
    root = ET.fromstring(
        stanzas.publish(node, stanzas.item(item, Content(b"{}", "application/json"), {"a": header}, hints))
    )
    (sent,) = root.iter(f"{{{stanzas.PUBSUB}}}item")
    told = {name.removeprefix(f"{{{stanzas.STANZAQ}}}"): value for name, value in sent.attrib.items()}
    assert told == {"id": item, **({"key": key} if key else {}), "delay": "1", "priority": "0", "ttl": "1"}
    assert [each.text or "" for each in root.iter(f"{{{stanzas.HEADERS}}}header")] == [header]
    assert root[0].get("node") == node


def test_times_of_items() -> None:
    """A time goes out with its offset; without a zone, or beside a delay, it is unclear."""
    (sent,) = ET.fromstring(
        stanzas.publish("jobs", stanzas.item("one", Content(b"1", "application/json"), {}, Hints(at=1_796_112_000.25)))
    ).iter(f"{{{stanzas.PUBSUB}}}item")
    assert sent.get(f"{{{stanzas.STANZAQ}}}at") == "2026-12-01T08:00:00.250000+00:00"
    rest: dict[str, Any] = {"id": None, "key": "", "priority": None, "ttl": None, "headers": None}
    for at, delay in ((datetime(2026, 12, 1), 0), (datetime(2026, 12, 1, tzinfo=UTC), 5)):  # noqa: DTZ001
        with pytest.raises(ValueError, match=r"zone|both"):
            make_item("jobs", 1, delay=delay, at=at, **rest)


async def test_mistaken_names() -> None:
    """An argument that there is not is told by its name, before anything is sent."""
    wrong: dict[str, Any] = {"dleay": "10m"}
    publisher = Publisher("xmpp://publisher@example.org", password="x")
    job = Job(1, "one", "jobs", 1, 1, 0, {}, "", datetime.now(UTC), datetime.now(UTC))
    async with publisher:
        task = Task[int, int]("jobs").on(publisher)
        for sending in (
            publisher.publish("jobs", 1, **wrong),
            publisher.publish_many("jobs", [1], **wrong),
            task.send(1, **wrong),
        ):
            with pytest.raises(TypeError, match="'dleay'"):
                await sending
    with sync.Publisher("http://127.0.0.1:9", password="x") as blocking, pytest.raises(TypeError, match="'dleay'"):
        blocking.publish("jobs", [1], **wrong)
    for name in ("dleay", "after", "at"):
        with pytest.raises(TypeError, match=rf"^then\(\) got an unexpected keyword argument '{name}'$"):
            job.then("jobs", 1, **{name: "x"})  # type: ignore[arg-type]


def test_parents_of_items() -> None:
    """An item waits for others, each an id or a node with an id, in the words of the service; other values are refused."""
    rest: dict[str, Any] = {"id": "x", "key": "", "delay": 0, "priority": None, "ttl": None, "headers": None}
    asked = make_item("jobs", 1, after=["a b", ("n#", "ü")], regardless=True, keep=True, confirm="synced", **rest)
    (sent,) = ET.fromstring(stanzas.publish("jobs", stanzas.item("one", asked.content, {}, asked.hints))).iter(
        f"{{{stanzas.PUBSUB}}}item"
    )
    assert sent.get(f"{{{stanzas.STANZAQ}}}after") == "a%20b n%23#%C3%BC"
    assert sent.get(f"{{{stanzas.STANZAQ}}}regardless") == sent.get(f"{{{stanzas.STANZAQ}}}keep") == "1"
    assert sent.get(f"{{{stanzas.STANZAQ}}}confirm") == "synced"
    wrongs: list[Any] = ["a", [1], [("a",)], [("a", 1)]]
    for wrong in wrongs:
        with pytest.raises(TypeError, match="no item to wait for"):
            make_item("jobs", 1, after=wrong, **rest)


@given(st.text(), st.floats(0, 43_200))
def test_reasons_fit(reason: str, delay: float) -> None:
    """Whatever an exception says can be told: what XML cannot hold is left out, and so is what is too long."""
    row = ET.fromstring(stanzas.release(Lock("jobs", "one", 7, 3), Release(reason, delay)))
    assert len(row.get("reason", "").encode()) <= 1024 and float(row.get("delay", "")) == round(delay)
    row = ET.fromstring(stanzas.release(Lock("jobs", "one", 7, 3), Release(reason, delay, dead=True)))
    assert row.get("dead-letter") == "true" and "delay" not in row.attrib


def test_a_delivery() -> None:
    """A delivery is read whole; a message that is none is not taken for one."""
    message = ET.fromstring("""
        <message xmlns='jabber:client' from='queue.example.org'>
          <event xmlns='http://jabber.org/protocol/pubsub#event'>
            <items node='jobs'><item id='one'><json xmlns='urn:xmpp:json:0'>[1]</json></item></items>
          </event>
          <lock xmlns='urn:stanzaq:0' node='jobs' item='one' token='42' attempt='2' of='20' partition='3' key='k'
                expires='2026-11-21T10:00:00.000Z' published='2026-11-21T09:00:00.000Z'/>
          <headers xmlns='http://jabber.org/protocol/shim'><header name='color'>red</header></headers>
        </message>""")
    (read,) = stanzas.deliveries(message)
    assert (read.lock, read.lock.partition, read.attempt, read.max_attempts) == (Lock("jobs", "one", 42), 3, 2, 20)
    assert (read.content, read.headers, read.key) == (Content(b"[1]", "application/json"), {"color": "red"}, "k")
    assert (read.deadline.hour, read.published) == (10, datetime(2026, 11, 21, 9, tzinfo=UTC))
    assert stanzas.deliveries(ET.fromstring("<message xmlns='jabber:client'><body>hello</body></message>")) == []


@pytest.mark.parametrize(
    ("kind", "condition", "passing"),
    [
        ("wait", "resource-constraint", True),
        ("cancel", "remote-server-not-found", True),
        ("cancel", "service-unavailable", True),
        ("wait", "unexpected-request", False),
        ("cancel", "item-not-found", False),
        ("auth", "forbidden", False),
    ],
)
def test_refusals(kind: str, condition: str, passing: bool) -> None:  # noqa: FBT001
    """What may pass by itself is asked again: a service that is away, a limit. A lock that has ended stays so."""
    error = f"<error type='{kind}'><{condition} xmlns='{stanzas.STANZAS}'/></error>"
    told = stanzas.refusal(ET.fromstring(f"<iq xmlns='jabber:client' type='error'>{error}</iq>"))
    assert told is not None and (told.condition, told.passing) == (condition, passing)
