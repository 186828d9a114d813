"""The command `stanzaq`: if the service's packages are missing, says what to install. Must not know any command."""

import sys


def main() -> None:
    """Run the command line; exits with one line if only the library is installed."""
    try:
        from frontends.cli import app  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        sys.exit(
            f"stanzaq: the command is part of the service, and {fault.name} is missing: pip install 'stanzaq[server]'"
        )
    app()
