"""What a Redis process says of itself (INFO), as names and values. Pure text; must not know what follows from it."""


def read_info(reply: bytes) -> dict[str, str]:
    """Read the lines of a reply; those that only divide it are left out."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}
