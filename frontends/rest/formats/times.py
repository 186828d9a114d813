"""Times as RFC 3339 writes them. Pure."""

from datetime import UTC, datetime


def moment(ms: int) -> str:
    """Write a time of Redis's clock."""
    return datetime.fromtimestamp(ms / 1000, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
