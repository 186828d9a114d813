"""The wheel: what is installed from it works without the repository."""

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
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the wheel."""
    directory = tmp_path_factory.mktemp("wheel")
    command = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(directory), str(ROOT)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=100)
    assert done.returncode == 0, done.stdout + done.stderr
    (found,) = directory.glob("*.whl")
    return found


@pytest.fixture(scope="module")
def python(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel in a fresh environment that borrows only its dependencies from this one."""
    environment = tmp_path_factory.mktemp("installed") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    interpreter = environment / "bin" / "python"
    install = ["-m", "pip", "--python", str(interpreter), "install", "--quiet", "--no-index", "--no-deps"]
    subprocess.run([sys.executable, *install, str(wheel)], check=True, timeout=60)
    (packages,) = environment.glob("lib/python*/site-packages")
    # A path in a .pth file is searched, but the .pth files in it are not read: the editable install stays out of sight.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return interpreter


def _run(python: Path, program: str) -> str:
    command = [str(python), "-I", "-c", program]
    return subprocess.run(
        command, cwd=python.parent, capture_output=True, text=True, check=True, timeout=60
    ).stdout.strip()


def test_contents(wheel: Path) -> None:
    """All of lua/ is in it, every Python module, the web page, and nothing else."""
    names = set(zipfile.ZipFile(wheel).namelist())
    scripts = {f"broker/_lua/{path.relative_to(ROOT / 'lua')}" for path in (ROOT / "lua").rglob("*.lua")}
    modules = {
        str(path.relative_to(ROOT))
        for name in ("broker", "frontends", "stanzaq")
        for path in (ROOT / name).rglob("*.py")
    }
    page = {str(path.relative_to(ROOT)) for path in (ROOT / "frontends" / "rest" / "ui").iterdir()}
    assert len(page) > 5 and scripts | modules | page | {"frontends/_local/ejabberd.yml", "stanzaq/py.typed"} <= names
    assert {name.partition("/")[0] for name in names} <= {
        "broker",
        "frontends",
        "stanzaq",
        f"stanzaq-{VERSION}.dist-info",
    }


@pytest.fixture(scope="module")
def library(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheel without extras: only the dependencies of the base install are there."""
    environment = tmp_path_factory.mktemp("library") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", environment], check=True, timeout=60)
    (packages,) = environment.glob("lib/python*/site-packages")
    zipfile.ZipFile(wheel).extractall(packages)
    (found,) = importlib.metadata.distributions(name="stanzaq", path=[str(packages)])
    wanted, known = [Requirement(line) for line in found.requires or ()], set[str]()
    while wanted:
        each = wanted.pop()
        if each.name in known or not (each.marker is None or each.marker.evaluate({"extra": ""})):
            continue
        known.add(each.name)
        borrowed = importlib.metadata.distribution(each.name)
        wanted += [Requirement(line) for line in borrowed.requires or ()]
        for name in {file.parts[0] for file in borrowed.files or () if file.parts[0] not in {"..", "__pycache__"}}:
            (packages / name).symlink_to(str(borrowed.locate_file(name)))
    (listed,) = re.findall(
        r"`pip install stanzaq` installs (.*?)\.\s", (ROOT / "docs" / "library.md").read_text(), re.DOTALL
    )
    assert {canonicalize_name(name) for name in known} == set(re.findall("`(.*?)`", listed))
    return environment / "bin" / "python"


def test_library_alone(library: Path) -> None:
    """The base install has what a worker needs; the command says what else to install."""
    program = (
        "import stanzaq; stanzaq.Worker('xmpp://w@example.org').task('jobs')(print); print(sorted(stanzaq.__all__))"
    )
    assert "'Worker'" in _run(library, program)
    program = "try: import stanzaq.testing\nexcept ModuleNotFoundError as error: print(error)"
    assert _run(library, program).endswith(" is missing: pip install 'stanzaq[testing]'")
    for argument, code, told in (
        ("serve", 2, "the command is part of the service, and typer is missing: pip install 'stanzaq[server]'"),
        ("--version", 0, f"stanzaq {VERSION}"),
        ("--help", 0, "publish an item and print its id"),
        ("worker", 2, "the following arguments are required: MODULE:NAME"),
        ("publish", 2, "the following arguments are required: NODE"),
    ):
        done = subprocess.run(
            [library, "-I", "-c", "from stanzaq.launch import main; main()", argument],
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
