"""lua/lib/limits/hand_out_limits.lua: a node's rate and its most items in flight (stanzaq#rate, stanzaq#max_in_flight)."""

import random
import secrets
from fractions import Fraction
from itertools import cycle

import pytest

from broker.model.names import Partition
from broker.model.nodes.options import NodeConfig
from tests.contract.model import Bucket, Rate
from tests.lua.driver import T0, Answer, Queue, Runner
from tests.lua.worded import W1, W2
from tests.seeds import seeds


def limits(rate: str = "", rate_burst: int = 0, max_in_flight: int = 0) -> str:
    """Return these limits as a partition has them."""
    return NodeConfig(rate=rate, rate_burst=rate_burst, max_in_flight=max_in_flight).limits


def limited(queue: Queue, rate: str = "", rate_burst: int = 0, max_in_flight: int = 0) -> None:
    """Open a queue with these limits."""
    queue.open(limits=limits(rate, rate_burst, max_in_flight))


def items(answer: Answer) -> list[str]:
    """Return what was handed out."""
    return [item for _jid, item in answer.given]


def bucket(rate: str, burst: int = 0) -> Bucket:
    """Return the oracle of a rate."""
    number, _, period = rate.partition("/")
    return Bucket(Rate(int(number), {"s": 1_000, "m": 60_000, "h": 3_600_000}[period], burst), T0)


def test_most_in_flight(unopened: Queue) -> None:
    """All workers together hold no more than the bound; each lock that ends lets the next item go out at once."""
    limited(unopened, max_in_flight=3)
    unopened.publish(*"abcdef")
    assert items(unopened.subscribe(W1, 2)) == ["a", "b"]
    assert items(unopened.subscribe(W2, 9)) == ["c"]
    assert unopened.expire().due == T0 + 60_000
    assert items(unopened.retract(W1, "a")) == ["d"]
    assert items(unopened.unlock(W2, "c", delay_ms=5_000)) == ["e"]
    unopened.now += 60_000
    assert items(unopened.expire()) == ["b", "c", "d"]


def test_the_bound_is_changed(unopened: Queue) -> None:
    """A lower bound takes nothing back and holds as locks end; a higher one is filled by the sweep that follows."""
    limited(unopened, max_in_flight=3)
    unopened.publish(*"abcdef")
    unopened.subscribe(W1, 9)
    unopened.open(revision=2, limits="1 0 0 0")
    assert items(unopened.retract(W1, "a")) == items(unopened.retract(W1, "b")) == []
    assert items(unopened.retract(W1, "c")) == ["d"]
    unopened.open(revision=3)
    assert items(unopened.expire()) == ["e", "f"]
    assert not {b"limits", b"rate_at"} & unopened.client.hgetall(unopened.key("meta")).keys()


def test_a_burst_and_then_one_by_one(unopened: Queue) -> None:
    """A rate hands out a burst at once, then one item in each interval; the partition is due exactly then."""
    limited(unopened, rate="4/s", rate_burst=2)
    unopened.publish(*"abcde")
    answer = unopened.subscribe(W1, 9)
    assert (items(answer), answer.due) == (["a", "b"], T0 + 250)
    unopened.now += 249
    assert (items(unopened.expire()), unopened.expire().due) == ([], T0 + 250)
    unopened.now += 1
    answer = unopened.retract(W1, "a")
    assert (items(answer), answer.due) == (["c"], T0 + 500)
    unopened.now += 10_000
    answer = unopened.expire()
    # Nothing waits any more: only the locks are due.
    assert (items(answer), answer.due) == (["d", "e"], T0 + 60_000)


def test_nobody_polls(unopened: Queue) -> None:
    """Without credit, or without items, an empty bucket is no reason for a sweep beyond the first."""
    limited(unopened, rate="1/s", rate_burst=1)
    unopened.publish(*"ab")
    answer = unopened.subscribe(W1, 1)
    assert (items(answer), answer.due) == (["a"], T0 + 1_000)
    unopened.now += 1_000
    assert unopened.expire().due == T0 + 60_000
    assert items(unopened.retract(W1, "a")) == ["b"]
    assert unopened.retract(W1, "b").due == 0


def test_each_attempt_counts(unopened: Queue) -> None:
    """An item that comes back is handed out at the rate again; deliveries that are sent again are not counted."""
    limited(unopened, rate="1/s", rate_burst=1)
    unopened.publish("a")
    unopened.subscribe(W1, 1)
    assert items(unopened.unlock(W1, "a")) == []
    unopened.now += 1_000
    assert items(unopened.expire()) == ["a"]
    unopened.frontend = "f2"
    assert items(unopened.run("take_over", previous="f1")) == ["a"]


@pytest.mark.parametrize("back", [500, 3_600_000])
def test_the_clock_steps_back(unopened: Queue, back: int) -> None:
    """After a step back no more goes out than a bucket allows that is empty now, and nothing waits for the old time."""
    limited(unopened, rate="2/s", rate_burst=2)
    unopened.publish(*"abcdef")
    assert items(unopened.subscribe(W1, 9)) == ["a", "b"]
    unopened.now -= back
    answer = unopened.expire()
    assert items(answer) == [] and answer.due == unopened.now + 500
    unopened.now += 500
    assert items(unopened.expire()) == ["c"]
    unopened.now += back
    assert len(items(unopened.expire())) <= 2


@pytest.mark.parametrize("frontend", ["f1", ""])
def test_received_items(unopened: Queue, frontend: str) -> None:
    """Pull subscribers are bound as all others, whoever asks for them; what the rate holds back is due at its time."""
    limited(unopened, rate="1/s", rate_burst=1, max_in_flight=2)
    unopened.publish(*"abc")
    unopened.frontend = frontend
    received = {"most": 200, "max_bytes": 1_000}
    for due, held in ((T0 + 1_000, ["a"]), (T0 + 2_000, ["a", "b"]), (T0 + 60_000, ["a", "b"])):
        answer = unopened.run("receive", unopened.receiving(W1, 9), **received)
        assert [row[0] for row in answer.rows[0][2]] == held
        unopened.now += 1_000
        assert answer.due == due
    unopened.retract(W1, "a")
    assert [row[0] for row in unopened.receive(W1, 9)[2]] == ["b", "c"]


def test_selected_and_urgent_items(unopened: Queue) -> None:
    """Selectors and priorities choose among what the rate lets go out."""
    limited(unopened, rate="1/s", rate_burst=1)
    unopened.publish("low")
    unopened.publish("high", hints="0 9 0")
    assert items(unopened.subscribe(W1, 9, selector="stanzaq_item LIKE '%'")) + items(unopened.subscribe(W2, 9)) == [
        "high"
    ]
    unopened.now += 1_000
    assert items(unopened.expire()) == ["low"]


SEVEN = ("1/h", "30/h", "7/m", "50/m", "90/m", "1/s", "2/s")


class Play:
    """A queue with workers that have credit for everything, and two frontends in turn.

    The workers are sent their items, or pull them.
    """

    def __init__(
        self, runners: dict[str, Runner], rate: str, rate_burst: int = 0, most: int = 0, *, pulls: bool = False
    ) -> None:
        """Open the queue and subscribe the workers; keys are not compared, since plays are long."""
        runner = Runner(runners["valkey"].client, checked=False)
        self.queue = Queue(runner, Partition("jobs", secrets.token_hex(4), 0))
        self.bucket, self.published, self.pulls = bucket(rate, rate_burst), 0, pulls
        self.held: list[tuple[str, str]] = []
        self.frontends = cycle(("f1", "f2"))
        self.queue.open(limits=limits(rate, rate_burst, most))
        for worker in (W1, W2):
            self.queue.subscribe(worker, 1_000, "pulled" if pulls else "unacknowledged")

    def at(self, now: int) -> None:
        """Set the clock, and let the other frontend call."""
        self.queue.now, self.queue.frontend = now, next(self.frontends)

    def ran(self, answer: Answer) -> int:
        """Take what was handed out; return how many items."""
        self.held += answer.given
        return len(answer.given)

    def publish(self, count: int) -> int:
        """Publish items; return how many went out."""
        names = [f"{self.published + number}" for number in range(count)]
        self.published += count
        return self.ran(self.queue.publish(*names, max_items=10_000)) + self.receive()

    def receive(self) -> int:
        """Let workers that pull receive; return how many went out."""
        before = len(self.held)
        for worker in (W1, W2) if self.pulls else ():
            known = {item for _jid, item in self.held}
            found = [row[0] for row in self.queue.receive(worker)[2]]
            self.held += [(worker, item) for item in found if item not in known]
        return len(self.held) - before

    def finish(self) -> int:
        """Acknowledge all that is held; return how many went out for it."""
        held, self.held = self.held, []
        return sum(self.ran(self.queue.retract(jid, item)) for jid, item in held)

    def sweep(self) -> tuple[int, int]:
        """Sweep the queue; return how many went out and when it is next due."""
        answer = self.queue.expire()
        given = self.ran(answer) + self.receive()
        return given, self.queue.expire().due if given else answer.due


@pytest.mark.parametrize(
    ("rate", "pulls"), [*((rate, False) for rate in SEVEN), *((rate, True) for rate in ("7/m", "50/m"))]
)
def test_ten_minutes(runners: dict[str, Runner], rate: str, *, pulls: bool) -> None:
    """In ten minutes at seven limits exactly what the oracle allows goes out, at the times that the node says it is due.

    Where a second has a whole number of items, two minutes show as much.
    """
    lasts = 120_000 if rate.endswith("/s") else 600_000
    play = Play(runners, rate, pulls=pulls)
    given = play.publish(1 + lasts // 240)
    play.bucket.take(given)
    assert given == int(play.bucket.rate.size)
    now, end = T0, T0 + lasts
    while now <= end:
        play.at(now)
        more, due = play.sweep()
        assert more == play.bucket.fill(now)
        play.bucket.take(more)
        given += more
        assert play.finish() == 0
        now = due or end + 1
    paced = Fraction(play.bucket.rate.count * lasts, play.bucket.rate.period_ms)
    assert 0 <= play.bucket.rate.size + paced - given < 2


def test_late_sweeps(runners: dict[str, Runner]) -> None:
    """Frontends sweep up to a second late: without a burst of its own a rate loses nothing by that."""
    chance = random.Random(1)
    play = Play(runners, "1/s")
    given, now = play.publish(300), T0
    while now < T0 + 200_000:
        more, due = play.sweep()
        given += more
        now = due + chance.randrange(1_000)
        play.at(now)
        given += play.finish()
    assert 200 <= given <= 203


@pytest.mark.parametrize("pulls", [False, True])
@pytest.mark.parametrize("seed", seeds(2))
def test_by_chance(runners: dict[str, Runner], seed: int, *, pulls: bool) -> None:
    """Publishes, acknowledgements, sweeps and pauses by chance: after each step out is what rate, bound and items allow."""
    chance = random.Random(seed)
    most = chance.choice((1, 5, 20))
    play = Play(runners, chance.choice(("5/s", "100/m", "40/s")), 3, most, pulls=pulls)
    now, waiting = T0, 0
    for _ in range(150):
        now += chance.choice((0, 7, 40, 300, 2_000))
        play.at(now)
        count = 0
        match chance.choice(("publish", "finish", "sweep")):
            case "publish":
                count = chance.choice((1, 4))
                given = play.publish(count)
            case "finish":
                given = play.finish()
            case _:
                given = play.sweep()[0]
        # What was due meanwhile may need a sweep, as a heartbeat does it.
        given += play.sweep()[0]
        waiting += count - given
        assert given <= play.bucket.fill(now) and len(play.held) <= most
        play.bucket.take(given)
        assert not waiting or len(play.held) == most or play.bucket.fill(now) == 0
