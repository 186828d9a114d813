"""Writes a report as a directory of files, atomically. Knows the formats' names; must not know their contents."""

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
"""The writer of each format."""

MARK: Final = "stanzaq-report.txt"
"""A directory with this file has a report and nothing else, so a newer report may replace it."""


def check(directory: Path, formats: Sequence[str]) -> None:
    """Refuse a directory or format that cannot be written, before the work begins."""
    if not formats:
        msg = f"--format is empty: write one or more of {', '.join(FORMATS)}"
        raise Unreadable(msg)
    for name in formats:
        if name not in FORMATS:
            msg = f"--format {name[:60]!r} is none of {', '.join(FORMATS)}"
            raise Unreadable(msg)
    if directory.exists() and not directory.is_dir():
        msg = f"--out {directory} is a file: name a directory"
        raise Unreadable(msg)
    if directory.is_dir() and any(directory.iterdir()) and not (directory / MARK).is_file():
        msg = f"--out {directory} contains files that are not a report: name another directory"
        raise Unreadable(msg)


def write(report: Report, directory: Path, formats: Sequence[str]) -> list[Path]:
    """Write to a temporary directory, then rename it; returns the files."""
    check(directory, formats)
    directory = directory.absolute()
    try:
        directory.parent.mkdir(parents=True, exist_ok=True)
        # In the same parent, because a rename is atomic only within one file system.
        aside = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    except OSError as error:
        msg = f"--out {directory} cannot be made: {error.strerror}; name another directory"
        raise Unreadable(msg) from error
    try:
        # Readable like any other output: mkdtemp makes a directory for its owner alone.
        aside.chmod(0o755)
        (aside / MARK).write_text("A report of stanzaq. It is replaced whole by the next one that is written here.\n")
        for name in formats:
            FORMATS[name](report, aside)
        _replace_directory(aside, directory)
    except OSError as error:
        msg = f"--out {directory} cannot be written: {error.strerror}; make room there, or name another directory"
        raise Unreadable(msg) from error
    finally:
        shutil.rmtree(aside, ignore_errors=True)
    return sorted(path for path in directory.iterdir() if path.name != MARK)


def _replace_directory(aside: Path, directory: Path) -> None:
    """Exchange the directories; the old one is removed only after the new one is in place."""
    if not directory.exists():
        aside.rename(directory)
        return
    former = Path(tempfile.mkdtemp(prefix=f".{directory.name}-", dir=directory.parent))
    try:
        directory.rename(former / directory.name)
        aside.rename(directory)
    finally:
        shutil.rmtree(former, ignore_errors=True)
