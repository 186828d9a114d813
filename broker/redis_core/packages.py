"""How the operations stand in a Redis: as one library of functions, or as a script each where functions are not to be had.

Both say the same (broker/scripts/packaging.py). A library is built once when it is loaded, is replicated and kept; a script makes
its functions anew with each call. Must not know what an operation means, nor how a command is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Protocol, Self

from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from broker.scripts.packaging import Library, Script, library, script
from broker.scripts.source import operations
from broker.settings import Packaging

Words = Sequence[str]

_NOT_FOUND: Final = "Function not found"
_EXISTS: Final = "already exists"
_NO_SUCH_COMMAND: Final = "unknown command"


class Package(Protocol):
    """One way in which operations stand in a Redis."""

    def command(self, operation: str) -> tuple[str, str]:
        """Give the first two words of a command that runs an operation."""

    @property
    def question(self) -> Sequence[Words]:
        """The commands that ask what of it is there, and whether it may be used."""

    def loads(self, replies: Sequence[Any]) -> Sequence[Words]:
        """Give the commands that bring in what is not there, by the answers; raises the error that forbids its use."""


@dataclass(frozen=True, slots=True)
class Functions:
    """A library."""

    library: Library

    def command(self, operation: str) -> tuple[str, str]:
        """Call its function."""
        return "FCALL", self.library.function(operation)

    @property
    def question(self) -> Sequence[Words]:
        """A function that is nowhere tells whether functions may be called."""
        return ("FUNCTION LIST", "LIBRARYNAME", self.library.name), ("FCALL", f"{self.library.name}_", "0")

    def loads(self, replies: Sequence[Any]) -> Sequence[Words]:
        """Load it whole, where it is not there."""
        listed, called = replies
        if isinstance(listed, Exception):
            raise listed
        if isinstance(called, Exception) and not is_unknown(called):
            raise called
        return () if listed else [("FUNCTION LOAD", self.library.text)]


@dataclass(frozen=True, slots=True)
class Scripts:
    """A script for each operation."""

    scripts: Mapping[str, Script]

    def command(self, operation: str) -> tuple[str, str]:
        """Call it by its digest."""
        return "EVALSHA", self.scripts[operation].sha

    @property
    def question(self) -> Sequence[Words]:
        """Redis tells of each whether it knows it."""
        return [("SCRIPT EXISTS", *(each.sha for each in self.scripts.values()))]

    def loads(self, replies: Sequence[Any]) -> Sequence[Words]:
        """Load those that it does not know."""
        (known,) = replies
        if isinstance(known, Exception):
            raise known
        return [
            ("SCRIPT LOAD", each.text) for each, there in zip(self.scripts.values(), known, strict=True) if not there
        ]


@dataclass(frozen=True, slots=True)
class Packages:
    """What a master is given: the package to begin with, and the one to take where that is forbidden, if any."""

    first: Package
    other: Package | None = None

    @classmethod
    def of(cls, folder: Path, packaging: Packaging) -> Self:
        """Package the operations of a folder as they are wanted."""
        scripts = Scripts({name: script(folder, name) for name in operations(folder)})
        if packaging is Packaging.SCRIPTS:
            return cls(scripts)
        return cls(Functions(library(folder)), scripts if packaging is Packaging.AUTO else None)


def is_unknown(reply: object) -> bool:
    """Tell whether an answer says that Redis does not know the operation: it has not run."""
    return isinstance(reply, NoScriptError) or (isinstance(reply, ResponseError) and _NOT_FOUND in str(reply))


def is_there(reply: object) -> bool:
    """Tell whether an answer to loading says that another has loaded it meanwhile."""
    return isinstance(reply, ResponseError) and _EXISTS in str(reply)


def is_forbidden(error: Exception) -> bool:
    """Tell whether Redis has no functions, or does not let this user have them."""
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and _NO_SUCH_COMMAND in str(error).lower()
    )
