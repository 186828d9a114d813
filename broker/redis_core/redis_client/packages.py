"""How the operations stand in a Redis: as one library of functions, or as a script each where functions are not to be had.

Both say the same (broker/scripts/packaging.py). A library is built once when it is loaded, is replicated and kept; a script makes
its functions anew with each call. Beside the library of operations stands one for people with redis-cli, which no operation
needs. Must not know what an operation means, nor how a command is sent.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from redis.exceptions import NoPermissionError, NoScriptError, ResponseError

from broker.scripts.packaging import Inspection, Library, Script, inspection, library, script
from broker.scripts.source import operations
from broker.settings import Packaging

Words = Sequence[str]

_NOT_FOUND: Final = "Function not found"
_EXISTS: Final = "already exists"
_NO_SUCH_COMMAND: Final = "unknown command"


class Loads(NamedTuple):
    """The commands that bring in what is not there: operations, and what people use besides, without which all goes on."""

    operations: Sequence[Words] = ()
    for_people: Sequence[Words] = ()


class Package(Protocol):
    """One way in which operations stand in a Redis."""

    def command(self, operation: str) -> tuple[str, str]:
        """Give the first two words of a command that runs an operation."""

    @property
    def question(self) -> Sequence[Words]:
        """The commands that ask what of it is there, and whether it may be used."""

    def loads(self, replies: Sequence[Any]) -> Loads:
        """Give the commands that bring in what is not there, by the answers; raises the error that forbids its use."""


@dataclass(frozen=True, slots=True)
class Functions:
    """A library, and the one for people."""

    library: Library
    inspection: Inspection

    def command(self, operation: str) -> tuple[str, str]:
        """Call its function."""
        return "FCALL", self.library.function(operation)

    @property
    def question(self) -> Sequence[Words]:
        """A function that is nowhere tells whether functions may be called."""
        return (
            ("FUNCTION LIST", "LIBRARYNAME", self.library.name),
            ("FCALL", f"{self.library.name}_", "0"),
            ("FUNCTION LIST", "LIBRARYNAME", self.inspection.name, "WITHCODE"),
        )

    def loads(self, replies: Sequence[Any]) -> Loads:
        """Load it whole, where it is not there; the one for people in the place of an older one, too."""
        listed, called, for_people = replies
        if isinstance(listed, Exception):
            raise listed
        if isinstance(called, Exception) and not is_unknown(called):
            raise called
        replaced = [("FUNCTION LOAD", "REPLACE", self.inspection.text)]
        return Loads(
            () if listed else [("FUNCTION LOAD", self.library.text)],
            replaced if self.inspection.replaces(_code(for_people)) else (),
        )


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

    def loads(self, replies: Sequence[Any]) -> Loads:
        """Load those that it does not know."""
        (known,) = replies
        if isinstance(known, Exception):
            raise known
        return Loads(
            [("SCRIPT LOAD", each.text) for each, there in zip(self.scripts.values(), known, strict=True) if not there]
        )


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
        functions = Functions(library(folder), inspection(folder, installed_version("stanzaq")))
        return cls(functions, scripts if packaging is Packaging.AUTO else None)


def library_field(found: Any, field: bytes) -> bytes:
    """Read what FUNCTION LIST says of a library: a map, or a list of names and values."""
    return bytes(found[field] if isinstance(found, dict) else found[found.index(field) + 1])


def _code(listed: Any) -> str:
    return "".join(library_field(found, b"library_code").decode() for found in listed)


def is_unknown(reply: object) -> bool:
    """Tell whether an answer says that Redis does not know the operation: it has not run."""
    return isinstance(reply, ResponseError) and (isinstance(reply, NoScriptError) or _NOT_FOUND in str(reply))


def is_there(reply: object) -> bool:
    """Tell whether an answer to loading says that another has loaded it meanwhile."""
    return isinstance(reply, ResponseError) and _EXISTS in str(reply)


def is_forbidden(error: Exception) -> bool:
    """Tell whether Redis has no functions, or does not let this user have them."""
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and _NO_SUCH_COMMAND in str(error).lower()
    )
