"""Jobs with chosen tokens."""

from datetime import UTC, datetime
from typing import Any

from stanzaq import Job


def make_job(token: int, node: str = "orders") -> Job[Any]:
    """Make a job with a token."""
    now = datetime.now(UTC)
    return Job({}, f"item-{token}", node, token, 1, 0, {}, "", now, now)
