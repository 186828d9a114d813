"""`stanzaq worker` and `stanzaq publish`: what they run and send, and what they say when they cannot."""

import asyncio
import io
import sys
from pathlib import Path
from typing import Any, Final
from xml.etree.ElementTree import Element

import pytest

from stanzaq import Worker
from stanzaq.command import shell
from stanzaq.payloads import JSON
from stanzaq.publisher.publisher import Publisher, Reply
from stanzaq.transport.interface import Content, Outcome

_TASKS: Final = """
from stanzaq import Worker

worker = Worker("xmpp://w@example.org", password="x", prefetch=2)
other = 1
"""


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """Note what is published; nothing connects."""
    found: list[Any] = []

    async def publish(_self: Publisher, node: str, payload: Any, **hints: Any) -> str:  # noqa: ANN401
        found.append((node, payload, {name: value for name, value in hints.items() if value}))
        return f"item-{len(found)}"

    async def enter(self: Publisher) -> Publisher:
        return self

    async def leave(_self: Publisher, *_: object) -> None:
        pass

    monkeypatch.setattr(Publisher, "publish", publish)
    monkeypatch.setattr(Publisher, "__aenter__", enter)
    monkeypatch.setattr(Publisher, "__aexit__", leave)
    monkeypatch.setenv("STANZAQ_URL", "xmpp://p@example.org")
    return found


def test_published(sent: list[Any], capsys: pytest.CaptureFixture[str]) -> None:
    """JSON goes out as it was written, as often as is asked, with its hints; the ids are printed."""
    asked = ["--json", '{"a": 1}', "--key", "k", "--delay", "600.5", "--priority", "7", "--ttl", "1h", "--count", "2"]
    shell.main(["publish", "orders", *asked])
    hints = {"key": "k", "delay": 600.5, "priority": 7, "ttl": "1h"}
    assert sent == [("orders", Content(b'{"a": 1}', JSON), hints)] * 2
    assert capsys.readouterr().out == "item-1\nitem-2\n"
    sent.clear()
    shell.main(["publish", "orders", "--json", "1", "--at", "2026-12-01T09:00:00+01:00"])
    assert [hints["at"].isoformat() for _, _, hints in sent] == ["2026-12-01T09:00:00+01:00"]


def test_task(sent: list[Any]) -> None:
    """The name of a task is a header."""
    shell.main(["publish", "orders", "--json", "1", "--task", "resize"])
    assert sent == [("orders", Content(b"1", JSON), {"headers": {"task": "resize"}})]


@pytest.fixture
def outcomes(sent: list[Any], monkeypatch: pytest.MonkeyPatch) -> list[Outcome]:
    """Let each item that is published end as the next of these; nothing connects."""
    found: list[Outcome] = []

    async def publish(_self: Publisher, *_: object, reply: bool, **_more: object) -> Reply:
        async def ended() -> Outcome:
            return found.pop(0)

        assert reply and not sent
        return Reply("one", ended, asyncio.create_task(asyncio.sleep(60)))

    monkeypatch.setattr(Publisher, "publish", publish)
    return found


def test_replies(outcomes: list[Outcome], capfdbinary: pytest.CaptureFixture[bytes]) -> None:
    """Results are printed as the handler returned them, in place of ids; there may be none."""
    results = [Content(b'{"a":1}', JSON), None, Content(b"\xff", "image/png")]
    outcomes += [Outcome("acknowledged", result=result) for result in results]
    shell.main(["publish", "orders", "--json", "1", "--reply", "--count", "3"])
    sys.stdout.flush()
    assert capfdbinary.readouterr().out == b'{"a":1}\n\xff'


@pytest.mark.parametrize("outcome", [Outcome("dead", "no such picture"), Outcome("expired")])
def test_no_replies(outcome: Outcome, outcomes: list[Outcome]) -> None:
    """An item that no worker has completed is told in a sentence, and is an error."""
    outcomes.append(outcome)
    with pytest.raises(
        SystemExit, match=f"^stanzaq: one is {outcome.state}{': no such picture' if outcome.reason else ''}$"
    ):
        shell.main(["publish", "orders", "--json", "1", "--reply"])


_FILES: Final = [
    ("a.json", b"[1]", Content(b"[1]", JSON)),
    ("a.png", b"\xff", Content(b"\xff", "image/png")),
    ("a", b"\xff", b"\xff"),
    ("-", b"text", "text"),
    ("-", b"\xff", b"\xff"),
]
"""Names, what is in them, and payloads."""


@pytest.mark.parametrize("file", _FILES)
def test_files(file: Any, sent: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: ANN401
    """A file's type follows from its name; standard input is text, or bytes."""
    name, body, payload = file
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(body)))
    (tmp_path / name).write_bytes(body)
    monkeypatch.chdir(tmp_path)
    shell.main(["publish", "orders", *(["-"] if name == "-" else ["--file", name])])
    assert [each[1] for each in sent] == [payload]


def test_parents(sent: list[Any]) -> None:
    """Items to wait for are ids, or nodes with ids."""
    given = ["--after", "a", "--after", "n%23#b%20c", "--regardless", "--keep", "--confirm", "synced"]
    shell.main(["publish", "orders", "--json", "1", *given])
    assert (sent[0][2]["after"], sent[0][2]["regardless"]) == ([("", "a"), ("n#", "b c")], True)
    assert sent[0][2]["keep"] is True and sent[0][2]["confirm"] == "synced"


def test_xml(sent: list[Any], tmp_path: Path) -> None:
    """A file of XML is an element."""
    (tmp_path / "a.xml").write_text("<?xml version='1.0'?>\n<a xmlns='urn:x'/>")
    shell.main(["publish", "orders", "--file", str(tmp_path / "a.xml")])
    assert isinstance(sent[0][1], Element) and sent[0][1].tag == "{urn:x}a"


@pytest.mark.parametrize(
    "case",
    [
        (["publish", "orders", "--json", "{"], "--json is not JSON: "),
        (["publish", "orders", "--json", '{"a": NaN}'], "--json is not JSON: "),
        (["publish", "orders", "--json", "[-Infinity]"], "--json is not JSON: "),
        (["publish", "orders", "--json", ""], "--json is not JSON: "),
        (["publish", "orders", "--json", "1 2"], "--json is not JSON: "),
        (["publish", "orders", "--json", "1", "--delay", "soon"], "'soon' is no length of time"),
        (["publish", "orders", "--json", "1", "--at", "tomorrow"], "--at tomorrow: no time: write e.g. 2026-"),
        (["publish", "orders", "--json", "1", "--count", "0"], "publish at least one"),
        (["publish", "orders", "--json", "1", "--url", "http://a@example.org"], "write https"),
        (["publish", "orders", "--json", "1", "--url", ""], "Set STANZAQ_URL, or give --url"),
        (["publish", "orders", "--file", "not-there"], "No such file or directory: 'not-there'"),
        (["worker", "tasks"], "write MODULE:NAME, e.g. tasks:worker"),
        (["worker", "nothing.there:worker"], "there is no module nothing.there here"),
        (["worker", "example_tasks:other"], "example_tasks has no stanzaq.Worker called other; it has worker"),
        (["worker", "example_tasks:worker", "--concurrency", "0"], "--concurrency 0: at least one job runs at once"),
        (["worker", "example_tasks:worker", "--processes", "0"], "--processes 0: at least one runs"),
        (["worker", "tasks", "--processes", "2"], "write MODULE:NAME, e.g. tasks:worker"),
    ],
)
def test_errors(
    case: tuple[list[str], str],
    sent: list[Any],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """What cannot be done is told in one line, with what to do, and has the exit code of wrong use."""
    arguments, told = case
    (tmp_path / "example_tasks.py").write_text(_TASKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(SystemExit) as ended:
        shell.main(arguments)
    (line,) = capsys.readouterr().err.splitlines()
    assert told in line and ended.value.code == 2 and sent == []


def test_a_module_that_is_broken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the module itself raises is not hidden."""
    (tmp_path / "broken_tasks.py").write_text("import nothing_that_is_there")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with pytest.raises(ModuleNotFoundError, match="nothing_that_is_there"):
        shell.main(["worker", "broken_tasks:worker"])


def test_worker(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker runs with its own concurrency, or with the one that is given."""
    ran: list[tuple[int, int]] = []

    def run(worker: Worker) -> None:
        ran.append((worker._concurrency, worker._credit))

    async def serve(worker: Worker) -> None:
        run(worker)

    monkeypatch.setattr(Worker, "serve", serve)
    monkeypatch.setattr("logging.basicConfig", lambda **_: None)
    (tmp_path / "example_workers.py").write_text(_TASKS)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "example_workers", raising=False)
    for more in ([], ["--concurrency", "20"]):
        shell.main(["worker", "example_workers:worker", *more])
    assert ran == [(1, 3), (20, 22)]


def test_reload(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    """`--reload` runs the same command in another process; without watchfiles it says what to install."""
    ran: list[tuple[Any, Any]] = []
    monkeypatch.setattr("watchfiles.run_process", lambda *where, **how: ran.append((where, how["target"])))
    shell.main(["worker", "tasks:worker", "--concurrency", "3", "--processes", "2", "--reload"])
    assert ran == [((".",), f"{sys.executable} -m stanzaq worker tasks:worker --concurrency 3 --processes 2")]
    monkeypatch.setattr(shell, "find_spec", lambda _: None)
    with pytest.raises(SystemExit):
        shell.main(["worker", "tasks:worker", "--reload"])
    assert "pip install 'stanzaq[reload]'" in capsys.readouterr().err
