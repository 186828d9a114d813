"""The documents agree with the code."""

import ast
import re
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

import stanzaq
from broker import keys
from broker.model.nodes.fields import Option
from broker.model.nodes.options import OPTIONS
from broker.redis_core.maintenance.heartbeat import HEARTBEAT_SECONDS
from broker.scaling.costs import read_costs
from broker.scaling.table import table
from broker.settings import CommandSettings, Settings
from frontends.xmpp import requests, stanzas
from frontends.xmpp.messages import deliveries, qos
from stanzaq import testing, xep_qos

ROOT = Path(__file__).parent.parent.parent
DOCS = ROOT / "docs"
_OF_STREAMS = {"condition", "domain", "reason", "remedy", "seconds", "text", "to", "unsent_bytes", "waiting"}
"""Further fields of single events, which describe themselves."""
EXAMPLES = re.findall(r"```xml\n(.*?)```", (DOCS / "protocol.md").read_text(), re.DOTALL)


@pytest.mark.parametrize("example", EXAMPLES, ids=range(len(EXAMPLES)))
def test_examples_are_understood(example: str) -> None:
    """Every request in protocol.md is one that the door translates, every reply to the service one that it reads."""
    for element in ET.fromstring(f"<stream xmlns='jabber:client'>{example}</stream>"):
        if not element.tag.endswith("}iq") or element.get("from", "").rpartition("@")[2] == "queue.example.org":
            continue
        if element.get("type") == "result":
            assert deliveries.parse_answer(element) is not None
            continue
        iq = stanzas.parse_iq(element)
        assert iq is not None
        of_qos = iq.element.find(qos.ANY) is not None
        assert (qos.read(iq, "queue.example.org") if of_qos else requests.read(iq)) is not None


def test_all_keys_are_listed() -> None:
    """operations.md has a row for each key, word for word as the table of keys."""
    page = (DOCS / "operations.md").read_text()
    for key in keys.TABLE:
        assert f"| `{key.name}` | {key.type} | {key.holder} | {key.meaning} | {key.bound} |" in page


def test_all_settings_are_listed() -> None:
    """operations.md has a row for each setting with its description."""
    page = (DOCS / "operations.md").read_text()
    for name, field in Settings.model_fields.items():
        assert re.search(rf"\| `{name.upper()}` \| .*\| {re.escape(str(field.description))} \|", page), name


def test_all_fields_of_logs_are_listed() -> None:
    """A field of a log line has one name everywhere, and operations.md describes it."""
    page = (DOCS / "operations.md").read_text()
    listed = set(re.findall(r"`(\w+)`", "".join(re.findall(r"^\| (`.*?) \|", page.split("## Logs")[1], re.MULTILINE))))
    for path in (*ROOT.glob("broker/**/*.py"), *ROOT.glob("frontends/**/*.py")):
        text = path.read_text()
        for call in ast.walk(ast.parse(text)) if "log." in text else ():
            match call:
                case ast.Call(ast.Attribute(ast.Name("log" | "_log"), "info" | "warning" | "error" | "exception")):
                    named = {word.arg for word in call.keywords if word.arg}
                    # `exc_info` is the traceback.
                    assert named <= listed | _OF_STREAMS | {"exc_info"}, (path.name, named - listed)


def test_all_options_are_listed() -> None:
    """protocol.md has a row for each node option with its default, its other names and its bounds."""
    page = (DOCS / "protocol.md").read_text()
    default = CommandSettings().node_defaults
    for option in OPTIONS:
        shown = option.show(default) or ("`NODE/dead`" if option.attribute == "dead_letter_node" else "")
        row = re.search(rf"\| `{re.escape(option.name)}` \| {re.escape(shown)} ?\|(.*)", page)
        assert row, option.name
        assert {*option.aliases, *_bounds(option)} <= set(re.findall(r"[\w#]+", row[1])), option.name


def _bounds(option: Option) -> list[str]:
    """Return the bounds in the option's refusal."""
    try:
        option.read("\0" * 1_000_000)
    except ValueError as fault:
        return [] if option.choices else re.findall(r"\d\d+", str(fault))
    return []


def test_figures_agree() -> None:
    """README has performance.md's jobs per second, its figure for two frontends, and its figures of other queues."""
    page, readme = (DOCS / "performance.md").read_text(), (ROOT / "README.md").read_text()
    jobs, ratio = (
        re.search(r"\| `jobs` \| ([\d,]+) .*\| ([\d.]+) \|", page),
        re.search(r"\| `two_frontends` .*\| ([\d.]+) \|", page),
    )
    assert jobs and ratio
    assert f"one frontend carries {jobs[1]} complete jobs a second" in readme
    assert (
        f"{jobs[2]} times what ejabberd's own pubsub" in readme and f"two frontends carry {ratio[1]} of that" in readme
    )
    rows = re.findall(r"^\| (\S.*?)(?:, in the worker's process|, one partition)? \| ([\d,]+) \|", readme, re.MULTILINE)
    measured = re.findall(r"^\| (\S.*?)(?:, one partition)? \| ([\d,]+) \|", page, re.MULTILINE)
    assert len(rows) > 5 and not set(rows) - set(measured)


def test_scaling_agrees_with_the_model() -> None:
    """scaling.md has the model's table, and the measured costs that it is fed with."""
    page, found = (DOCS / "scaling.md").read_text(), read_costs()
    assert (expected := table(found, HEARTBEAT_SECONDS)) in page, expected
    single, batched = found.single, found.batched
    for name, cost in (
        ("Redis", single.redis),
        ("frontend, single jobs", single.frontend),
        ("frontend, in batches of 20", batched.frontend),
        ("XMPP server, single jobs", single.xmpp),
        ("XMPP server, in batches of 20", batched.xmpp),
    ):
        wakes = f" {cost.wake_us} |" if cost.wake_us else " |"
        assert f"| {name} | {cost.item_us} | {cost.call_us} |{wakes}" in page
    assert f"A heartbeat costs Redis {single.beat_us} µs and its frontend {single.beat_frontend_us} µs." in page
    assert ("were measured under load" in page) != found.quiet
    assert f"a load average of {found.load_average} before" in page or found.quiet


def test_site(tmp_path: Path) -> None:
    """The site can be built: each page is in its contents, and each link to a file or to a heading finds it."""
    command = [sys.executable, "-m", "mkdocs", "build", "--site-dir", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=300)
    assert built.returncode == 0, built.stderr


def test_reference_has_all_names() -> None:
    """The reference has each public name, once."""
    pages = "".join(page.read_text() for page in (DOCS / "reference").iterdir())
    listed = re.findall(r"^::: (\S+)", pages, re.MULTILINE)
    public = {f"{module.__name__}.{name}" for module in (stanzaq, testing, xep_qos) for name in module.__all__}
    assert len(listed) == len(set(listed)) and public <= set(listed)
