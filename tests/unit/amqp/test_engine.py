"""proton without its I/O: idle time-outs."""

from frontends.amqp.protocol.engine import IDLE_SECONDS, Engine
from frontends.amqp.protocol.sasl import AMQP_HEADER
from tests.doors.amqp.raw import BEGIN, OPEN, framed


def test_silence() -> None:
    """Part 2 §2.4.5: a peer silent for its time-out is told so and disconnected; an empty frame counts."""
    engine = Engine()
    engine.receive(memoryview(AMQP_HEADER + OPEN))
    engine.open()
    began, half = 100.0, IDLE_SECONDS / 2
    engine.tick(began)
    assert b"stanzaq" in (engine.output() or b"")
    for number in range(1, 4):
        engine.receive(memoryview(framed(b"")))
        engine.tick(began + number * half)
    assert engine.receive(memoryview(BEGIN)) > 0
    for number in range(4, 8):
        engine.tick(began + number * half)
    assert b"amqp:resource-limit-exceeded" in (engine.output() or b"") and engine.receive(memoryview(BEGIN)) < 0
