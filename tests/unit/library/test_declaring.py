"""Queues that a program declares: every option has its type, and a node is created, compared or changed as asked."""

import inspect
import logging
import re
from dataclasses import fields
from enum import Enum
from typing import Annotated, Any, Literal, get_args, get_origin

import pytest

from broker.model.nodes.fields import Decimal, Option, Weights, Whole, Words, boolean
from broker.model.nodes.nodes import form_values
from broker.model.nodes.options import OPTIONS, NodeConfig
from stanzaq import Job, Queue, StanzaqError, Task, Worker
from stanzaq.durations import Duration
from stanzaq.publisher.declaring import declare
from stanzaq.queue import Create
from stanzaq.testing import TestBroker
from stanzaq.transport.interface import Sender

_annotated: Any = Annotated


def _type(option: Option) -> Any:  # noqa: ANN401
    """Return the type that an option has in Python."""
    if option.choices:
        return Literal[option.choices]
    if option.read is boolean:
        return bool
    if isinstance(option.read, Whole | Decimal) and re.search(r"\bseconds\b", option.label, re.IGNORECASE):
        return Duration
    if isinstance(option.read, Words):
        return Literal["", *option.read.known, " ".join(option.read.known)]
    kinds: dict[type, Any] = {Whole: int, Decimal: float, Weights: dict[str, float]}
    return kinds.get(type(option.read), list[str] if option.many else str)


def test_options() -> None:
    """A queue has every option of the service, in its order, with its type: the table is `OPTIONS`, and no other one."""
    attributes = {option.attribute for option in OPTIONS}
    expected = []
    for option in OPTIONS:
        short = option.attribute.removesuffix("_seconds")
        name = option.attribute if short != option.attribute and short in attributes else short
        kind = _annotated[_type(option) | None, option.name]
        expected.append(("dead_letters" if name == "dead_letter_node" else name, kind))
    assert [(each.name, each.type) for each in fields(Queue)[1:]] == expected
    assert all(each.default is None for each in fields(Queue)[1:])
    assert {each.kind for each in list(inspect.signature(Queue).parameters.values())[1:]} == {
        inspect.Parameter.KEYWORD_ONLY
    }


def _value(kind: Any, default: Any) -> Any:  # noqa: ANN401
    """Return a value of a type; a default that the service has, if there is one."""
    if get_origin(kind) is dict:
        return {"key": 3.0, "other": 0.5}
    if get_origin(kind) is list:
        return ["a@example.org", "b@example.org"]
    return default.value if isinstance(default, Enum) else default


def test_values() -> None:
    """Each value is written as the service writes it."""
    config = NodeConfig()
    for option, each in zip(OPTIONS, fields(Queue)[1:], strict=True):
        if (value := _value(get_args(get_args(each.type)[0])[0], getattr(config, option.attribute))) is not None:
            (text,) = Queue("q", **{each.name: value}).options.values()
            read = option.read(text)
            assert option.show(type("", (), {option.attribute: read})) == text
    wanted = {"stanzaq#rate": "100/s", "stanzaq#retry_delay": "0.25", "stanzaq#result_seconds": "3600"}
    assert Queue("q", rate="100/s", retry_delay="250ms", result="1h").options == wanted
    assert Queue("q", dead_letters="", ordered=True, fair="key").options == {
        "stanzaq#fair": "key",
        "stanzaq#dead_letter_node": "",
        "stanzaq#ordered": "1",
    }


def test_bad_declarations() -> None:
    """What cannot be declared is told where it is written."""
    with pytest.raises(ValueError, match="'soon' is no length of time"):
        Queue("q", lock="soon")
    with pytest.raises(TypeError, match=r"'' is no name of a node: write Queue\("):
        Queue("")
    with pytest.raises(ValueError, match="create=True: it is 'never', 'if-missing' or 'update'"):
        Worker("xmpp://worker@example.org", create=True)  # type: ignore[arg-type]
    worker = Worker("xmpp://worker@example.org")
    worker.task(Queue("q", ordered=True), name="a")(_nothing)
    worker.task("q", name="b")(_nothing)
    with pytest.raises(ValueError, match="q is declared twice, and differently"):
        worker.task(Queue("q", ordered=False), name="c")(_nothing)


async def _nothing(_job: Job[Any]) -> None:
    """Do nothing."""


async def _declare(sender: Sender, create: Create, **options: Any) -> str:  # noqa: ANN401
    """Declare a queue; returns the refusal."""
    try:
        await declare(sender, Queue("thumbnails", **options), create)
    except StanzaqError as error:
        return f"{error.condition}: {error}"
    return ""


async def test_modes(caplog: pytest.LogCaptureFixture) -> None:
    """A missing node is created if asked, one that differs is changed if asked; otherwise each difference is told by its name."""
    caplog.set_level(logging.INFO, "stanzaq")
    worker = Worker("xmpp://worker@example.org")
    worker.task("other")(_nothing)
    async with TestBroker(worker):
        assert worker._publisher is not None and worker._publisher._sender is not None
        sender = worker._publisher._sender
        missing = 'item-not-found: cannot find thumbnails: item-not-found: create the node, or give create="if-missing"'
        assert await _declare(sender, "never", rate="50/s") == missing
        assert not await _declare(sender, "if-missing", rate="50/s")
        assert not await _declare(sender, "never", rate="50/s", dedupe="ignore", lock="1m")
        differs = "conflict: thumbnails: rate is 50/s, and the program declares 100/s"
        assert await _declare(sender, "never", rate="100/s") == differs
        several = await _declare(sender, "if-missing", rate="100/s", retry_limit="10s", rate_by_key="1/s", max_items=5)
        assert several == (
            "conflict: thumbnails: retry_limit is 3600s, and the program declares 10s"
            "; rate is 50/s, and the program declares 100/s; rate_by_key is empty, and the program declares 1/s"
            "; max_items is 1000000, and the program declares 5"
        )
        assert not await _declare(sender, "update", rate="100/s", lock="2m")
        assert await sender.options("thumbnails") == form_values(
            "thumbnails", NodeConfig(rate="100/s", lock_seconds=120, dedupe=_IGNORE, access_model=_OPEN)
        )
        assert "thumbnails changed: lock is 60s, and the program declares 120s" in caplog.text
        refused = await _declare(sender, "update", node_type="collection")
        assert refused.startswith("not-allowed: cannot change thumbnails: not-allowed (a leaf stays a leaf")


_IGNORE = type(NodeConfig().dedupe).IGNORE
_OPEN = type(NodeConfig().access_model).OPEN


async def test_in_a_test_broker() -> None:
    """Nodes under test are made as they are declared, beside the task and by the broker's own options."""
    worker = Worker("xmpp://worker@example.org")
    queue = Queue("jobs", max_deliveries=2, title="Jobs")
    task = worker.task(queue)(_nothing)
    assert task.queue == Task[int, None](queue).queue == queue and task.node == "jobs"
    async with TestBroker(worker):
        assert worker._publisher is not None
        await worker._publisher.declare(queue, create="never")
