"""Exceptions that are retried and those that are not, by their classes, wherever the handler runs."""

import asyncio
import os
from typing import Any

import pytest
from prometheus_client import REGISTRY

from stanzaq import Job, Reject, Retry, Worker, metrics
from stanzaq.retry import Kinds, ProcessDiedError, UnsentError, decide_return
from stanzaq.testing import TestBroker
from tests.unit.library.test_runs import OddError


class TornError(Reject):
    """A Reject that cannot be made again from its arguments."""

    def __init__(self, first: str, second: str) -> None:
        """Keep them joined."""
        super().__init__(first + second)


def fail(job: Job[str]) -> None:
    """Fail as the payload says."""
    match job.payload:
        case "value":
            raise ValueError(job.id)
        case "key":
            raise KeyError(job.id)
        case "odd":
            raise OddError("a", "b")  # noqa: EM101
        case "local":
            raise type("LocalError", (OddError,), {})(*"ab")
        case "torn":
            raise TornError("to", "rn")  # noqa: EM101
        case "later":
            raise Retry(delay=0) from ValueError("busy")
        case "dies" if job.attempt == 1:
            os._exit(1)


async def fail_in_loop(job: Job[str]) -> None:
    """Fail likewise."""
    fail(job)


def worker(concurrency: int = 1) -> Worker:
    """Make a worker."""
    return Worker("xmpp://worker@example.org", password="x", concurrency=concurrency)


@pytest.mark.parametrize("run_in", ["loop", "thread", "process"])
async def test_never_retried(run_in: Any) -> None:  # noqa: ANN401
    """An exception of a class of `never_retry` ends its item at once, others are retried, wherever they are raised."""
    made = worker()
    handler: Any = fail_in_loop if run_in == "loop" else fail
    made.task("jobs", retry=Retry(3, delay=0), run_in=run_in, never_retry=(ValueError, OddError))(handler)
    async with TestBroker(made) as broker:
        for payload in ("value", "key", "odd", "local", "torn", "later"):
            await broker.publish("jobs", payload, id=payload)
        await broker.drain()
        dead = {letter.id: (letter.attempts, letter.reason) for letter in await broker.dead("jobs")}
    torn = "not retried: TornError: torn" if run_in == "process" else "torn"
    # A Retry that is raised names no cause that has come from another process.
    later = "Retry: again after 0 s" if run_in == "process" else "ValueError: busy"
    assert dead == {
        "value": (1, "not retried: ValueError: value"),
        "key": (3, "attempt 3 of 3 failed: KeyError: 'key'"),
        "odd": (1, "not retried: OddError: ab"),
        "local": (1, "not retried: LocalError: ab"),
        "torn": (1, torn),
        "later": (3, f"attempt 3 of 3 failed: {later}"),
    }


async def test_retried_on() -> None:
    """With `retry_on` all other exceptions end their items at once; what `never_retry` names ends them in any case."""
    made = worker()

    @made.task(
        "jobs", retry=Retry(2, delay=0), timeout="20ms", retry_on=[LookupError, TimeoutError], never_retry={KeyError}
    )
    async def _job(job: Job[str]) -> None:
        await asyncio.sleep(60 if job.payload == "late" else 0)
        raise {"value": ValueError, "index": IndexError, "key": KeyError}[job.payload](job.id)

    async with TestBroker(made) as broker:
        for payload in ("value", "index", "key", "late"):
            await broker.publish("jobs", payload, id=payload)
        await broker.drain()
        dead = {letter.id: (letter.attempts, letter.reason) for letter in await broker.dead("jobs")}
    assert dead == {
        "value": (1, "not retried: ValueError: value"),
        "index": (2, "attempt 2 of 2 failed: IndexError: index"),
        "key": (1, "not retried: KeyError: 'key'"),
        "late": (2, "attempt 2 of 2 failed: TimeoutError: not done in 0.02 s"),
    }


async def test_a_process_that_dies_is_retried() -> None:
    """A process that is killed has raised nothing: its item is tried again whatever the handler's exceptions are."""
    made = worker()
    made.task("jobs", retry=Retry(delay=0), run_in="process", retry_on=(), never_retry=(RuntimeError,))(fail)
    async with TestBroker(made) as broker:
        await broker.publish("jobs", "dies", keep=True, id="one")
        await broker.drain()
        assert await broker.dead("jobs") == []


async def test_metrics_know_it() -> None:
    """What is not retried counts as dead."""
    made = worker()
    made.middleware(metrics.measured)
    made.task("kinds", retry=Retry(2, delay=0), never_retry=(ValueError,))(fail)

    def count(outcome: str) -> float:
        return REGISTRY.get_sample_value("stanzaq_worker_jobs_total", {"node": "kinds", "outcome": outcome}) or 0

    async with TestBroker(made) as broker:
        await broker.publish("kinds", "value")
        await broker.publish("kinds", "key")
        await broker.drain()
    assert (count("dead"), count("retried")) == (2, 1)


def test_all_kinds() -> None:
    """Without these options every exception is retried."""
    for fault in (ValueError("x"), ProcessDiedError("x"), UnsentError(ValueError, "ValueError", "x"), Retry()):
        assert not decide_return(fault, 1, 0, Retry()).dead
        assert decide_return(fault, 1, 0, Retry(), Kinds(only=())).dead == (
            not isinstance(fault, (ProcessDiedError, Retry))
        )


def _plain(_job: Job[Any]) -> None:
    """Do nothing."""


@pytest.mark.parametrize("option", ["retry_on", "never_retry"])
@pytest.mark.parametrize(
    ("given", "said"),
    [
        (
            ValueError,
            r"={0}=<class 'ValueError'> for _plain: it takes classes of exceptions: write {0}=\(TimeoutError,\)",
        ),
        ((ValueError("x"),), r"={0}=\(ValueError\('x'\),\) for _plain: it takes classes of exceptions"),
        ((ValueError, "KeyError"), r"={0}=.*'KeyError'\) for _plain: it takes classes of exceptions"),
        ([int], r"={0}=\[<class 'int'>\] for _plain: it takes classes of exceptions"),
        ((KeyboardInterrupt,), r"={0}=.*KeyboardInterrupt.* for _plain: it takes classes of exceptions"),
        ("ValueError", r"={0}='ValueError' for _plain: it takes classes of exceptions"),
        (3, r"={0}=3 for _plain: it takes classes of exceptions"),
        ((Reject,), "={0} for _plain names Reject, which says itself what becomes of the item: leave it out"),
        ((ValueError, Retry), "={0} for _plain names Retry, which says itself what becomes of the item"),
    ],
)
def test_refused(option: str, given: Any, said: str) -> None:  # noqa: ANN401
    """What is no class of exceptions is refused when the handler is registered, in one sentence."""
    with pytest.raises(TypeError, match=said.format(option).removeprefix("=")) as refused:
        worker().task("jobs", **{option: given})(_plain)
    assert "\n" not in str(refused.value)
