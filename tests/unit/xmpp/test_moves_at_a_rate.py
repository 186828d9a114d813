"""Moves at a rate, with a simulated core."""

import asyncio
import time
from dataclasses import dataclass, field

import pytest

from broker.model.commands import Command, MoveItems
from broker.model.core import Reply
from broker.model.names import Jid
from broker.model.problems import MalformedRequest, Problem
from broker.model.results import MovedItems, Refused, Result
from broker.tasks import FAILED
from frontends.xmpp.adhoc import move_batches
from frontends.xmpp.adhoc.move_batches import MoveBatches

_TRANSFER = MoveItems("jobs", Jid("a@x/1"), None, (), "", 1)


@dataclass
class PlayedCore:
    """A core that moves as many items as requested, of so many; `refused` once it has moved `until`."""

    items: int
    until: int = 10**9
    asked: list[MoveItems] = field(default_factory=list)
    moved: int = 0

    def submit(self, command: Command, reply: Reply) -> None:
        """Play no part here."""
        raise NotImplementedError(command)

    async def ask(self, command: Command) -> Result:
        """Move."""
        assert isinstance(command, MoveItems) and command.scan == (str(self.moved) if self.moved else "")
        if self.moved >= self.until:
            return Refused(Problem.UNAVAILABLE)
        self.asked.append(command)
        count = min(command.limit, self.items - self.moved)
        self.moved += count
        return MovedItems(count, {"it is locked": 1}, "" if self.moved == self.items else str(self.moved))


async def _taken(core: PlayedCore, rate: int, of: MoveBatches | None = None) -> Result:
    future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
    (of or MoveBatches(lambda: False)).submit(core, rate, _TRANSFER, future.set_result)
    return await future


async def test_to_the_end() -> None:
    """A batch goes to the end if that is near, in steps of a fifth of a second, and sums up."""
    core = PlayedCore(250)
    assert await _taken(core, 1000) == MovedItems(250, {"it is locked": 2}, "")
    assert [command.limit for command in core.asked] == [200, 200]


async def test_at_a_rate(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is no faster than its rate, and answers in time with where to continue."""
    monkeypatch.setattr(move_batches, "SECONDS", 0.3)
    core, began = PlayedCore(10**6), time.monotonic()
    outcome = await _taken(core, 50)
    took = time.monotonic() - began
    assert isinstance(outcome, MovedItems) and outcome.scan == str(outcome.count) == str(core.moved)
    assert 10 <= outcome.count <= 50 * took and took < 20


async def test_a_refusal_in_the_middle() -> None:
    """The moved items are counted with where to continue; a refusal of the first step is the answer."""
    assert await _taken(PlayedCore(1000, until=400), 10_000) == MovedItems(400, {"it is locked": 2}, "400")
    assert await _taken(PlayedCore(1000, until=0), 10_000) == Refused(Problem.UNAVAILABLE)


async def test_stopping() -> None:
    """A frontend that stops answers with where another one continues."""
    stopping = MoveBatches(lambda: True)
    assert await _taken(PlayedCore(1000), 10_000, stopping) == MovedItems(200, {"it is locked": 1}, "200")


async def test_not_too_many() -> None:
    """A JID with too many at once is told to ask later, and may when one of them is done."""
    of, core = MoveBatches(lambda: False), PlayedCore(10)
    first = [asyncio.ensure_future(_taken(PlayedCore(10), 10_000, of)) for _ in range(move_batches.AT_ONCE_OF_ONE)]
    await asyncio.sleep(0)
    with pytest.raises(MalformedRequest):
        await _taken(core, 10_000, of)
    await asyncio.gather(*first)
    assert await _taken(core, 10_000, of) == MovedItems(10, {"it is locked": 1}, "")


async def test_a_defect_is_answered() -> None:
    """A client is answered whatever goes wrong."""
    outcome = await _taken(PlayedCore(10, asked=None), 1)  # type: ignore[arg-type]
    assert outcome == FAILED
