"""How many commands Redis runs for a job of a plain queue: each costs as much as a hundred lines of Lua."""

from typing import Any

import pytest

from tests.lua.driver import DEFAULTS, SCRIPTS, Queue, Runner, commands, unchecked


def test_of_a_job(runners: dict[str, Runner]) -> None:
    """A publish that is handed out at once, and its acknowledgement, look for nothing that a plain, empty queue has not."""
    queue = unchecked(runners)
    queue.open()
    queue.subscribe("w1@x", 10)
    queue.subscribe("w2@x", 10)
    # The first acknowledgement begins a generation of answers.
    (first,) = queue.publish("").deliveries
    queue.retract(first.jid, first.item)
    before = commands(queue)
    (delivery,) = queue.publish("").deliveries
    published = commands(queue)
    assert queue.retract(delivery.jid, delivery.item).words == ["ok"]
    ended = commands(queue)
    assert published - before <= 17
    assert ended - published <= 15
    # Each key that a call passes costs as much as a fifth of a command: of nearly sixty a plain queue needs these.
    assert not queue.wide and len(SCRIPTS["publish"].plain) <= 20 and len(SCRIPTS["retract"].plain) <= 22


@pytest.mark.parametrize(
    "policy", [{"ordered": "1"}, {"keep_items": 5}, {"limits": "0 1 1000 20"}, {"fair": "key"}, {"above": "1"}]
)
def test_of_a_queue_with_a_policy(runners: dict[str, Runner], policy: dict[str, Any]) -> None:
    """An operation that finds a policy, or something in a rare key, asks for all keys before it changes anything."""
    queue = unchecked(runners)
    queue.open(**policy)
    found = SCRIPTS["publish"]
    row = {"item": "a", "by": "b", "body": "c", "key": "", "once": "", "hints": "", "refused": ""}
    wanted = {name: {**DEFAULTS, "now": queue.now, "number": 0}[name] for name in found.arguments}
    assert queue.runner.run("publish", list(map(queue.key, found.plain)), wanted, [row]) == ["wide"]
    assert not queue.client.exists(queue.key("log"))


def test_what_a_plain_queue_has_for_a_while(queue: Queue) -> None:
    """A delayed item, a dead letter under way, or a version that waits needs all keys; afterwards the queue is plain again."""
    queue.subscribe("w1@x", 1)
    queue.publish("a")
    queue.unlock("w1@x", "a", delay_ms=1_000)
    for wide in (True, False):
        queue.wide = False
        queue.publish("b" if wide else "c")
        assert queue.wide is wide
        queue.retract("w1@x", "b")
        queue.now += 1_000
        queue.expire()


def test_of_a_job_whose_end_nobody_asked_for(runners: dict[str, Runner]) -> None:
    """That a node keeps ends costs such a job no command, no key and no field, and its default is stored nowhere."""
    found = []
    for result_ms in (0, 3_600_000):
        queue = unchecked(runners)
        queue.open(result_ms=result_ms)
        queue.subscribe("w1@x", 10)
        before = commands(queue)
        (delivery,) = queue.publish("a").deliveries
        assert queue.retract(delivery.jid, "a").words == ["ok"]
        ran, fields = commands(queue) - before, set(queue.client.hgetall(queue.key("meta")))
        found.append((ran, queue.kept(), fields))
    (ran, kept, fields), usual = found
    assert usual == (ran, kept, fields - {b"result_ms"}) and b"result_ms" in fields
