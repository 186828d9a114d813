"""What `stanzaq --version` prints. Must not know any command."""

from importlib.metadata import version as installed
from importlib.util import find_spec


def version() -> str:
    """Return the version and, if the service is installed, the name of its library of functions in Redis."""
    if find_spec("redis") is None:
        return f"stanzaq {installed('stanzaq')}"
    return "stanzaq {}, functions {}".format(*build())


def build() -> tuple[str, str]:
    """Return the version of the service, and the name of its library of functions in Redis."""
    from broker.scripts.location import lua_directory  # noqa: PLC0415  (the library alone does not need it)
    from broker.scripts.packaging import library  # noqa: PLC0415

    return installed("stanzaq"), library(lua_directory()).name
