"""The command line: every command explains itself, and wrong settings have clear errors."""

import logging
import os
import re
import signal
import sys
from collections.abc import Iterator
from email.message import Message
from pathlib import Path
from urllib.error import HTTPError

import pytest
import structlog
import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption
from typer.testing import CliRunner

from frontends.cli import app
from frontends.terminal import run_with_servers
from frontends.version import version


def _commands(command: object, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], TyperCommand]]:
    if isinstance(command, TyperGroup):
        return [found for name, child in command.commands.items() for found in _commands(child, (*path, name))]
    assert isinstance(command, TyperCommand)
    return [(path, command)]


_ALL = _commands(typer.main.get_command(app))


@pytest.fixture(autouse=True)
def _logs() -> Iterator[None]:
    """Undo what a command sets up for its process: its records go to a stream that is closed after the test."""
    root, configured = logging.getLogger(), structlog.get_config()
    handlers, level = root.handlers[:], root.level
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    structlog.configure(**configured)


@pytest.fixture
def runner(monkeypatch: pytest.MonkeyPatch) -> CliRunner:
    """Return a runner in an environment with all that `serve xmpp` needs."""
    monkeypatch.setenv("STANZAQ_XMPP_DOMAIN", "queue.example.org")
    monkeypatch.setenv("STANZAQ_XMPP_SECRET", "secret")
    return CliRunner()


@pytest.mark.parametrize(("path", "command"), _ALL, ids=[" ".join(path) for path, _ in _ALL])
def test_help(path: tuple[str, ...], command: TyperCommand, runner: CliRunner) -> None:
    """Every command has a description and an example; every option is explained."""
    assert command.help is not None
    assert f"stanzaq {' '.join(path)}" in command.help.partition("Example: ")[2]
    assert all(getattr(option, "help", None) for option in command.params)
    assert runner.invoke(app, [*path, "--help"]).exit_code == 0


def test_nodes_are_completed() -> None:
    """Issue 26: the shell completes the name of a node wherever a command takes one."""
    names = {"node", "to"}
    found = [
        (" ".join(path), option.name, option._custom_shell_complete is not None)
        for path, command in _ALL
        for option in command.params
        if isinstance(option, TyperArgument | TyperOption) and path[0] != "report"
        if option.name in names or (path[0] == "node" and option.name == "name" and path[1] != "create")
    ]
    assert len(found) > 20 and [each for each in found if not each[2]] == []


def test_check(runner: CliRunner) -> None:
    """`serve xmpp --check` with good settings says so and ends."""
    result = runner.invoke(app, ["serve", "xmpp", "--check"])
    assert (result.exit_code, result.stdout) == (0, "the settings are valid\n")


def test_wrong_settings(runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Wrong settings end with code 2 and one block on stderr, without a traceback."""
    monkeypatch.setenv("STANZAQ_NODE_QUOTA", "[bold]many[/bold]")
    result = runner.invoke(app, ["serve", "xmpp"])
    assert result.exit_code == 2
    assert result.stdout == ""
    assert "STANZAQ_NODE_QUOTA" in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize("door", ["xmpp", "rest"])
def test_traces_without_the_extra(door: str, runner: CliRunner, monkeypatch: pytest.MonkeyPatch) -> None:
    """Issue 8: with traces but without the extra, the start fails with what to install; without traces nobody needs it."""
    monkeypatch.setitem(sys.modules, "frontends.tracing", None)
    monkeypatch.setenv("STANZAQ_HTTP_ANONYMOUS", "a@x")
    assert runner.invoke(app, ["serve", door, "--check"]).exit_code == 0
    monkeypatch.setenv("STANZAQ_TRACES", "true")
    refused = runner.invoke(app, ["serve", door, "--check"])
    assert refused.exit_code == 2 and "pip install 'stanzaq[otel]'" in refused.stderr


def test_version(runner: CliRunner) -> None:
    """`version` prints the installed version alone, `--version` also what names the functions in Redis."""
    number = runner.invoke(app, ["version"]).stdout.strip()
    assert number.count(".") == 2
    assert runner.invoke(app, ["--version"]).stdout.strip() == version()
    assert re.fullmatch(rf"stanzaq {re.escape(number)}, functions stanzaq_[0-9a-f]{{12}}", version())


@pytest.mark.parametrize(
    ("line", "nearest"),
    [("docter", "doctor"), ("node lst", "list"), ("doctor --jsn", "--json"), ("bench xmp", "xmpp")],
)
def test_misspelt_command_or_option(line: str, nearest: str, runner: CliRunner) -> None:
    """Issue 21: a command or an option that there is not is refused with the nearest that there is."""
    result = runner.invoke(app, line.split())
    assert result.exit_code == 2
    assert nearest in result.stderr


def test_a_file_in_the_way(runner: CliRunner, tmp_path: Path) -> None:
    """A directory that cannot be made is named in one block."""
    (tmp_path / "data").write_text("theirs")
    refused = runner.invoke(app, ["dev", "--data", str(tmp_path / "data")], env={"COLUMNS": "300"})
    assert refused.exit_code == 2 and "The service cannot run" in refused.stderr
    assert f"{tmp_path}/data/redis: Not a directory" in refused.stderr


def test_a_refusal_over_http(capsys: pytest.CaptureFixture[str]) -> None:
    """A server's refusal is told in its own words; as an error of the system it has none."""

    def work() -> int:
        place = "http://127.0.0.1/queues/jobs"
        raise HTTPError(place, 403, "Forbidden", Message(), None)

    with pytest.raises(typer.Exit):
        run_with_servers("The service", work)
    assert "HTTP Error 403: Forbidden" in capsys.readouterr().err


def test_terminated() -> None:
    """SIGTERM ends what runs private servers in order, so that nothing of them is left; afterwards it is as before."""
    ended = []

    def work() -> int:
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            signal.sigtimedwait([], 20)
        finally:
            os.kill(os.getpid(), signal.SIGTERM)
            ended.append(True)
        return 0

    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as end:
        run_with_servers("The demo", work)
    assert end.value.code == 143 and ended and signal.getsignal(signal.SIGTERM) is before
