"""The steps of an assured message, one line each. Knows the scripts' arguments; must not know what they decide."""

from typing import Any

from tests.lua.driver import T0
from tests.lua.records import Records

LIMITS = {"source_messages": 3, "source_bytes": 200, "total_messages": 5, "total_bytes": 1000, "remembered": 100}
HOUR = 3_600_000


def named(whose: str, msg_id: str, at: str = "a") -> str:
    """Name a message."""
    return f"{whose}\0{at}\0{msg_id}"


def hold(records: Records, name: str, record: str = "n1 d1 body", *, after: int = 0, **limits: int) -> str:
    """Prepare a message; return the code word."""
    fixed = {**LIMITS, **limits, "now": T0 + after, "window_ms": HOUR}
    return str(records.run("prepare_message", name=name, record=record, **fixed)[0])


def conclude(records: Records, name: str, nonce: str = "n1", *, after: int = 0, delivered: str = "1") -> None:
    """End a delivery."""
    fixed = {"now": T0 + after, "window_ms": HOUR, "nonce": nonce, "delivered": delivered}
    assert records.run("end_delivery", name=name, **fixed) == ["ok"]


def claimed(records: Records, name: str, *, after: int = 0) -> list[str]:
    """Begin a delivery."""
    found: list[str] = records.run("begin_delivery", now=T0 + after, name=name)
    return found


def reserve(records: Records, whose: str, nonce: str, *, after: int = 0, hold_ms: int = HOUR) -> list[Any]:
    """Reserve an item of the node `jobs`."""
    fixed = {name: limit for name, limit in LIMITS.items() if name != "remembered"}
    name = named(whose, "jobs\0", "")
    found: list[Any] = records.run(
        "reserve", now=T0 + after, window_ms=HOUR, name=name, nonce=nonce, hold_ms=hold_ms, **fixed
    )
    return found


def redeem(records: Records, name: str, record: str = "n1 d1 body", *, after: int = 0, **limits: int) -> list[str]:
    """Send the message of a reservation."""
    fixed = {each: ({**LIMITS, **limits})[each] for each in ("source_bytes", "total_bytes", "remembered")}
    found: list[str] = records.run("fulfil_reservation", now=T0 + after, name=name, record=record, **fixed)
    return found
