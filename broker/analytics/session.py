"""Starts the Spark session, the only place that does. Must not know what it is used for.

The driver sends executors this program's package; they need Python with pyarrow and redis (docs/reports.md).
"""

import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkRuntimeError
from pyspark.find_spark_home import _find_spark_home
from pyspark.sql import SparkSession

from broker.analytics.faults import Unreadable
from broker.analytics.source.reader import StanzaqSource

_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    # Only sums and retries are shuffled: most of Spark's default 200 tasks would have nothing to do.
    "spark.sql.shuffle.partitions": "8",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
# Without remote executors, only this machine has to reach the driver.
_PACKAGE: Final = Path(__file__).parent.parent
_LOOPBACK: Final = {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}

_MEMORY_LIMITS: Final = ("/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes")
_LEAST_HEAP: Final = 2**30
"""Spark's own default."""


@contextmanager
def session(
    master: str | None = None, conf: Mapping[str, str] | None = None, /, **settings: str
) -> Iterator[SparkSession]:
    """Start Spark at a master, e.g. `spark://host:7077`; None: as spark-submit says, else on this machine's cores.

    `conf` are settings of Spark, and so are `settings`, with `_` for each dot; they override those here.
    """
    if not shutil.which("java") and "JAVA_HOME" not in os.environ:
        msg = "java is missing, which runs Spark: apt-get install openjdk-17-jre-headless"
        raise Unreadable(msg)
    submitted = "PYSPARK_GATEWAY_PORT" in os.environ
    if master is None and not submitted:
        master = "local[*]"
    local = master is not None and master.startswith("local")
    builder = SparkSession.builder.appName("stanzaq")
    if master is not None:
        builder = builder.master(master)
    if local:
        # Tasks run in this Python, not in the one that the PATH finds.
        os.environ["PYSPARK_PYTHON"] = sys.executable
        if "SPARK_HOME" not in os.environ:
            os.environ["SPARK_HOME"] = _make_spark_home().name
        # Without this, Spark prints how it logs before anybody can tell it not to.
        os.environ.setdefault("SPARK_CONF_DIR", str(Path(__file__).parent / "conf"))
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    here = {**_LOOPBACK, "spark.driver.memory": f"{_heap_bytes() // 2**20}m"} if local else {}
    given = {name.replace("_", "."): value for name, value in settings.items()}
    for name, value in {**_ALWAYS, **here, **given, **(conf or {})}.items():
        builder = builder.config(name, value)
    try:
        spark = builder.getOrCreate()
    except (Py4JJavaError, PySparkRuntimeError) as error:
        cause = error.java_exception if isinstance(error, Py4JJavaError) else error
        said = next(iter(str(cause).splitlines()), "")
        msg = f"Spark cannot be started at {master or 'what spark-submit says'} ({said[:200]}): correct --master, or see there"
        raise Unreadable(msg) from error
    try:
        spark.sparkContext.setLogLevel("ERROR")
        spark.dataSource.register(StanzaqSource)
        if local:
            yield spark
        else:
            with tempfile.TemporaryDirectory(prefix="stanzaq-") as directory:
                # Not as Python files: Spark imports these for its own functions, but not where it reads a data source. Unpacked
                # in the folder where executors work, all of their processes find it.
                spark.sparkContext.addArchive(f"{_pack_program(Path(directory))}#{_PACKAGE.name}")
                yield spark
    finally:
        spark.stop()


def _heap_bytes() -> int:
    """Return half of the memory of this machine or container: Spark's Python processes and the system need the rest."""
    limits = [os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")]
    for path in _MEMORY_LIMITS:
        # There is one of the two, or none, or it says `max`.
        with suppress(OSError, ValueError):
            limits.append(int(Path(path).read_text()))
    return max(_LEAST_HEAP, min(limits) // 2)


@cache
def _make_spark_home() -> "tempfile.TemporaryDirectory[str]":
    """Return a home for Spark without its archive of pyspark, kept as long as this process, which keeps Java running.

    Spark lets its Python processes import from that archive first, if it is there. Python compiles an archive anew in each
    process, which takes a second, and a stream's process must have started within ten.
    """
    home, installed = tempfile.TemporaryDirectory(prefix="stanzaq-spark-"), Path(_find_spark_home())
    for name in ("bin", "jars"):
        Path(home.name, name).symlink_to(installed / name)
    return home


def _pack_program(directory: Path) -> Path:
    """Pack the part of this program that executors need: the content of one package."""
    archive = directory / "stanzaq.zip"
    with zipfile.ZipFile(archive, "w") as packed:
        for path in sorted(_PACKAGE.rglob("*.py")):
            packed.write(path, path.relative_to(_PACKAGE))
    return archive
