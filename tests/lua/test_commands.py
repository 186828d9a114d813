"""How many commands Redis runs for a job of a plain queue: each costs as much as a hundred lines of Lua."""

from tests.lua.driver import Runner, commands, unchecked


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
