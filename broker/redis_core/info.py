"""Reads Redis's INFO into names and values. Pure text; must not know what follows from it."""


def read_info(reply: bytes) -> dict[str, str]:
    """Read the lines of a reply, without headings."""
    lines = (line.partition(":") for line in reply.decode(errors="replace").splitlines() if not line.startswith("#"))
    return {name: value for name, colon, value in lines if colon}
