"""The command `stanzaq`: says what to install where the service's own packages are missing. Must not know any command."""

import sys


def main() -> None:
    """Run the command line; exits with one line when only the library is installed."""
    try:
        from frontends.cli import app  # noqa: PLC0415
    except ModuleNotFoundError as fault:
        sys.exit(
            f"stanzaq: the command is part of the service, and {fault.name} is missing: pip install 'stanzaq[server]'"
        )
    app()
