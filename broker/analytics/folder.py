"""A folder of files wherever Spark can write: this machine's disk, HDFS, S3. Must not know what is in it.

Through Hadoop's file system, as Spark itself does, so that executors elsewhere find the same.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from broker.analytics.faults import Unreadable


class Folder:
    """One folder, which may not be there yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Look at nothing yet."""
        # Spark has no other name for what it writes files with.
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self._path = jvm.org.apache.hadoop.fs.Path
        with _told(path):
            self._system = self._path(path).getFileSystem(hadoop)
            self.path = self._system.makeQualified(self._path(path)).toString().rstrip("/")

    def of(self, name: str) -> str:
        """Give the path of something in it."""
        return f"{self.path}/{name}"

    def exists(self, name: str = "") -> bool:
        """Tell whether something is there."""
        return bool(self._system.exists(self._path(self.of(name))))

    def empty(self) -> bool:
        """Tell whether nothing is in it, or it is not there."""
        return not self.exists() or len(self._system.listStatus(self._path(self.path))) == 0

    def names(self, name: str) -> list[str]:
        """List what is in a folder in it; nothing when that is not there."""
        if not self.exists(name):
            return []
        return sorted(each.getPath().getName() for each in self._system.listStatus(self._path(self.of(name))))

    def remove(self, name: str) -> None:
        """Take something out, with all that is in it."""
        self._delete(self.of(name))

    def text(self, name: str) -> str:
        """Read a small file."""
        stream = self._system.open(self._path(self.of(name)))
        try:
            return bytes(stream.readAllBytes()).decode(errors="replace")
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small file whole or not at all."""
        aside = self._aside()
        with _told(self.path):
            stream = self._system.create(self._path(aside))
            stream.write(bytearray(text.encode()))
            stream.close()
            self._rename(aside, name)

    def append(self, frame: DataFrame, name: str) -> None:
        """Add rows to those under a name, as one Parquet file, whole or not at all."""
        aside = self._aside()
        frame.coalesce(1).write.parquet(aside)
        self._system.mkdirs(self._path(self.of(name)))
        for status in self._system.listStatus(self._path(aside)):
            if status.getPath().getName().endswith(".parquet"):
                self._rename(status.getPath().toString(), f"{name}/{uuid4().hex}.parquet")
        self._delete(aside)

    def replace(self, frame: DataFrame, name: str) -> None:
        """Put rows in the place of those under a name."""
        aside = self._aside()
        frame.write.parquet(aside)
        # Between both nothing is there, and whoever reads finds no rows rather than some of them.
        self._delete(self.of(name))
        self._rename(aside, name)

    def _aside(self) -> str:
        # Spark passes over names that begin with an underscore.
        return self.of(f"_aside/{uuid4().hex}")

    def _delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)  # noqa: FBT003  (Hadoop's signature: with all that is in it)

    def _rename(self, path: str, name: str) -> None:
        if not self._system.rename(self._path(path), self._path(self.of(name))):
            msg = f"{path} could not be renamed to {name}"
            raise OSError(msg)


@contextmanager
def _told(path: str) -> Iterator[None]:
    """Say of a file system that refuses which folder it was and what to do."""
    try:
        yield
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage() or error.java_exception).splitlines()[0]
        msg = f"the folder {path} cannot be used ({said[:200]}): name one that this user may write to, and Spark can reach"
        raise Unreadable(msg) from error
