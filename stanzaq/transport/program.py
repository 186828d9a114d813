"""How this program names itself to a service: the library's version, and the host. Must not know connections."""

import socket
from functools import cache
from importlib.metadata import version


@cache
def program() -> str:
    """Return the name, e.g. `stanzaq/1.2.3 (worker-7)`."""
    return f"stanzaq/{version('stanzaq')} ({socket.gethostname()})"
