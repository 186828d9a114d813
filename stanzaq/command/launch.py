"""The command `stanzaq`: finds the service's commands, or says what to install. Must not know any command."""

import errno
import os
import sys
from importlib.metadata import version
from typing import Final, NoReturn

from stanzaq.service import UnfitServiceError, require_service

_OF_THE_LIBRARY: Final = ("worker", "publish")

_NOT_INSTALLED: Final = 2
"""The exit code where something must first be installed, or renamed."""

_UNWRITABLE: Final = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EPIPE}


def main() -> None:
    """Run the command line; exits with one line if its output cannot be written."""
    try:
        try:
            _run()
        finally:
            sys.stdout.flush()
    except OSError as fault:
        if fault.errno not in _UNWRITABLE:
            raise
        # When it ends, Python writes what it has not written yet: that must not fail again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(f"stanzaq: the output cannot be written: {fault.strerror}")


def _run() -> None:
    """Run a command; exits with one line if it needs the service, and only the library is installed."""
    asked = sys.argv[1] if len(sys.argv) > 1 else ""
    if asked in _OF_THE_LIBRARY:
        _run_library(sys.argv[1:])
        return
    try:
        require_service("server")
        if asked == "--version":
            from frontends.version import version as full_version  # noqa: PLC0415

            print(full_version())  # noqa: T201
            return
        from frontends.cli import app  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        if asked == "--version":
            print(f"stanzaq {version('stanzaq')}")  # noqa: T201
            return
        if asked in {"", "-h", "--help"}:
            _run_library(["--help"])
        _refuse(f"the command is part of the service, and {fault.name} is missing: pip install 'stanzaq[server]'")
    except UnfitServiceError as fault:
        _refuse(str(fault))
    app()


def _refuse(sentence: str) -> NoReturn:
    print(f"stanzaq: {sentence}", file=sys.stderr)  # noqa: T201
    sys.exit(_NOT_INSTALLED)


def _run_library(arguments: list[str]) -> None:
    from stanzaq.command import shell  # noqa: PLC0415  (servers need it not)

    shell.main(arguments)
