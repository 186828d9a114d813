"""Builds everything of a release into dist/VERSION, checks it in a fresh environment, and signs it. Must not publish anything.

release.py --base python:3.13-slim@sha256:DIGEST --key ~/.ssh/release
release.py --without-image --key ~/.ssh/release    where buildah is missing
"""

import argparse
import gzip
import hashlib
import io
import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from pathlib import Path
from typing import IO, Any, Final, NoReturn

from deploy import contents, lock

ROOT: Final = lock.ROOT
HELM: Final = ROOT / ".venv" / "tools" / "helm4"
TOOLS: Final = ROOT / ".venv" / "release" / "bin"
SIGNER: Final = "release@stanzaq"
"""The name under which SECURITY.md tells how to check a signature."""

PROTON: Final = "python_qpid_proton"

_DIGEST: Final = re.compile(r".+@sha256:[0-9a-f]{64}")
_PACKAGES: Final = re.compile(r"opt/stanzaq/lib/python[\d.]+/site-packages/")


def refuse(line: str) -> NoReturn:
    """Print one line, and exit."""
    sys.exit(f"release: {line}")


def run(*command: str | Path, **more: str) -> str:
    """Run a program with these variables as well; refuse if it fails."""
    if Path(command[0]).is_absolute() and not Path(command[0]).exists():
        refuse(f"{command[0]} is missing: make .venv/.release .venv/.tools")
    done = subprocess.run(  # noqa: S603  (programs named here)
        command, cwd=ROOT, env={**os.environ, **more}, stdout=subprocess.PIPE, text=True, check=False
    )
    if done.returncode:
        refuse(f"{Path(command[0]).name} {command[1]} failed with {done.returncode}")
    return done.stdout


def version(root: Path = ROOT) -> str:
    """Return the version of pyproject.toml; refuse if the service, a pin to one of them, or the chart has another."""
    text = {place: (root / place).read_text() for place in (*lock.PLACES, "deploy/helm/stanzaq/Chart.yaml")}
    found = str(tomllib.loads(text["pyproject.toml"])["project"]["version"])
    for place, lines in text.items():
        said = re.findall(r'(?m)^version = "(.+)"$|"stanzaq(?:-server)?==(.+?)"|^(?:appV|v)ersion: (\S+)$', lines)
        if others := {"".join(each) for each in said} - {found}:
            refuse(f"{place} has the version {min(others)}, pyproject.toml has the version {found}")
    return found


def clean(root: Path = ROOT) -> None:
    """Refuse a tree with changes: nobody could build the same again."""
    status = ["git", "status", "--porcelain"]
    changed = subprocess.run(status, cwd=root, capture_output=True, text=True, check=True).stdout.splitlines()  # noqa: S603
    if changed:
        refuse(f"the tree is dirty, first of {len(changed)}: {changed[0][3:]}; commit it or remove it")


def tagged(number: str, root: Path = ROOT) -> None:
    """Refuse a commit without the version's tag: a release is found again by it."""
    here = ["git", "tag", "--points-at", "HEAD"]
    tags = subprocess.run(here, cwd=root, capture_output=True, text=True, check=True).stdout.split()  # noqa: S603
    if f"v{number}" not in tags:
        refuse(f"this commit has no tag v{number}: write the changelog of that version, and git tag --sign v{number}")


def fits(root: Path = ROOT) -> None:
    """Refuse locks that do not fit."""
    try:
        lock.check_all(root)
    except lock.LockError as fault:
        refuse(str(fault))


def packed(members: dict[str, bytes], target: Path, epoch: int) -> None:
    """Write a tar, in order of names and without times and owners of this machine; a .tgz compressed."""
    with target.open("wb") as plain:
        raw: IO[bytes] = gzip.GzipFile("", "wb", 9, plain, mtime=0) if target.suffix == ".tgz" else plain  # type: ignore[assignment]
        with raw, tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
            for name in sorted(members):
                entry = tarfile.TarInfo(name)
                entry.size, entry.mtime, entry.mode = len(members[name]), epoch, 0o644
                tar.addfile(entry, io.BytesIO(members[name]))


def unpacked(archive: Path) -> dict[str, bytes]:
    """Read all files of a tar."""
    with tarfile.open(archive) as tar:
        return {each.name: read.read() for each in tar if each.isfile() and (read := tar.extractfile(each))}


def build_packages(source: Path, out: Path, epoch: int) -> list[Path]:
    """Build the source distributions and, from them, the wheels."""
    for place in lock.PLACES:
        project = (source / place).parent
        run(TOOLS / "python", "-m", "build", "--no-isolation", "--outdir", out, project, SOURCE_DATE_EPOCH=str(epoch))
    return sorted(out.glob("*.whl"))


def build_chart(source: Path, out: Path, epoch: int) -> None:
    """Package the chart with Helm, which gives every file the time of now; pack it again without."""
    with tempfile.TemporaryDirectory() as work:
        run(HELM, "package", source / "deploy/helm/stanzaq", "--destination", work, HOME=work)
        (made,) = Path(work).glob("*.tgz")
        packed(unpacked(made), out / made.name, epoch)


def build_site(source: Path, target: Path, epoch: int) -> None:
    """Build the site of all documentation into an archive."""
    with tempfile.TemporaryDirectory() as work:
        site = Path(work) / "site"
        command: list[str | Path] = [ROOT / ".venv/bin/mkdocs", "build", "--config-file", source / "mkdocs.yml"]
        run(*command, "--site-dir", site, SOURCE_DATE_EPOCH=str(epoch), PYTHONPATH=str(source))
        files = {str(path.relative_to(site)): path.read_bytes() for path in site.rglob("*") if path.is_file()}
        packed(files, target, epoch)


def keep_proton(wheels: Path, out: Path, epoch: int) -> None:
    """Keep the wheel of proton, which its own index lacks, for this platform, with the libraries that it is linked with."""
    (built,) = wheels.glob(f"{PROTON}-*.whl")
    tools = f"{TOOLS}{os.pathsep}{os.environ['PATH']}"
    run(TOOLS / "auditwheel", "repair", "--wheel-dir", out, built, PATH=tools, SOURCE_DATE_EPOCH=str(epoch))


def install(ours: list[Path], name: str, work: Path, epoch: int) -> Path:
    """Install our wheels and the packages of a lock in a fresh environment; return its `site-packages`."""
    wheels, environment = work / "wheels", work / "environment"
    locked = ROOT / "deploy" / "locked" / f"{name}.txt"
    command: list[str | Path] = ["wheel", "--quiet", "--no-build-isolation", "--require-hashes"]
    # What is compiled names no directory of the day, and is not from an earlier day; deploy/Dockerfile has the same.
    command += ["-r", locked, "-w", wheels]
    run(TOOLS / "pip", *command, SOURCE_DATE_EPOCH=str(epoch), CFLAGS="-g0", PIP_NO_CACHE_DIR="1")
    run(TOOLS / "python", "-m", "venv", "--without-pip", environment)
    into = ["--python", str(environment / "bin/python"), "install", "--quiet", "--no-index", "--no-deps"]
    run(TOOLS / "pip", *into, *sorted(wheels.iterdir()), *ours)
    (packages,) = environment.glob("lib/python*/site-packages")
    return packages


def describe(packages: Path, out: Path, epoch: int) -> None:
    """Write the SBOM of an environment."""
    command = ["environment", "--pyproject", "pyproject.toml", "--output-reproducible", "--sv", "1.6"]
    python = packages.parents[2] / "bin" / "python"
    run(TOOLS / "cyclonedx-py", *command, "--output-file", out, python, SOURCE_DATE_EPOCH=str(epoch))
    contents.complete(out, packages)


def check_environment(packages: Path, sbom: Path, number: str) -> None:
    """Refuse what differs from its SBOM, has no licence, or does not run."""
    faults = contents.differences(packages, sbom)
    faults += [f"{name} has no licence" for name in contents.unlicensed(sbom)]
    if faults:
        refuse(faults[0])
    program = packages.parents[2] / "bin" / "stanzaq"
    said = run(program, "--version")
    if not said.startswith(f"stanzaq {number}, functions stanzaq_"):
        refuse(f"the wheel says {said.strip()}")
    settings = {"STANZAQ_XMPP_DOMAIN": "queue.example.org", "STANZAQ_XMPP_SECRET": "secret"}
    run(program, "serve", "xmpp", "--check", **settings)


def build_image(source: Path, target: Path, epoch: int, base: str) -> None:
    """Build the image of the frontend with buildah into an archive (OCI)."""
    number = version()
    name = f"localhost/stanzaq-release:{number}"
    options = ["--isolation", "chroot", "--timestamp", str(epoch), "--no-cache", "--target", "frontend"]
    for each in (f"BASE={base}", f"VERSION={number}", f"SOURCE_DATE_EPOCH={epoch}"):
        options += ["--build-arg", each]
    run("buildah", "bud", "--quiet", *options, "--file", source / "deploy/Dockerfile", "--tag", name, source)
    with tempfile.TemporaryDirectory() as work:
        run("buildah", "push", "--quiet", name, f"oci-archive:{work}/image.tar:{number}")
        packed(without_comments(unpacked(Path(work) / "image.tar")), target, epoch)


def without_comments(blobs: dict[str, bytes]) -> dict[str, bytes]:
    """Drop the comments in an image's history: buildah writes names of its own that differ each time."""
    kept = dict(blobs)

    def written(record: dict[str, Any], place: dict[str, Any]) -> None:
        text = json.dumps(record, sort_keys=True).encode()
        place |= {"digest": f"sha256:{hashlib.sha256(text).hexdigest()}", "size": len(text)}
        kept[_blob(place["digest"])] = text

    index = json.loads(kept.pop("index.json"))
    (described,) = index["manifests"]
    manifest = json.loads(kept.pop(_blob(described["digest"])))
    config = json.loads(kept.pop(_blob(manifest["config"]["digest"])))
    for step in config.get("history", ()):
        step.pop("comment", None)
    written(config, manifest["config"])
    written(manifest, described)
    return kept | {"index.json": json.dumps(index, sort_keys=True).encode()}


def image_packages(archive: Path, work: Path) -> Path:
    """Extract the Python packages of an image; return the directory."""
    blobs = unpacked(archive)
    index = json.loads(blobs["index.json"])
    manifest = json.loads(blobs[_blob(index["manifests"][0]["digest"])])
    for layer in manifest["layers"]:
        with tarfile.open(fileobj=io.BytesIO(blobs[_blob(layer["digest"])])) as tar:
            tar.extractall(work, [each for each in tar if _PACKAGES.match(each.name)], filter="data")
    (packages,) = work.glob("opt/stanzaq/lib/python*/site-packages")
    return packages


def _blob(digest: str) -> str:
    return "blobs/" + digest.replace(":", "/")


def check_image(archive: Path, sbom: Path) -> None:
    """Refuse an image whose packages differ from the SBOM."""
    with tempfile.TemporaryDirectory() as work:
        faults = contents.differences(image_packages(archive, Path(work)), sbom)
    if faults:
        refuse(f"the image: {faults[0]}")


def sums(out: Path) -> None:
    """Write SHA256SUMS."""
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in sorted(out.iterdir())]
    (out / "SHA256SUMS").write_text("".join(lines))


def sign(out: Path, key: Path) -> None:
    """Sign SHA256SUMS with a key of OpenSSH, and check the signature as whoever has the public key does."""
    listed, signature = out / "SHA256SUMS", out / "SHA256SUMS.sig"
    signature.unlink(missing_ok=True)
    run("ssh-keygen", "-Y", "sign", "-q", "-f", key, "-n", "file", listed)
    with tempfile.TemporaryDirectory() as work, listed.open("rb") as signed:
        signers = Path(work) / "signers"
        signers.write_text(f"{SIGNER} {key.with_name(key.name + '.pub').read_text()}")
        command: list[str | Path] = [
            "ssh-keygen",
            "-Y",
            "verify",
            "-f",
            signers,
            "-I",
            SIGNER,
            "-n",
            "file",
            "-s",
            signature,
        ]
        if subprocess.run(command, stdin=signed, capture_output=True, check=False).returncode:  # noqa: S603
            refuse(f"the signature of {listed.name} is not that of {key.name}.pub")


def build(base: str | None, key: Path) -> Path:
    """Build, check and sign everything; return the directory."""
    if not key.is_file() or not key.with_name(key.name + ".pub").is_file():
        refuse(f"{key} is no key with its public part beside it: make release KEY=FILE, of ssh-keygen -t ed25519")
    if base is not None and not _DIGEST.fullmatch(base):
        refuse(
            f"{base or 'no base'} names no digest: make release BASE=python:3.13-slim@sha256:… , or ARGS=--without-image"
        )
    if base is not None and shutil.which("buildah") is None:
        refuse("buildah is missing: install it, or use ARGS=--without-image")
    clean()
    fits()
    number = version()
    tagged(number)
    epoch = int(run("git", "log", "-1", "--format=%ct"))
    out = ROOT / "dist" / number
    shutil.rmtree(out, ignore_errors=True)
    out.mkdir(parents=True)
    with tempfile.TemporaryDirectory() as text:
        work, source = Path(text), Path(text) / "source"
        # Only what is committed, whatever else lies here.
        run("git", "clone", "--quiet", "--no-hardlinks", ROOT, source)
        shutil.rmtree(source / ".git")
        wheels = build_packages(source, out, epoch)
        build_chart(source, out, epoch)
        build_site(source, out / f"stanzaq-{number}-site.tgz", epoch)
        sbom = out / f"stanzaq-{number}-sbom.json"
        packages = install(wheels, "frontend", work, epoch)
        describe(packages, sbom, epoch)
        check_environment(packages, sbom, number)
        keep_proton(work / "wheels", out, epoch)
        if base is not None:
            archive = out / f"stanzaq-{number}-image.tar"
            build_image(source, archive, epoch, base)
            check_image(archive, sbom)
    sums(out)
    sign(out, key)
    return out


def main(arguments: list[str]) -> None:
    """Build a release and say what to publish where."""
    parser = argparse.ArgumentParser(description="Build, check and sign a release; nothing is published.")
    parser.add_argument("--base", default="", help="the base image, by digest")
    parser.add_argument("--key", type=Path, required=True, help="the private key of OpenSSH that signs it")
    parser.add_argument("--without-image", action="store_true", help="build no image")
    asked = parser.parse_args(arguments)
    out = build(None if asked.without_image else asked.base, asked.key)
    places = {
        ".whl": "the Python package index",
        ".gz": "the Python package index",
        ".tar": "the container registry: skopeo copy oci-archive:FILE docker://REGISTRY/stanzaq:VERSION",
        ".tgz": "the chart registry: helm push FILE oci://REGISTRY/charts; the site: unpack it where it is served",
        ".json": "beside the image: cosign attest --type cyclonedx --predicate FILE IMAGE",
    }
    for path in sorted(out.iterdir()):
        place = places.get(path.suffix, "beside all of them")
        if path.name.startswith(PROTON):
            place = "an index of your own: proton's has no wheel"
        print(f"{path.relative_to(ROOT)}\t{place}")  # noqa: T201


if __name__ == "__main__":
    main(sys.argv[1:])
