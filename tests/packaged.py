"""Packages the operations when it is imported: programs that tests/forks.py starts find that done, half of what is left to do."""

from broker.redis_core.redis_client.packages import Packages
from broker.scripts.location import lua_directory
from broker.settings import Packaging

Packages.of(lua_directory(), Packaging.AUTO)
