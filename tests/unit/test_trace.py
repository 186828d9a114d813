"""Headers of a trace: W3C's form; invalid ones are left out."""

import pytest

from broker.model.items import trace

PARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


@pytest.mark.parametrize(
    ("parent", "state", "found"),
    [
        (PARENT, None, {"traceparent": PARENT}),
        (
            PARENT,
            "rojo=00f067aa0ba902b7,congo=t61",
            {"traceparent": PARENT, "tracestate": "rojo=00f067aa0ba902b7,congo=t61"},
        ),
        (PARENT, "x" * 513, {"traceparent": PARENT}),
        (PARENT, "a=\n", {"traceparent": PARENT}),
        (None, "a=1", {}),
        ("", None, {}),
        (PARENT.upper(), None, {}),
        (f"{PARENT}-more", None, {}),
        (PARENT.replace("00-", "ff-", 1), None, {}),
        (f"00-{'0' * 32}-b7ad6b7169203331-01", None, {}),
        (f"00-0af7651916cd43dd8448eb211c80319c-{'0' * 16}-01", None, {}),
        ("x" * 1_000_000, None, {}),
    ],
)
def test_headers(parent: str | None, state: str | None, found: dict[str, str]) -> None:
    """Issue 8: a publisher's trace goes with its item; an invalid one harms nobody (Trace Context §3.2)."""
    assert dict(trace.headers(parent, state)) == found
