"""The wheels: what is installed from them works without the repository, and beside a user's own modules."""

import importlib.metadata
import os
import re
import runpy
import subprocess
import sys
import sysconfig
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[2]
VERSION = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["version"]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Build the wheels of the library and of the service, as for an installation from a clone."""
    directory = tmp_path_factory.mktemp("wheels")
    command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    done = subprocess.run(
        [*command, "--wheel-dir", str(directory), ".", "./server"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    library, server = sorted(directory.glob("*.whl"))
    return [library, server]


@pytest.fixture(scope="module")
def python(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install both wheels in a fresh environment that borrows only its dependencies from this one."""
    environment = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    interpreter = environment / "bin" / "python"
    install = ["-m", "pip", "--python", str(interpreter), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, *install, *wheels], check=True, timeout=60)
    (packages,) = environment.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, but the .pth files in it are not read: the editable installs stay out of sight.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def _run(python: Path, program: str) -> str:
    command = [str(python), "-I", "-c", program]
    return subprocess.run(
        command, cwd=python.parent, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_contents(wheels: list[Path]) -> None:
    """The library is one folder. All of lua/ is in the service, every Python module, the web page, and nothing else."""
    library, server = (set(zipfile.ZipFile(each).namelist()) for each in wheels)

    def modules(*folders: str) -> set[str]:
        return {str(path.relative_to(ROOT)) for name in folders for path in (ROOT / name).rglob("*.py")}

    scripts = {f"broker/_lua/{path.relative_to(ROOT / 'lua')}" for path in (ROOT / "lua").rglob("*.lua")}
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "frontends" / "rest" / "ui").iterdir()}
    assert (
        len(page) > 5 and scripts | modules("broker", "frontends") | page | {"frontends/_local/ejabberd.yml"} <= server
    )
    assert modules("stanzaq") | {"stanzaq/py.typed"} <= library
    for names, folders in ((library, {"stanzaq"}), (server, {"broker", "frontends"})):
        information = f"{'_'.join(['stanzaq', 'server'][: len(folders)])}-{VERSION}.dist-info"
        assert {name.partition("/")[0] for name in names} == {*folders, information}
        assert not any(name.endswith(".pyc") for name in names)


def test_extras(wheels: list[Path]) -> None:
    """Each distribution wants exactly this version of the other; each extra of the service is one of the library."""
    library, server = (found for each in wheels for found in importlib.metadata.distributions(path=[str(each)]))
    wanted = [Requirement(line) for each in (library, server) for line in each.requires or ()]
    assert {
        (each.name, str(each.specifier)) for each in wanted if each.name.startswith("stanzaq") and each.specifier
    } == {
        ("stanzaq", f"=={VERSION}"),
        ("stanzaq-server", f"=={VERSION}"),
    }
    theirs = set(server.metadata.get_all("Provides-Extra") or ())
    brought = {extra for each in wanted if each.name == "stanzaq-server" for extra in each.extras}
    assert theirs <= brought & set(library.metadata.get_all("Provides-Extra") or ())
    assert not list(server.entry_points)


def _borrow(packages: Path, requirements: list[str]) -> set[str]:
    """Link what these requirements need, from what is installed here; return the names."""
    wanted, known = [Requirement(line) for line in requirements], set[str]()
    while wanted:
        each = wanted.pop()
        if each.name in known or not (each.marker is None or each.marker.evaluate({"extra": ""})):
            continue
        known.add(each.name)
        borrowed = importlib.metadata.distribution(each.name)
        wanted += [Requirement(line) for line in borrowed.requires or ()]
        for name in {file.parts[0] for file in borrowed.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            if not (packages / name).exists():
                (packages / name).symlink_to(str(borrowed.locate_file(name)))
    return {canonicalize_name(name) for name in known}


@pytest.fixture(scope="module")
def library(wheels: list[Path], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the library without extras, and pytest: only the dependencies of the base install are there."""
    environment = tmp_path_factory.mktemp("library") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheels[0]).extractall(packages)
    (found,) = importlib.metadata.distributions(name="stanzaq", path=[str(packages)])
    known = _borrow(packages, found.requires or [])
    (listed,) = re.findall(
        r"`pip install stanzaq` installs (.*?)\.\s", (ROOT / "docs" / "library.md").read_text(), re.DOTALL
    )
    assert known == set(re.findall("`(.*?)`", listed))
    _borrow(packages, ["pytest"])
    return environment / "bin" / "python"


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Write a user's program, whose modules have the names of the service's packages."""
    directory = tmp_path_factory.mktemp("project")
    for name, text in (
        ("frontends/__init__.py", ""),
        ("frontends/test_own.py", "def test_own():\n    import broker\n    assert broker.MINE == 7\n"),
        ("broker.py", "MINE = 7\n"),
        ("tests/__init__.py", ""),
        ("tests/conftest.py", "import pytest\n\n@pytest.fixture\ndef mine():\n    return 7\n"),
        ("tests/test_other.py", "def test_other(mine):\n    assert mine == 7\n"),
        ("used/test_used.py", "def test_used(stanzaq_service):\n    pass\n"),
    ):
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(text)
    return directory


def _play(python: Path, project: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Run Python with these arguments in the directory of a project, which is first on Python's path."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    environment["PYTHONPATH"] = str(project)
    command = [str(python), *arguments]
    return subprocess.run(
        command, cwd=project, env=environment, capture_output=True, text=True, check=False, timeout=60
    )


_PYTEST = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "no:randomly", "-p", "no:xdist")
_COMMAND = "from stanzaq.command.launch import main; main()"


def test_library_beside_own_modules(library: Path, project: Path) -> None:
    """With the library alone, a user has modules and folders of any name, and pytest runs their tests."""
    assert _play(library, project, "-c", "import broker, frontends, stanzaq; print(broker.MINE)").stdout == "7\n"
    done = _play(library, project, *_PYTEST, "frontends", "tests")
    assert done.returncode == 0 and "2 passed" in done.stdout, done.stdout + done.stderr


def test_service_behind_own_modules(python: Path, project: Path) -> None:
    """A module that hides one of the service's is named in one sentence where the service is needed, and nowhere else."""
    own = project / "broker.py"
    told = f"{own} hides the package 'broker' of stanzaq-server: rename it, or remove it from Python's path"
    asked = _play(python, project, "-c", _COMMAND, "serve")
    assert (asked.returncode, asked.stderr) == (2, f"stanzaq: {told}\n")
    assert _play(python, project, "-c", "import stanzaq.testing").stderr.splitlines()[-1].endswith(told)
    done = _play(python, project, *_PYTEST, "-p", "no:schemathesis", "frontends", "used")
    assert "1 passed" in done.stdout and "1 error" in done.stdout and told in done.stdout, done.stdout + done.stderr


def test_benchmarks_are_in_a_clone(python: Path, tmp_path: Path) -> None:
    """A package has no benchmarks, and says where they are, also beside somebody's own module of that name."""
    (tmp_path / "bench").mkdir()
    (tmp_path / "bench" / "commands.py").touch()
    asked = _play(python, tmp_path, "-c", _COMMAND, "bench", "core", "--json")
    assert asked.returncode == 2 and "They are in a clone of the source" in asked.stderr


def test_two_versions(python: Path, tmp_path: Path) -> None:
    """A service of another version is refused with what to install."""
    (tmp_path / "stanzaq_server-9.9.dist-info").mkdir()
    (tmp_path / "stanzaq_server-9.9.dist-info" / "METADATA").write_text("Name: stanzaq-server\nVersion: 9.9\n")
    told = f"stanzaq {VERSION} cannot use stanzaq-server 9.9: pip install 'stanzaq[{{}}]=={VERSION}'"
    asked = _play(python, tmp_path, "-c", _COMMAND, "--version")
    assert (asked.returncode, asked.stderr) == (2, f"stanzaq: {told.format('server')}\n")
    assert (
        _play(python, tmp_path, "-c", "import stanzaq.testing").stderr.splitlines()[-1].endswith(told.format("testing"))
    )


def test_library_alone(library: Path) -> None:
    """The base install has what a worker needs; the command says what else to install."""
    program = (
        "import stanzaq; stanzaq.Worker('xmpp://w@example.org').task('jobs')(print); print(sorted(stanzaq.__all__))"
    )
    assert "'Worker'" in _run(library, program)
    program = "try: import stanzaq.testing\nexcept ModuleNotFoundError as error: print(error)"
    told = "stanzaq.testing needs the service, and stanzaq-server is missing: pip install 'stanzaq[testing]'"
    assert _run(library, program) == told
    for argument, code, told in (
        (
            "serve",
            2,
            "the command is part of the service, and stanzaq-server is missing: pip install 'stanzaq[server]'",
        ),
        ("--version", 0, f"stanzaq {VERSION}"),
        ("--help", 0, "publish an item and print its id"),
        ("worker", 2, "the following arguments are required: MODULE:NAME"),
        ("publish", 2, "the following arguments are required: NODE"),
    ):
        done = subprocess.run(
            [library, "-I", "-c", _COMMAND, argument],
            capture_output=True,
            text=True,
            check=False,
            timeout=60,
        )
        said = done.stderr if code else done.stdout
        assert done.returncode == code and told in said and "Traceback" not in done.stderr


def test_library_is_soon_there(library: Path) -> None:
    """Importing the library takes at most 0.4 s of the processor, Python's own start included."""
    program = "import stanzaq, time; print(time.process_time())"
    # On a machine that is busy with others a time is too long, never too short.
    assert min(float(_run(library, program)) for _ in range(5)) <= 0.4


def test_the_plugin_of_pytest(python: Path) -> None:
    """Every pytest loads it, so it imports nothing of the service and no connection."""
    program = """
import sys
from importlib.metadata import entry_points
(plugin,) = (each.load() for each in entry_points(group="pytest11", name="stanzaq"))
print(plugin.stanzaq_service.__name__, {"aiohttp", "broker", "frontends", "redis", "slixmpp"} & set(sys.modules))
"""
    assert _run(python, program) == "stanzaq_service set()"


def test_scripts_are_found(python: Path) -> None:
    """The installed package reads its Lua from its own copy."""
    program = """
from broker.scripts.location import lua_directory
print(lua_directory())
print(sorted(lua_directory().rglob("*.lua"))[0].read_text())
"""
    place, _, text = _run(python, program).partition("\n")
    assert Path(place).is_relative_to(python.parent.parent)
    assert text


def test_scripts_of_a_stranger(tmp_path: Path) -> None:
    """A `lua` directory that happens to lie beside an installed package is not taken for ours."""
    (tmp_path / "lua").mkdir()
    module = tmp_path / "broker" / "scripts" / "location.py"
    module.parent.mkdir(parents=True)
    module.write_text((ROOT / "broker" / "scripts" / "location.py").read_text())
    with pytest.raises(FileNotFoundError, match="install stanzaq again"):
        runpy.run_path(str(module))["lua_directory"]()


def test_ejabberd_is_found(python: Path) -> None:
    """The installed package starts its private ejabberd from its own template."""
    assert "mod_pubsub" in _run(python, "from frontends.tools.servers import ejabberd; print(ejabberd._template())")


def test_command(python: Path) -> None:
    """The installed command checks settings and tells its version."""
    command = python.with_name("stanzaq")
    environment = {**os.environ, "STANZAQ_XMPP_DOMAIN": "queue.example.org", "STANZAQ_XMPP_SECRET": "secret"}
    for arguments, answer in ((["version"], VERSION), (["serve", "xmpp", "--check"], "the settings are valid")):
        done = subprocess.run(
            [command, *arguments],
            env=environment,
            cwd=python.parent,
            capture_output=True,
            text=True,
            check=True,
            timeout=60,
        )
        assert done.stdout.strip() == answer
