"""Formats times as in RFC 3339. Pure."""

from datetime import UTC, datetime


def moment(ms: int) -> str:
    """Format a time of Redis's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
