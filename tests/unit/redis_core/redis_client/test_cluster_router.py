"""Which command goes to which master, in which order, and what is sent again: with masters that answer as told."""

import asyncio
import contextlib
import gc
import math
import sys
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

import pytest
from redis.crc import key_slot
from redis.exceptions import (
    AskError,
    ClusterDownError,
    MovedError,
    OutOfMemoryError,
    ReadOnlyError,
    ResponseError,
    TryAgainError,
)

from broker.address import Address
from broker.model.problems import CoreUnavailable, Problem
from broker.redis_core.redis_client.client import Server
from broker.redis_core.redis_client.cluster_router import ClusterRouter, Found, slot_of
from broker.redis_core.redis_client.connections import Line
from broker.redis_core.redis_client.node import CALL, RedisNode, Unsent
from tests.waiting import PATIENCE_SECONDS

A, B, C = (Address(host, 1) for host in "abc")
LAST = 16_383
LOW, HIGH, LOW_TOO = "sq:{7}:x", "sq:{1}:x", "sq:{3}:x"
"""Keys of slots in either half."""


def test_the_keys() -> None:
    """The keys of these tests are in the right slots, by Redis's own computation."""
    assert [key_slot(key.encode()) > LAST // 2 for key in (LOW, HIGH, LOW_TOO)] == [False, True, False]
    assert key_slot(LOW.encode()) != key_slot(LOW_TOO.encode())


class Told:
    """A master that answers as told, else `ok` and the command, and records what it was sent."""

    def __init__(self) -> None:
        """Begin with nothing heard."""
        self.heard: list[list[str]] = []
        self.answers: deque[Callable[[str], Any]] = deque()
        self.retired = False

    async def send(self, lines: Sequence[Line], _durable: object = None) -> list[Any]:
        """Answer as told."""
        self.heard.append([" ".join(map(str, line)) for line in lines])
        answer = self.answers.popleft() if self.answers else lambda said: f"ok {said}"
        replies = [answer(said) for said in self.heard[-1]]
        raised = next((reply for reply in replies if isinstance(reply, CoreUnavailable)), None)
        if raised:
            raise raised
        return replies

    async def retire(self) -> None:
        """Record that nobody needs it any more."""
        self.retired = True

    async def close(self) -> None:
        """Note the same."""
        self.retired = True


class Nodes:
    """The map: slots in the lower half are A's and the others B's, unless a test says otherwise."""

    fresh_seconds = math.inf

    def __init__(self) -> None:
        """Make all three; C serves nothing."""
        self.told = {address: Told() for address in (A, B, C)}
        self.found: Found | CoreUnavailable = [(0, LAST // 2, A), (LAST // 2 + 1, LAST, B)]
        self.asked = 0

    async def find(self) -> Found:
        """Return what is found, and count."""
        self.asked += 1
        if isinstance(self.found, CoreUnavailable):
            raise self.found
        return self.found

    def client_of(self, address: Address) -> RedisNode:
        """Give the one there."""
        return cast("RedisNode", self.told[address])

    async def close(self) -> None:
        """Nothing to close."""


@pytest.fixture
def nodes() -> Nodes:
    """Give three nodes."""
    return Nodes()


@pytest.fixture
def masters(nodes: Nodes) -> ClusterRouter:
    """Return the masters by those nodes; refused commands are tried for a fifth of a second."""
    return ClusterRouter(nodes, 0.2)


def get(key: str, word: str = "GET") -> tuple[str, str]:
    """Make a command."""
    return word, key


def failing(*errors: Exception | None) -> Callable[[str], Any]:
    """Answer one command after the other with these; None: with `ok`."""
    left = deque(errors)

    def answer(said: str) -> Any:  # noqa: ANN401  (what Redis answers)
        return left.popleft() or f"ok {said}"

    return answer


def test_slots() -> None:
    """The first key of a script decides, else the word after the command; without a key there is one fixed master."""
    assert slot_of(("CALL", "publish", 2, "a{x}", "b{x}", "arg")) == key_slot(b"x") == slot_of(("GET", "x"))
    assert slot_of(("TIME",)) == 0


async def test_one_round_trip_each(nodes: Nodes, masters: ClusterRouter) -> None:
    """Each master gets its commands once, in order, and the replies are in the order of the commands."""
    lines = [get(LOW, "1"), get(HIGH, "2"), get(LOW_TOO, "3"), get(HIGH, "4")]
    assert await masters.send(lines) == [f"ok {word} {key}" for word, key in lines]
    assert nodes.told[A].heard == [[f"1 {LOW}", f"3 {LOW_TOO}"]]
    assert nodes.told[B].heard == [[f"2 {HIGH}", f"4 {HIGH}"]]
    assert nodes.asked == 1


async def test_everywhere(nodes: Nodes, masters: ClusterRouter) -> None:
    """Each master that serves a slot is asked once and named by its address; with none known, the reason is reported."""
    known, nodes.found = nodes.found, CoreUnavailable("nobody")
    with pytest.raises(Unsent, match=r"^no Redis serves this slot now: nobody$"):
        await masters.everywhere(("INFO", "memory"))
    nodes.found = known
    assert await masters.everywhere(("INFO", "memory")) == {str(A): "ok INFO memory", str(B): "ok INFO memory"}
    assert [nodes.told[each].heard[-1:] for each in (A, B, C)] == [[["INFO memory"]], [["INFO memory"]], []]


async def test_returns(nodes: Nodes, masters: ClusterRouter) -> None:
    """A master that answers again, or is replaced, counts once: it may have lost what it wrote last. A moved slot does not."""
    for errors in ((CoreUnavailable("away"),), (None,), (None,)):
        nodes.told[A].answers.append(failing(*errors))
        with contextlib.suppress(CoreUnavailable):
            await masters.send([get(LOW)])
        await masters.send([get(HIGH)])
    assert masters.returns == 1
    nodes.found = [(0, 0, B), (1, LAST // 2, A), (LAST // 2 + 1, LAST, B)]
    nodes.told[A].answers.append(failing(MovedError(f"{key_slot(LOW.encode())} b:1")))
    assert await masters.send([get(LOW)]) == [f"ok GET {LOW}"]
    assert masters.returns == 1
    nodes.found = [(0, LAST // 2, C), (LAST // 2 + 1, LAST, B)]
    nodes.told[A].answers.append(failing(ReadOnlyError("READONLY replica")))
    assert await masters.send([get(LOW)]) == [f"ok GET {LOW}"]
    await masters.close()
    assert masters.returns == 2


async def test_moved(nodes: Nodes, masters: ClusterRouter) -> None:
    """MOVED is followed at once for the refused commands; the map is read again, and masters that left are closed."""
    await masters.send([get(LOW), get(HIGH)])
    nodes.told[A].answers.append(failing(None, MovedError(f"{key_slot(LOW.encode())} c:1")))
    nodes.found = [(0, LAST // 2, C), (LAST // 2 + 1, LAST, B)]
    lines = [get(LOW_TOO), get(LOW)]
    assert await masters.send(lines) == [f"ok GET {LOW_TOO}", f"ok GET {LOW}"]
    assert nodes.told[C].heard == [[f"GET {LOW}"]]
    await masters.send([get(LOW_TOO)])
    assert nodes.asked == 2 and nodes.told[A].retired and not nodes.told[B].retired
    assert nodes.told[C].heard[1:] == [[f"GET {LOW_TOO}"]]


async def test_moved_to_somebody_without_a_name(nodes: Nodes, masters: ClusterRouter) -> None:
    """A redirection to `?` leads nowhere: the map, which is read again, has the address."""
    await masters.send([get(LOW)])
    nodes.told[A].answers.append(failing(MovedError(f"{key_slot(LOW.encode())} ?:1")))
    nodes.found = [(0, LAST // 2, C), (LAST // 2 + 1, LAST, B)]
    assert await masters.send([get(LOW)]) == [f"ok GET {LOW}"]
    assert nodes.told[C].heard == [[f"GET {LOW}"]] and nodes.asked == 2


async def test_asked_this_once(nodes: Nodes, masters: ClusterRouter) -> None:
    """ASK is followed with ASKING before the command, this once, and changes nothing in the map."""
    nodes.told[A].answers.append(failing(AskError(f"{key_slot(LOW.encode())} c:1")))
    assert await masters.send([get(LOW)]) == [f"ok GET {LOW}"]
    assert nodes.told[C].heard == [["ASKING", f"GET {LOW}"]]
    await masters.send([get(LOW)])
    assert len(nodes.told[A].heard) == 2 and nodes.asked == 1


@pytest.mark.parametrize(
    "refusal",
    [TryAgainError("x"), ClusterDownError("x"), ReadOnlyError("x"), ResponseError("NOREPLICAS x"), Unsent("x")],
    ids=lambda refusal: type(refusal).__name__,
)
async def test_refused_for_now(nodes: Nodes, masters: ClusterRouter, refusal: Exception) -> None:
    """A temporarily refused command is sent again until it is served."""
    nodes.told[A].answers = deque(failing(refusal) for _ in range(3))
    assert await masters.send([get(LOW), get(HIGH)]) == [f"ok GET {LOW}", f"ok GET {HIGH}"]
    assert len(nodes.told[A].heard) == 4 and len(nodes.told[B].heard) == 1


async def test_asked_again_after_a_while(nodes: Nodes, masters: ClusterRouter) -> None:
    """A map that must be read again and again is read in the background: nobody waits for it."""
    nodes.fresh_seconds = 0
    await masters.send([get(LOW)])
    nodes.found = [(0, LAST, C)]
    await masters.send([get(LOW)])
    await asyncio.sleep(0)
    await masters.send([get(LOW)])
    assert [len(nodes.told[each].heard) for each in (A, C)] == [2, 1] and nodes.told[A].retired


async def test_refused_to_the_end(nodes: Nodes, masters: ClusterRouter) -> None:
    """When all is refused until the time is up, nothing has run and this is reported; another master's results stay."""
    nodes.told[A].answers = deque(failing(ClusterDownError("x", status_code="CLUSTERDOWN")) for _ in range(99))
    with pytest.raises(Unsent, match="CLUSTERDOWN"):
        await masters.send([get(LOW)])
    served, refused = await masters.send([get(HIGH), get(LOW)])
    assert served == f"ok GET {HIGH}" and isinstance(refused, ClusterDownError)


async def test_never_twice(nodes: Nodes, masters: ClusterRouter) -> None:
    """A command that may have run is not sent again, whatever became of the rest: it is one round trip that may be lost."""
    nodes.told[A].answers.append(failing(CoreUnavailable("cut", Problem.TIMED_OUT)))
    nodes.told[B].answers.append(failing(TryAgainError("x")))
    with pytest.raises(CoreUnavailable, match="cut") as raised:
        await masters.send([get(LOW), get(HIGH)])
    assert not isinstance(raised.value, Unsent)
    assert [len(nodes.told[each].heard) for each in (A, B)] == [1, 1]


async def test_a_defect_is_no_refusal(nodes: Nodes, masters: ClusterRouter) -> None:
    """A script that failed, or had no memory, is not sent again."""
    errors = ResponseError("ERR x"), OutOfMemoryError("x")
    nodes.told[A].answers.append(failing(*errors))
    assert await masters.send([get(LOW), get(LOW)]) == [*errors]
    assert len(nodes.told[A].heard) == 1


async def test_order_within_a_slot(nodes: Nodes, masters: ClusterRouter) -> None:
    """A command overtaken by a later one of its slot stays refused; commands after that one are sent again, in order."""
    nodes.told[A].answers.append(failing(TryAgainError("x"), None, TryAgainError("x"), None, TryAgainError("x")))
    lines = [get(LOW, "1"), get(LOW, "2"), get(LOW, "3"), get(LOW_TOO, "4"), get(LOW, "5")]
    overtaken, *others = await masters.send(lines)
    assert isinstance(overtaken, TryAgainError)
    assert others == [f"ok {word} {key}" for word, key in lines[1:]]
    assert nodes.told[A].heard[1:] == [[f"3 {LOW}", f"5 {LOW}"]]


async def test_one_way_at_a_time(nodes: Nodes, masters: ClusterRouter) -> None:
    """Commands of a slot that are sent two ways do not overtake each other: the later way waits."""
    nodes.told[A].answers.append(failing(AskError(f"{key_slot(LOW.encode())} c:1"), TryAgainError("x")))
    nodes.told[C].answers.append(failing(None, TryAgainError("x")))
    assert await masters.send([get(LOW, "1"), get(LOW, "2")]) == [f"ok 1 {LOW}", f"ok 2 {LOW}"]
    # The asked one was refused as well, so both went to the owner.
    assert nodes.told[C].heard == [["ASKING", f"1 {LOW}"]]
    assert nodes.told[A].heard[1:] == [[f"1 {LOW}", f"2 {LOW}"]]


async def test_nobody_known(nodes: Nodes, masters: ClusterRouter) -> None:
    """Without any known node nothing was sent; when one answers, all continue."""
    nodes.found = CoreUnavailable("nobody")
    with pytest.raises(Unsent, match="no Redis serves"):
        await masters.send([get(LOW)])
    assert nodes.asked > 2
    nodes.found = [(0, LAST, A)]
    assert await masters.send([get(LOW)]) == [f"ok GET {LOW}"]


async def test_what_was_known_still_serves(nodes: Nodes, masters: ClusterRouter) -> None:
    """While no node can give the map, the last known one is used: half of a cluster may work."""
    await masters.send([get(LOW), get(HIGH)])
    nodes.found = CoreUnavailable("nobody")
    nodes.told[A].answers = deque(failing(Unsent("x")) for _ in range(99))
    with pytest.raises(Unsent):
        await masters.send([get(LOW)])
    assert await masters.send([get(HIGH)]) == [f"ok GET {HIGH}"]


class Gone(Nodes):
    """Masters that are gone."""

    def client_of(self, address: Address) -> RedisNode:
        """Give a client of a port that nobody listens at."""
        return RedisNode({}, 0.2, None, Address("127.0.0.1", 1 if address == A else 2))


async def test_no_payload_is_kept() -> None:
    """Guarantee 6: what could not be sent to masters that are gone is let go, not when Python collects garbage."""
    server = Server(ClusterRouter(Gone(), 0.2), {}, 0.2)
    payload = bytes(1_000)
    held = sys.getrefcount(payload)
    gc.disable()
    try:
        for _ in range(2):
            with pytest.raises(CoreUnavailable):
                await server.run_all([(CALL, "publish", 1, key, payload) for key in (LOW, HIGH) for _ in range(10)])
        async with asyncio.timeout(PATIENCE_SECONDS):
            while sys.getrefcount(payload) > held:  # noqa: ASYNC110  (nobody tells when the last reference goes)
                await asyncio.sleep(0.01)
    finally:
        gc.enable()
