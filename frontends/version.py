"""What `stanzaq --version` prints. Must not know any command."""

from importlib.metadata import version as installed

from broker import keys
from broker.scripts.location import lua_directory
from broker.scripts.packaging import library


def version() -> str:
    """Return the version, and the name of the service's library of functions in Redis."""
    return "stanzaq {}, functions {}".format(*build())


def build() -> tuple[str, str]:
    """Return the version of the service, and the name of its library of functions in Redis."""
    return installed("stanzaq"), library(lua_directory(), keys.prefix()).name
