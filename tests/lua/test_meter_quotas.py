"""meter_quotas: what is published to the nodes of an owner, and to those of all owners of a domain (quotas)."""

import random
from typing import Any

import pytest

from tests.lua.driver import T0
from tests.lua.records import Records

DAY = 86_400
NONE = "0 0 0"


def meter(records: Records, *rows: tuple[str, str, int], domain: str = "", now: int = T0) -> list[Any]:
    """Let publishes through: the owner, its quota, and the bytes of each."""
    asked = ({"owner": owner, "quota": quota, "bytes": size} for owner, quota, size in rows)
    code, results = records.run("meter_quotas", *asked, domain="x", domain_quota=domain, idle_seconds=DAY, now=now)
    assert code == "ok"
    return [row[0] if row == ["ok"] else row for row in results]


def store(  # noqa: PLR0917  (as the operation)
    records: Records, subject: str, items: int, size: int, added: tuple[int, int] = (0, 0), at: int = T0
) -> None:
    """Store what was measured."""
    fixed = {"count": items, "bytes": size, "added_count": added[0], "added_bytes": added[1]}
    reply = records.run("store_quota_use", subject=subject, pause_ms=250, idle_seconds=DAY, now=at, **fixed)
    assert reply == ["ok"]


def test_items(records: Records) -> None:
    """A subject is measured before it is judged; what is let through counts until it is measured again."""
    row = ("a@x", f"3 - {NONE}", 10)
    assert meter(records, row, row) == [["measure", "a@x", "0", "0"]] * 2
    store(records, "a@x", 1, 0)
    full = ["quota-exceeded", "a@x", "items", "3"]
    assert meter(records, row, row, row) == ["ok", "ok", full]
    # What is in the nodes may be fewer by now, so it is measured again, and not at once.
    assert meter(records, row, now=T0 + 249) == [full]
    assert meter(records, row, now=T0 + 250) == [["measure", "a@x", "2", "20"]]
    store(records, "a@x", 2, 0, (2, 20), T0 + 260)
    assert meter(records, row, row, now=T0 + 260) == ["ok", full]


def test_bytes(records: Records) -> None:
    """A publish that would exceed the bytes is refused, and a smaller one is not."""
    quota = f"- 100 {NONE}"
    store(records, "a@x", 7, 80)
    large = ["quota-exceeded", "a@x", "bytes", "80"]
    assert meter(records, ("a@x", quota, 21), ("a@x", quota, 20)) == [large, "ok"]


def test_a_measurement_gets_old(records: Records) -> None:
    """Items also come by other ways: after ten seconds it is measured again, and after the clock was set back."""
    row = ("a@x", f"3 - {NONE}", 1)
    store(records, "a@x", 0, 0)
    assert meter(records, row, now=T0 + 9_999) == ["ok"]
    assert meter(records, row, now=T0 + 10_000) == [["measure", "a@x", "1", "1"]]
    assert meter(records, row, now=T0 - 1) == [["measure", "a@x", "1", "1"]]


def test_let_through_while_it_was_measured(records: Records) -> None:
    """What is let through after a measurement began counts, whether it was measured or not."""
    row = ("a@x", f"10 - {NONE}", 1)
    store(records, "a@x", 0, 0)
    assert meter(records, row, row, row) == ["ok"] * 3
    store(records, "a@x", 3, 0, (1, 1), T0 + 1)
    assert meter(records, *[row] * 6, now=T0 + 1)[4:] == ["ok", ["quota-exceeded", "a@x", "items", "10"]]


def test_a_lost_second(records: Records) -> None:
    """After a failover the number let through may be lower than when the measurement began: none is subtracted twice."""
    row = ("a@x", f"5 - {NONE}", 1)
    store(records, "a@x", 5, 0, (1_000, 1_000))
    assert meter(records, row) == [["quota-exceeded", "a@x", "items", "5"]]


def test_rate(records: Records) -> None:
    """A burst, then one in each interval; nothing is measured for a rate alone."""
    row = ("a@x", "- - 2 1000 2", 1)
    assert meter(records, row, row, row) == ["ok", "ok", ["too-fast", "a@x", 500]]
    assert meter(records, row, row, now=T0 + 500) == ["ok", ["too-fast", "a@x", 500]]
    assert meter(records, row, now=T0 - 3_600_000) == [["too-fast", "a@x", 500]]


def test_a_domain(records: Records) -> None:
    """The domain's quota counts the publishes of all its owners, and of those without a quota; a refused one counts nowhere."""
    store(records, "x", 0, 0)
    store(records, "a@x", 0, 0)
    quota, domain = f"2 - {NONE}", f"3 - {NONE}"
    full = ["quota-exceeded", "x", "items", "3"]
    rows = [("a@x", quota, 1)] * 3 + [("b@x", "", 1)] * 2
    assert meter(records, *rows, domain=domain) == ["ok", "ok", ["quota-exceeded", "a@x", "items", "2"], "ok", full]
    assert meter(records, ("x", domain, 1), domain=domain) == [full]
    assert set(records.hash("quota_use")) == {"a@x", "x"}
    assert 0 < records.client.ttl(records.key("quota_use")) <= DAY


class Play:
    """Two owners of a domain with quotas, an oracle of what they hold, and measurements that are under way."""

    QUOTAS, DOMAIN, RATE, BURST = {"a@x": 6, "b@x": 9}, 11, 4, 5

    def __init__(self, records: Records) -> None:
        """Begin with nothing stored."""
        self.records, self.now, self.losses = records, T0, 1
        self.stored, self.admitted = dict.fromkeys(self.QUOTAS, 0), dict.fromkeys(self.QUOTAS, 0)
        self.begun: list[tuple[str, int, tuple[int, int]]] = []

    def publish(self, owner: str) -> None:
        """Publish through either frontend; one that is asked to measure begins to."""
        row = (owner, f"{self.QUOTAS[owner]} - {self.RATE} 1000 {self.BURST}", 1)
        (answer,) = meter(self.records, row, domain=f"{self.DOMAIN} - {NONE}", now=self.now)
        if answer == "ok":
            self.stored[owner] += 1
            self.admitted[owner] += 1
        elif answer[0] == "measure":
            _, subject, *added = answer
            count = sum(self.stored.values()) if subject == "x" else self.stored[subject]
            self.begun.append((subject, count, (int(added[0]), int(added[1]))))

    def measured(self) -> None:
        """Store the oldest measurement that is under way."""
        if self.begun:
            subject, count, added = self.begun.pop(0)
            store(self.records, subject, count, 0, added, self.now)

    def dies(self, *, loses: bool) -> None:
        """Let the frontends that measure die, and Redis lose the key."""
        self.begun.clear()
        if loses:
            self.records.client.delete(self.records.key("quota_use"))
            self.losses += 1

    def judge(self) -> None:
        """Check that nobody holds or has published more than allowed."""
        assert all(self.stored[owner] <= most for owner, most in self.QUOTAS.items())
        assert sum(self.stored.values()) <= self.DOMAIN
        most = self.BURST * self.losses + self.RATE * (self.now - T0) / 1000
        assert all(count <= most for count in self.admitted.values())


@pytest.mark.parametrize("seed", range(3))
def test_by_chance(records: Records, seed: int) -> None:
    """With time moved, measurements that are late, frontends that die and a key that is lost: never more than allowed.

    Whoever is refused though there is room, and waits as told or for a measurement, publishes.
    """
    chance, play = random.Random(seed), Play(records)
    for _ in range(400):
        owner = chance.choice(list(play.QUOTAS))
        match chance.randrange(12):
            case 0:
                play.stored[owner] = 0
            case 1:
                play.stored[owner] = max(0, play.stored[owner] - 1)
            case 2 | 3:
                play.now += chance.randrange(1, 3_000)
            case 4:
                play.dies(loses=chance.random() < 0.3)
            case 5 | 6 | 7:
                play.measured()
            case _:
                play.publish(owner)
        play.judge()
    assert min(play.admitted.values()) > 10
    for owner, most in play.QUOTAS.items():
        play.stored = dict.fromkeys(play.QUOTAS, 0)
        while play.stored[owner] < most:
            play.now += 251
            play.publish(owner)
            play.measured()
        play.judge()
