"""Batches: shared calls that keep each sender's order."""

# ruff: noqa: ANN401  (calls take commands of every kind)

from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from broker.model.commands import Publish, Purge, Renew, Retract
from broker.model.names import Jid
from broker.redis_core.commands.internal import Sweep
from broker.redis_core.partitions.batching import BYTES, LIMIT, Batch, make_batches, remove_later
from broker.tasks import Request

SENDERS = [Jid(f"{name}@x/1") for name in "abc"]


def ignored(_result: Any) -> None:
    """Answer nobody."""


def command(kind: str, sender: Jid) -> Any:
    """Make a command."""
    match kind:
        case "publish":
            return Publish("n", sender, None, b"", 0)
        case "retract":
            return Retract("n", sender, "i")
        case "renew":
            return Renew("n", sender, "i")
        case "purge":
            return Purge("n", sender)
        case _:
            return Sweep("n")


commands = st.builds(
    command, st.sampled_from(["publish", "retract", "renew", "purge", "expire"]), st.sampled_from(SENDERS)
)


def carried(batches: list[Batch]) -> list[Any]:
    """Return the commands in the order of their execution."""
    return [request.command for batch in batches for request in batch.requests]


@given(st.lists(commands, max_size=40))
def test_order_of_a_sender(given_commands: list[Any]) -> None:
    """Core.submit: in any mixture, each sender's commands stay in order and none is lost or doubled."""
    batches = make_batches(Request(command, ignored) for command in given_commands)
    order = [id(command) for command in carried(batches)]
    assert sorted(order) == sorted(map(id, given_commands))
    for sender in SENDERS:
        mine = [order.index(id(one)) for one in given_commands if getattr(one, "sender", "") == sender]
        assert all(first < second for first, second in pairwise(mine))
    assert all({type(request.command) for request in batch.requests} == {batch.kind} for batch in batches)
    assert all(len(batch.requests) == 1 for batch in batches if batch.call.row is None)


def test_gathers() -> None:
    """A hundred senders' acknowledgements and publishes are two calls."""
    senders = [Jid(f"w{n}@x/1") for n in range(100)]
    requests = [Request(command(kind, sender), ignored) for kind in ("retract", "publish") for sender in senders]
    assert [batch.kind for batch in make_batches(requests)] == [Retract, Publish]


def test_bound() -> None:
    """Guarantee 6: a call has a bounded number of commands."""
    sizes = [
        len(batch.requests)
        for batch in make_batches(Request(command("publish", SENDERS[0]), ignored) for _ in range(450))
    ]
    assert sizes == [LIMIT, LIMIT, 50]


def test_bound_of_bytes() -> None:
    """Guarantee 6: a call has about a megabyte of payload; a larger command goes alone."""
    big = [Publish("n", SENDERS[0], None, b"x" * size, size) for size in (BYTES // 2, BYTES // 2, 1, 2 * BYTES, 1)]
    assert [len(batch.requests) for batch in make_batches(Request(each, ignored) for each in big)] == [2, 1, 1, 1]


@given(st.lists(commands, min_size=1, max_size=40), st.data())
def test_order_of_what_goes_again(given_commands: list[Any], data: st.DataObject) -> None:
    """Core.submit: rows that a script has left over go again before later commands of their senders."""
    first, *later = make_batches(Request(command, ignored) for command in given_commands)
    done = data.draw(st.integers(0, len(first.requests)))
    again = make_batches(remove_later(first.requests[done:], later))
    order = [id(request.command) for request in first.requests[:done]]
    order += [id(command) for command in carried(later) + carried(again)]
    assert sorted(order) == sorted(map(id, given_commands))
    for sender in SENDERS:
        mine = [order.index(id(one)) for one in given_commands if getattr(one, "sender", "") == sender]
        assert all(earlier < following for earlier, following in pairwise(mine))
