"""Payloads that only programs with the key can read, on the service's own core; what cannot be trusted is a dead letter."""

import base64
import json
import re
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from hypothesis import given
from hypothesis import strategies as st

from stanzaq import Job, Reject, Retry, StanzaqError, Task, Worker, chain, group
from stanzaq.codec import JOSE
from stanzaq.encryption import AesGcm
from stanzaq.testing import TestBroker
from stanzaq.transport.interface import Content
from stanzaq.worker.worker import held

KEYS = {"2026-01": b"k" * 32, "2026-02": b"l" * 32}
CODEC = AesGcm(KEYS, "2026-01")
PLAIN = Content(b'{"card": 4711}', "application/json")


def sealed(codec: AesGcm = CODEC, node: str = "jobs") -> Content:
    """Encrypt a payload."""
    return codec.encode(PLAIN, node)


def test_as_others_read_it() -> None:
    """RFC 7516: a JWE in compact form, whose parts any program reads that has the key; two of one payload differ."""
    content = sealed()
    assert content.type == JOSE and content.body != sealed().body and b"4711" not in content.body
    parts = [base64.urlsafe_b64decode(part + b"=" * (-len(part) % 4)) for part in content.body.split(b".")]
    told = {"alg": "dir", "enc": "A256GCM", "kid": "2026-01", "cty": "application/json", "node": "jobs"}
    assert (json.loads(parts[0]), parts[1], len(parts[2])) == (told, b"", 12)
    header = content.body.split(b".")[0]
    assert AESGCM(KEYS["2026-01"]).decrypt(parts[2], parts[3] + parts[4], header) == PLAIN.body


@given(st.binary(max_size=300), st.text(), st.text(min_size=1))
def test_there_and_back(body: bytes, kind: str, node: str) -> None:
    """Any payload comes back, also by its text alone."""
    content = CODEC.encode(Content(body, kind), node)
    assert CODEC.decode(content, {node, "other"}) == Content(body, kind)
    assert CODEC.decode(Content(content.body, ""), (node,)) == Content(body, kind)


@given(st.integers(0, 400), st.integers(1, 255))
def test_any_change_is_noticed(place: int, change: int) -> None:
    """Whichever byte is changed, the payload is refused, or says the same."""
    body = bytearray(sealed().body)
    body[place % len(body)] ^= change
    try:
        assert CODEC.decode(Content(bytes(body), JOSE), {"jobs"}) == PLAIN
    except Reject:
        return


@pytest.mark.parametrize(
    ("content", "why"),
    [
        (sealed(AesGcm({"other": b"o" * 32}, "other")), "the key 'other', which this program has not: add it"),
        (sealed(AesGcm({"2026-01": b"o" * 32}, "2026-01")), "was changed on its way, or '2026-01' is another key"),
        (sealed(node="elsewhere"), "was encrypted for elsewhere, and somebody has brought it to jobs"),
        (PLAIN, r"\(application/json\) is not encrypted: its publisher needs the codec"),
        (Content(b"eyJ9.a.b.c", JOSE), "no JWE of this library"),
        (Content(b"bnVsbA....", JOSE), "no JWE of this library"),
    ],
)
def test_what_cannot_be_trusted(content: Content, why: str) -> None:
    """A key that is missing or another, another node, and what is not encrypted: one sentence each."""
    with pytest.raises(Reject, match=why) as caught:
        CODEC.decode(content, {"jobs"})
    assert len(str(caught.value)) <= 200


def test_other_keys() -> None:
    """Keys rotate: all decrypt, one encrypts; wrong ones are refused when the codec is made."""
    later = AesGcm(KEYS, "2026-02")
    assert CODEC.decode(sealed(later), {"jobs"}) == later.decode(sealed(), {"jobs"}) == PLAIN
    assert AesGcm(KEYS, "2026-01", accept_plain=True).decode(PLAIN, ()) == PLAIN
    short = AesGcm({"a": b"k" * 16}, "a")
    assert short.decode(sealed(short), {"jobs"}) == PLAIN
    with pytest.raises(ValueError, match="the current key '2027' is not among the keys '2026-01', '2026-02'"):
        AesGcm(KEYS, "2027")
    with pytest.raises(ValueError, match="the key 'a' is not 32 bytes"):
        AesGcm({"a": b"short"}, "a")


async def test_a_worker() -> None:
    """Payloads, results, passed results and what jobs publish are encrypted; headers stay readable; a redriven item is read."""
    worker, seen = Worker("xmpp://worker@example.org", codec=CODEC, concurrency=3), list[Any]()

    @worker.task("double")
    async def double(job: Job[int]) -> int:
        job.then("notes", f"doubled {job.payload}", headers={"color": "red"})
        return 2 * job.payload

    @worker.task("add")
    async def add(job: Job[list[int]]) -> int:
        return sum(job.payload)

    @worker.task("notes", retry=Retry(attempts=1))
    async def notes(job: Job[str]) -> None:
        seen.append((job.payload, job.headers.get("color")))

    @worker.schedule(5, every="1h")
    @worker.task("planned")
    async def planned(job: Job[int]) -> None:
        seen.append(job.payload)

    async with TestBroker(worker, nodes={"notes": {"pubsub#publish_model": "open"}}) as broker:
        assert await double.call(21) == 42
        assert await chain(group(double.item(1), double.item(2)), add).on(broker).call() == 6
        await broker.drain()
        await broker.advance("1h")
        assert broker.sent("notes")[0].payload.startswith("doubled")
        assert await broker.dead("notes") == []
    assert sorted(seen, key=str) == [*((f"doubled {number}", "red") for number in (1, 2, 21)), 5]


async def test_dead_letters() -> None:
    """A payload that cannot be read is a dead letter with the reason: nothing is lost, and no handler sees it."""
    worker, seen = Worker("xmpp://worker@example.org", codec=CODEC), list[Any]()

    @worker.task("jobs")
    async def jobs(job: Job[Any]) -> None:
        seen.append(job.payload)

    stranger = AesGcm({"2027-01": b"z" * 32}, "2027-01")
    async with TestBroker(worker) as broker:
        broker._codec = stranger
        await broker.publish("jobs", 1, id="unknown")
        broker._codec = CODEC
        await broker.publish("jobs", 2, id="known")
        await broker.drain()
        (letter,) = await broker.dead("jobs")
    assert seen == [2] and (letter.id, letter.attempts) == ("unknown", 1)
    assert "the key '2027-01', which this program has not" in letter.reason


async def test_where_it_died() -> None:
    """A worker on the node of dead letters reads what was encrypted for the queue, by the service's header."""
    worker, seen = Worker("xmpp://worker@example.org", codec=CODEC), list[Any]()

    @worker.task("jobs")
    async def jobs(_job: Job[str]) -> None:
        raise Reject("torn")  # noqa: EM101

    @worker.task("jobs/dead")
    async def dead(job: Job[str]) -> None:
        seen.append(job.payload)

    async with TestBroker(worker) as broker:
        await broker.publish("jobs", "a letter")
        await broker.drain()
    assert seen == ["a letter"]


async def test_without_a_codec() -> None:
    """A program without the key hands no cipher text to a handler, and is told so, unless the handler asks for bytes."""
    worker, seen = Worker("xmpp://worker@example.org"), list[Any]()

    @worker.task("jobs")
    async def jobs(job: Job[Any]) -> None:
        seen.append(job.payload)

    @worker.task("raw")
    async def raw(job: Job[bytes]) -> Any:  # noqa: ANN401
        return sealed(node="raw")

    async with TestBroker(worker) as broker:
        await broker.publish("jobs", sealed(), id="one")
        answer = await broker.publish("raw", b"", reply=True)
        await broker.drain()
        (letter,) = await broker.dead("jobs")
        with pytest.raises(StanzaqError, match="encrypted, and this program has no key"):
            await Task[bytes, int]("raw").on(broker).call(b"")
        assert (await answer.content()) is not None
    assert seen == [] and "give the Worker or the Publisher a codec" in letter.reason


async def test_documentation(monkeypatch: pytest.MonkeyPatch) -> None:
    """The worker with a codec in library.md does what is said of it."""
    page = (Path(__file__).parents[3] / "docs" / "library.md").read_text()
    (program,) = re.findall(r"```python\n# encrypted\.py\n(.*?)```", page, re.DOTALL)
    monkeypatch.setenv("ORDERS_KEY", base64.b64encode(b"k" * 32).decode())
    monkeypatch.setitem(sys.modules, "encrypted", ModuleType("encrypted"))
    with held():
        exec(program, vars(sys.modules["encrypted"]))  # noqa: S102
    module = vars(sys.modules["encrypted"])
    async with TestBroker(module["worker"]) as broker:
        assert await module["charge"].on(broker).call({"card": "4711"}) == "charged 4711"
