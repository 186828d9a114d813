"""Redis's INFO, as names and values."""

from broker.redis_core.info import read_info


def test_lines() -> None:
    """Headings and blanks are no names; a value keeps its own colons."""
    reply = b"# Memory\r\nused_memory:1024\r\nmaxmemory_policy:noeviction\r\n\r\nexecutable:/a:b\r\n"
    assert read_info(reply) == {"used_memory": "1024", "maxmemory_policy": "noeviction", "executable": "/a:b"}


def test_headings() -> None:
    """A heading with a colon is a heading all the same."""
    assert read_info(b"# Commands: all\r\nrun_id:5\r\n") == {"run_id": "5"}
