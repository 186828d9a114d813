"""A report as a directory of files, there whole or not at all. Knows the formats' names; must not know what they say."""

import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

from broker.analytics.faults import Unreadable
from broker.analytics.figures import Report
from broker.analytics.render import as_csv, as_json, as_parquet, html

FORMATS: Final[dict[str, Callable[[Report, Path], None]]] = {
    "html": html.write,
    "csv": as_csv.write,
    "parquet": as_parquet.write,
    "json": as_json.write,
}
"""What writes a report into a directory, by the format's name."""

MARK: Final = "stanzaq-report.txt"
"""A directory with this file holds a report and nothing else, so that a newer one may take its place."""


def check(directory: Path, formats: Sequence[str]) -> None:
    """Refuse what could not be written, before there is anything to write."""
    if not formats:
        msg = f"--format names nothing: write one or more of {', '.join(FORMATS)}"
        raise Unreadable(msg)
    for name in formats:
        if name not in FORMATS:
            msg = f"--format {name[:60]!r} is none of {', '.join(FORMATS)}"
            raise Unreadable(msg)
    if directory.exists() and not directory.is_dir():
        msg = f"--out {directory} is a file: name a directory"
        raise Unreadable(msg)
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MARK).is_file():
        msg = f"--out {directory} holds something that is no report: name another directory"
        raise Unreadable(msg)


def write(report: Report, directory: Path, formats: Sequence[str]) -> list[Path]:
    """Write aside, then put it in its place; gives the files."""
    check(directory, formats)
    directory = directory.absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        # Next to it, because only within one file system a rename is one step.
        aside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        msg = f"--out {directory} cannot be made: {error.strerror}; name another directory"
        raise Unreadable(msg) from error
    try:
        # Readable like anything else that a command writes; what mkdtemp makes is its owner's alone.
        aside.chmod(0o755)
        (aside / MARK).write_text("A report of stanzaq. It is replaced whole by the next one that is written here.\n")
        for name in formats:
            FORMATS[name](report, aside)
        _put(aside, directory)
    except OSError as error:
        msg = f"--out {directory} cannot be written: {error.strerror}; make room there, or name another directory"
        raise Unreadable(msg) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return sorted(path for path in directory.iterdir() if path.name != MARK)


def _put(aside: Path, directory: Path) -> None:
    """Exchange: what was there before goes only after the new one is in its place."""
    if not directory.exists():
        aside.rename(directory)
        return
    former = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        directory.rename(former / directory.name)
        aside.rename(directory)
    finally:
        shutil.rmtree(former, ignore_errors=True)
