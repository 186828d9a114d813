"""Options that change at any moment: whatever they were before, every item goes out in the end, and nothing is left of it."""

import random
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from broker.model.names import Partition
from broker.redis_core.operations.subscriptions import encode_selector
from broker.selectors.text import read
from broker.selectors.values import selects
from tests.lua.dependencies import note, record
from tests.lua.driver import Answer, Queue, Runner
from tests.lua.subscribed import carried, registered

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS, PULLERS, LAST = [f"w{n}@x/a" for n in range(4)], [f"p{n}@x/a" for n in range(2)], "last@x/a"
SELECTORS = "", "", "", "p.group-id = 'a'", "p.group-id IS NULL OR p.group-id <> 'b'"
HINTS = "", "", "", "500 4 0", "0 9 0", "0 0 3000", "700 4 5000"
STAYS = {"meta", "subscribers", "ready_subscribers", "idle_subscribers", "journal", "replays", "replays_old", "grants"}
# An audit removes who was unknown in a partition; a coordinator keeps the version of each partition's last demand.
STAYS |= {"ledger", "wanted"}


class Play:
    """A node of one partition or several, and what is done to it by chance."""

    def __init__(self, runner: Runner, partitions: int, chance: random.Random) -> None:
        """Open the node."""
        life = secrets.token_hex(4)
        self.parts = [Queue(runner, Partition("jobs", life, number)) for number in range(partitions)]
        self.chance, self.revision, self.made = chance, 0, 0
        self.waiting: list[tuple[Queue, str]] = []
        self.pullers: dict[str, tuple[int, str]] = {}
        """The credit and the selector of each that is subscribed."""
        self.configure()

    def configure(self, **fixed: str) -> None:
        """Set options: those given, or any."""
        pick = self.chance.choice
        chosen: dict[str, Any] = {
            "by_key": pick(("", "", "1 0 0 0", "0 2 1000 0")),
            # Only one partition has bounds of its node.
            "limits": pick(("", "", "4 0 0 0", "0 3 1000 3")) if len(self.parts) == 1 else "",
            "ordered": pick("001"),
            "fair": pick(("", "", "key")),
            "paused": pick("00001"),
            "keep_items": pick((0, 0, 5)),
            "lock_ms": pick((2_000, 60_000)),
            "retry_delay": pick(("", "500 4000 2 0.5")),
        }
        self.revision += 1
        for queue in self.parts:
            queue.open(revision=self.revision, partitions=len(self.parts), **(fixed or chosen))
        self.pass_time(0)

    def carry(self, queue: Queue, answer: Answer) -> None:
        """Do what a frontend does after a call: bring credit and moved items where they belong."""
        if answer.handovers:
            queue.letters(answer)
            queue.handed(*(each.position for each in answer.handovers))
        if len(self.parts) > 1:
            carried(self.parts, queue, answer)

    def pass_time(self, ms: int) -> None:
        """Let time pass, and sweep as long as there is something to do at once."""
        for queue in self.parts:
            queue.now += ms
        for queue in self.parts:
            for _turn in range(50):
                answer = queue.expire()
                self.carry(queue, answer)
                if not answer.more:
                    break
            else:
                pytest.fail("it is swept for ever")

    def publish(self, queue: Queue) -> None:
        """Publish an item, perhaps one that waits for another."""
        self.made += 1
        item, key, hints = f"i{self.made}", self.chance.choice(("", "a", "b")), self.chance.choice(HINTS)
        if self.chance.random() < 0.1:
            answer = queue.publish(item, key=key, hints=f"{hints or '0 4 0'} \0{record('parent')}")
            # The answer names the item, whose position is in a record.
            found = queue.run("read_dependents", {"item": item, "position": ""}).rows[0]
            self.waiting += [(queue, found[2])] if len(found) > 2 else []
        else:
            answer = queue.publish(item, key=key, hints=hints)
        self.carry(queue, answer)

    def subscribe(self, jid: str, credit: int, selector: str = "") -> None:
        """Subscribe."""
        coordinator, sending = self.parts[0], "pulled" if jid in PULLERS else "unacknowledged"
        answer = coordinator.subscribe(jid, credit, sending, selector=selector)
        if jid in PULLERS:
            self.pullers[jid] = credit, selector
        number = str(answer.rows[0][3])
        if number != "0":
            self.carry(coordinator, registered(self.parts, jid, number, selector, sending))
        self.carry(coordinator, answer)

    def leave(self, jid: str) -> None:
        """Unsubscribe, and perhaps keep what is held; credit on its way comes too late."""
        self.pullers.pop(jid, None)
        release = self.chance.choice(("", "1"))
        answers = [(queue, queue.unsubscribe(jid, release=release)) for queue in self.parts]
        for queue, answer in answers:
            self.carry(queue, answer)

    def receive(self, queue: Queue) -> None:
        """Let a pull subscription receive from a partition until it holds its credit in all, or only wait there."""
        jid = self.chance.choice(PULLERS)
        if jid not in self.pullers:
            return
        credit, selector = self.pullers[jid]
        held = {each.partition.number: len(each.locks(jid)) for each in self.parts}
        here, total = held[queue.partition.number], sum(held.values())
        row = queue.receiving(jid, max(credit - total + here, 0), process=self.chance.choice(("", "p")))
        row["selector"] = encode_selector(selector)
        if len(self.parts) == 1:
            row |= {"limit": "*", "lease": "0", "selector": "="}
        answer = queue.run("receive", row, most=200, max_bytes=1_048_576)
        (code, _until, found, _more, now_held, *_rest) = answer.rows[0]
        # Only an item that was locked now has a wait.
        fresh = [item for item in found if len(item) > 10]
        assert (code, now_held) == ("ok", here + len(fresh)) and len(fresh) <= max(credit - total, 0)
        for item in fresh:
            assert not selector or selects(read(selector), {"p.group-id": item[6]} if item[6] else {})
        self.carry(queue, answer)

    def end_lock(self, queue: Queue) -> None:
        """Acknowledge or give back."""
        jid = self.chance.choice(WORKERS + PULLERS)
        for item, token, *_ in queue.locks(jid)[:2]:
            if self.chance.random() < 0.6:
                self.carry(queue, queue.retract(jid, item, token))
            else:
                delay = self.chance.choice(("", 0, 700))
                self.carry(queue, queue.unlock(jid, item, token, delay_ms=delay))

    def move(self, queue: Queue) -> None:
        """Move an item that waits to another node."""
        found = [row for row in queue.run("inspect_items").rows[1] if row[2] in {"waiting", "delayed"}]
        for position, item, *_ in found[:1]:
            self.carry(queue, queue.run("move_items", {"position": position, "item": item, "to": "other"}))

    def step(self) -> None:
        """Do anything."""
        chance, queue = self.chance, self.chance.choice(self.parts)
        jid = chance.choice(WORKERS + PULLERS)
        does: dict[Callable[[], object], int] = {
            lambda: self.publish(queue): 30,
            lambda: self.subscribe(jid, chance.choice((1, 3, 9)), chance.choice(SELECTORS)): 12,
            lambda: self.leave(jid): 6,
            lambda: self.receive(queue): 12,
            lambda: self.end_lock(queue): 24,
            lambda: self.move(queue): 3,
            self.end_parent: 3,
            self.configure: 6,
            lambda: self.pass_time(chance.choice((1, 100, 1_000, 5_000))): 12,
        }
        chance.choices(list(does), weights=list(does.values()))[0]()

    def end_parent(self) -> None:
        """Let an item that waits for another go out."""
        if self.waiting:
            queue, position = self.waiting.pop()
            self.carry(queue, note(queue, position, 1, "acknowledged"))

    def finish(self) -> None:
        """Lift all bounds, and let one worker do all that is left."""
        for jid in WORKERS + PULLERS:
            for queue in self.parts:
                self.carry(queue, queue.unsubscribe(jid, release="1"))
        while self.waiting:
            self.end_parent()
        self.configure(ordered="0")
        self.pass_time(4_000_000)
        self.subscribe(LAST, 1_000)
        for _turn in range(40):
            for queue in self.parts:
                for item, token, *_ in queue.locks(LAST):
                    self.carry(queue, queue.retract(LAST, item, token))
            self.pass_time(6_000)
        self.pass_time(10_000_000)


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("seed", range(8))
def test_by_chance(runners: dict[str, Runner], partitions: int, seed: int) -> None:
    """Nothing lost, guarantee 6: items, times, workers, moves and options in any order, and in the end nothing is left."""
    play = Play(Runner(runners["valkey"].client, checked=False), partitions, random.Random(seed))
    for _step in range(200):
        play.step()
    play.finish()
    for queue in play.parts:
        assert queue.browse() == {} and queue.kept() <= STAYS, queue.kept() - STAYS
        assert queue.retained() == (0, 0) and queue.client.xlen(queue.key("log")) == 0
