"""Options that change at any moment: whatever they were before, every item goes out in the end, and nothing is left of it."""

import random
import secrets
from typing import TYPE_CHECKING, Any

import pytest

from broker.model.names import Partition
from broker.selectors.text import read
from broker.selectors.values import selects
from tests.lua.dependencies import note, record
from tests.lua.driver import Answer, Queue, Runner
from tests.seeds import seeds

if TYPE_CHECKING:
    from collections.abc import Callable

WORKERS, PULLERS, LAST = [f"w{n}@x/a" for n in range(4)], [f"p{n}@x/a" for n in range(2)], "last@x/a"
SELECTORS = "", "", "", "p.group-id = 'a'", "p.group-id IS NULL OR p.group-id <> 'b'"
HINTS = "", "", "", "500 4 0", "0 9 0", "0 0 3000", "700 4 5000"
STAYS = {"meta", "subscribers", "ready_subscribers", "idle_subscribers", "journal", "replays", "replays_old"}


class Play:
    """A node of one partition, and what is done to it by chance."""

    def __init__(self, runner: Runner, chance: random.Random) -> None:
        """Open the node."""
        self.queue = Queue(runner, Partition("jobs", secrets.token_hex(4)))
        self.chance, self.revision, self.made = chance, 0, 0
        self.waiting: list[str] = []
        self.pullers: dict[str, tuple[int, str]] = {}
        """The credit and the selector of each that is subscribed."""
        self.configure()

    def configure(self, **fixed: str) -> None:
        """Set options: those given, or any."""
        pick = self.chance.choice
        chosen: dict[str, Any] = {
            "by_key": pick(("", "", "1 0 0 0", "0 2 1000 0")),
            "limits": pick(("", "", "4 0 0 0", "0 3 1000 3")),
            "ordered": pick("001"),
            "fair": pick(("", "", "key")),
            "paused": pick("00001"),
            "keep_items": pick((0, 0, 5)),
            "lock_ms": pick((2_000, 60_000)),
            "retry_delay": pick(("", "500 4000 2 0.5")),
        }
        self.revision += 1
        self.queue.open(revision=self.revision, **(fixed or chosen))
        self.pass_time(0)

    def carry(self, answer: Answer) -> None:
        """Do what a frontend does after a call: bring moved items where they belong."""
        if letters := self.queue.letters(answer):
            self.queue.end(*(each.entry for each in letters))

    def pass_time(self, ms: int) -> None:
        """Let time pass, and sweep as long as there is something to do at once."""
        self.queue.now += ms
        for _turn in range(50):
            answer = self.queue.expire()
            self.carry(answer)
            if not answer.more:
                break
        else:
            pytest.fail("it is swept for ever")

    def publish(self) -> None:
        """Publish an item, perhaps one that waits for another."""
        self.made += 1
        item, key, hints = f"i{self.made}", self.chance.choice(("", "a", "b")), self.chance.choice(HINTS)
        if self.chance.random() < 0.1:
            answer = self.queue.publish(item, key=key, hints=f"{hints or '0 4 0'} \0{record('parent')}")
            self.waiting.append(answer.rows[0][3][1])
        else:
            answer = self.queue.publish(item, key=key, hints=hints)
        self.carry(answer)

    def subscribe(self, jid: str, credit: int, selector: str = "") -> None:
        """Subscribe."""
        sending = "pulled" if jid in PULLERS else "unacknowledged"
        if jid in PULLERS:
            self.pullers[jid] = credit, selector
        self.carry(self.queue.subscribe(jid, credit, sending, selector=selector))

    def leave(self, jid: str) -> None:
        """Unsubscribe, and perhaps keep what is held."""
        self.pullers.pop(jid, None)
        self.carry(self.queue.unsubscribe(jid, release=self.chance.choice(("", "1"))))

    def receive(self) -> None:
        """Let a pull subscription receive until it holds its credit, or only wait."""
        jid = self.chance.choice(PULLERS)
        if jid not in self.pullers:
            return
        credit, selector = self.pullers[jid]
        held = len(self.queue.locks(jid))
        row = self.queue.receiving(jid, credit, process=self.chance.choice(("", "p")))
        row |= {"limit": "*", "lease": "0", "selector": "="}
        answer = self.queue.run("receive", row, most=200, max_bytes=1_048_576)
        (code, _until, found, _more, now_held, *_rest) = answer.rows[0]
        # Only an item that was locked now has a wait.
        fresh = [item for item in found if len(item) > 10]
        assert (code, now_held) == ("ok", held + len(fresh)) and len(fresh) <= max(credit - held, 0)
        for item in fresh:
            assert not selector or selects(read(selector), {"p.group-id": item[6]} if item[6] else {})
        self.carry(answer)

    def end_lock(self) -> None:
        """Acknowledge or give back."""
        jid = self.chance.choice(WORKERS + PULLERS)
        for item, token, *_ in self.queue.locks(jid)[:2]:
            if self.chance.random() < 0.6:
                self.carry(self.queue.retract(jid, item, token))
            else:
                delay = self.chance.choice(("", 0, 700))
                self.carry(self.queue.unlock(jid, item, token, delay_ms=delay))

    def move(self) -> None:
        """Move an item that waits to another node."""
        found = [row for row in self.queue.run("inspect_items").rows[1] if row[2] in {"waiting", "delayed"}]
        for position, item, *_ in found[:1]:
            self.carry(self.queue.run("move_items", {"position": position, "item": item, "to": "other"}))

    def step(self) -> None:
        """Do anything."""
        chance = self.chance
        jid = chance.choice(WORKERS + PULLERS)
        does: dict[Callable[[], object], int] = {
            self.publish: 30,
            lambda: self.subscribe(jid, chance.choice((1, 3, 9)), chance.choice(SELECTORS)): 12,
            lambda: self.leave(jid): 6,
            self.receive: 12,
            self.end_lock: 24,
            self.move: 3,
            self.end_parent: 3,
            self.configure: 6,
            lambda: self.pass_time(chance.choice((1, 100, 1_000, 5_000))): 12,
        }
        chance.choices(list(does), weights=list(does.values()))[0]()

    def end_parent(self) -> None:
        """Let an item that waits for another go out."""
        if self.waiting:
            self.carry(note(self.queue, self.waiting.pop(), 1, "acknowledged"))

    def finish(self) -> None:
        """Lift all bounds, and let one worker do all that is left."""
        for jid in WORKERS + PULLERS:
            self.carry(self.queue.unsubscribe(jid, release="1"))
        while self.waiting:
            self.end_parent()
        self.configure(ordered="0")
        self.pass_time(4_000_000)
        self.subscribe(LAST, 1_000)
        for _turn in range(40):
            for item, token, *_ in self.queue.locks(LAST):
                self.carry(self.queue.retract(LAST, item, token))
            self.pass_time(6_000)
        self.pass_time(10_000_000)


@pytest.mark.parametrize("seed", seeds(2))
def test_by_chance(runners: dict[str, Runner], seed: int) -> None:
    """Nothing lost, guarantee 6: items, times, workers, moves and options in any order, and in the end nothing is left."""
    play = Play(Runner(runners["valkey"].client, checked=False), random.Random(seed))
    for _step in range(200):
        play.step()
    play.finish()
    queue = play.queue
    assert queue.browse() == {} and queue.kept() <= STAYS, queue.kept() - STAYS
    assert queue.retained() == (0, 0) and queue.client.xlen(queue.key("log")) == 0
