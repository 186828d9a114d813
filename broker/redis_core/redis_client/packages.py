"""How operations are stored in Redis: as one library of functions, or as single scripts where functions are not available.

Both have the same content (broker/scripts/packaging.py). A library is built once when it is loaded, replicated and persisted;
a script builds its functions anew with each call. A second library serves people with redis-cli; no operation needs it. Must not
know what an operation means, nor how a command is sent.
"""

from collections.abc import Mapping, Sequence
from importlib.metadata import version as installed_version
from pathlib import Path
from typing import Any, Final, NamedTuple, Protocol, Self

from redis.exceptions import NoPermissionError, NoScriptError, RedisError, ResponseError

from broker import keys
from broker.model.frozen import frozen
from broker.scripts.packaging import InspectLibrary, Library, Script, inspection, library, script
from broker.scripts.source import operation, operations
from broker.settings import Packaging

Words = Sequence[str]

_NOT_FOUND: Final = "Function not found"
_EXISTS: Final = "already exists"
_NO_SUCH_COMMAND: Final = "unknown command"


class OtherCode(RedisError):  # noqa: N818  (as the model's)
    """A library of the right name has other code, though the name has the code's digest: somebody has replaced it."""

    def __init__(self, name: str) -> None:
        """Say which library it is, and what to do."""
        self.fault = f"the library {name} has other code than this version"
        self.remedy = (
            f"FUNCTION DELETE {name}, since frontends load their own again, and take +function|load from every user but"
            " that of the frontends (ACL LIST)"
        )
        super().__init__(f"{self.fault}: {self.remedy}")


class Loads(NamedTuple):
    """The commands that load what is missing: operations, and the optional functions for redis-cli."""

    operations: Sequence[Words] = ()
    for_people: Sequence[Words] = ()


class Package(Protocol):
    """One way to store operations in Redis."""

    @property
    def commands(self) -> Mapping[str, Words]:
        """The first two words of the command that runs each operation."""

    @property
    def question(self) -> Sequence[Words]:
        """The commands that ask which parts are loaded, and whether they may be used."""

    def loads(self, replies: Sequence[Any]) -> Loads:
        """Return the commands that load what is missing, by the answers; raises the error that forbids its use."""


@frozen
class Functions:
    """The library of operations, and the one for redis-cli."""

    library: Library
    inspection: InspectLibrary
    commands: Mapping[str, Words]

    @property
    def question(self) -> Sequence[Words]:
        """Calling a missing function shows whether functions may be called, which those who only read do by FCALL_RO."""
        return (
            ("FUNCTION LIST", "LIBRARYNAME", self.library.name),
            ("FCALL_RO", f"{self.library.name}_", "0"),
            ("FUNCTION LIST", "LIBRARYNAME", self.inspection.name, "WITHCODE"),
        )

    def loads(self, replies: Sequence[Any]) -> Loads:
        """Load the library if it is missing, and the one for redis-cli also in place of an older one."""
        listed, called, for_people = replies
        if isinstance(listed, Exception):
            raise listed
        if isinstance(called, Exception) and not is_unknown(called):
            raise called
        if listed and _functions(listed) != {name for _command, name in self.commands.values()}:
            raise OtherCode(self.library.name)
        replaced = [("FUNCTION LOAD", "REPLACE", self.inspection.text)]
        return Loads(
            () if listed else [("FUNCTION LOAD", self.library.text)],
            replaced if self.inspection.replaces(library_code(for_people)) else (),
        )


@frozen
class Scripts:
    """A script for each operation."""

    scripts: Mapping[str, Script]
    commands: Mapping[str, Words]

    @property
    def question(self) -> Sequence[Words]:
        """Ask which scripts are loaded."""
        return [("SCRIPT EXISTS", *(each.sha for each in self.scripts.values()))]

    def loads(self, replies: Sequence[Any]) -> Loads:
        """Load the missing scripts."""
        (known,) = replies
        if isinstance(known, Exception):
            raise known
        return Loads(
            [("SCRIPT LOAD", each.text) for each, there in zip(self.scripts.values(), known, strict=True) if not there]
        )


@frozen
class Packages:
    """The package for a master, and the one to use instead where the first is forbidden."""

    first: Package
    other: Package | None = None

    @classmethod
    def of(cls, folder: Path, packaging: Packaging) -> Self:
        """Package the operations of a folder in the wanted way."""
        written = {name: script(folder, name) for name in operations(folder)}
        # So a user who may only read can run what only reads.
        reads = {name for name in written if "no-writes" in operation(folder, name).flags}
        scripts = Scripts(
            written, {name: ("EVALSHA_RO" if name in reads else "EVALSHA", each.sha) for name, each in written.items()}
        )
        if packaging is Packaging.SCRIPTS:
            return cls(scripts)
        whole = library(folder, keys.prefix())
        calls = {name: ("FCALL_RO" if name in reads else "FCALL", whole.function(name)) for name in written}
        functions = Functions(whole, inspection(folder, installed_version("stanzaq"), keys.prefix()), calls)
        return cls(functions, scripts if packaging is Packaging.AUTO else None)


def library_field(listing: Any, field: bytes) -> Any:
    """Read a field of FUNCTION LIST: a map, or a list of names and values."""
    return listing[field] if isinstance(listing, dict) else listing[listing.index(field) + 1]


def library_code(listed: Any) -> str:
    """Return the code of the library that FUNCTION LIST … WITHCODE lists; empty if there is none."""
    return "".join(library_field(found, b"library_code").decode() for found in listed)


def _functions(listed: Any) -> set[str]:
    return {
        library_field(function, b"name").decode() for found in listed for function in library_field(found, b"functions")
    }


def is_unknown(reply: object) -> bool:
    """Return whether a reply says that Redis does not know the operation, which has not run."""
    return isinstance(reply, ResponseError) and (isinstance(reply, NoScriptError) or _NOT_FOUND in str(reply))


def is_there(reply: object) -> bool:
    """Return whether a reply to a load says that it is already loaded."""
    return isinstance(reply, ResponseError) and _EXISTS in str(reply)


def is_forbidden(error: object) -> bool:
    """Return whether Redis has no functions, or forbids them to this user."""
    return isinstance(error, NoPermissionError) or (
        isinstance(error, ResponseError) and _NO_SUCH_COMMAND in str(error).lower()
    )
