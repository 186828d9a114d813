"""A folder of files on any file system that Spark can write: local disk, HDFS, S3. Must not know what the files contain.

It goes through Hadoop's file system, as Spark does, so that executors on other machines find the same files.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import uuid4

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from broker.analytics.faults import Unreadable


class Folder:
    """One folder, which may not exist yet."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        """Resolve the path; reads nothing yet."""
        # Spark has no public name for its Hadoop file systems.
        jvm: Any = spark.sparkContext._jvm  # noqa: SLF001
        hadoop: Any = spark.sparkContext._jsc.hadoopConfiguration()  # noqa: SLF001
        self._path = jvm.org.apache.hadoop.fs.Path
        with _translate_faults(path):
            self._system = self._path(path).getFileSystem(hadoop)
            self.path = self._system.makeQualified(self._path(path)).toString().rstrip("/")

    def of(self, name: str) -> str:
        """Return the path of a name in the folder."""
        return f"{self.path}/{name}"

    def exists(self, name: str = "") -> bool:
        """Tell whether a name exists in the folder."""
        return bool(self._system.exists(self._path(self.of(name))))

    def empty(self) -> bool:
        """Tell whether the folder is empty or missing."""
        return not self.exists() or len(self._system.listStatus(self._path(self.path))) == 0

    def names(self, name: str) -> list[str]:
        """List the names in a sub-folder; none if it is missing."""
        try:
            found = self._system.listStatus(self._path(self.of(name)))
        except Py4JJavaError as error:
            if "FileNotFoundException" not in error.java_exception.getClass().getName():
                raise
            return []
        return sorted(each.getPath().getName() for each in found)

    def remove(self, name: str) -> None:
        """Remove a name and everything below it."""
        self._delete(self.of(name))

    def text(self, name: str) -> str:
        """Read a small file."""
        stream = self._system.open(self._path(self.of(name)))
        try:
            return bytes(stream.readAllBytes()).decode(errors="replace")
        finally:
            stream.close()

    def write(self, name: str, text: str) -> None:
        """Write a small file, atomically."""
        aside = self._new_hidden_path()
        with _translate_faults(self.path):
            stream = self._system.create(self._path(aside))
            stream.write(bytearray(text.encode()))
            stream.close()
            self._rename(aside, name)

    def append(self, frame: DataFrame, name: str) -> None:
        """Append rows as one Parquet file, atomically."""
        aside = self._new_hidden_path()
        frame.coalesce(1).write.parquet(aside)
        self._system.mkdirs(self._path(self.of(name)))
        for status in self._system.listStatus(self._path(aside)):
            if status.getPath().getName().endswith(".parquet"):
                self._rename(status.getPath().toString(), f"{name}/{uuid4().hex}.parquet")
        self._delete(aside)

    def replace(self, frame: DataFrame, name: str) -> None:
        """Replace the rows under a name."""
        aside, former = self._new_hidden_path(), f"_former/{name}"
        frame.write.parquet(aside)
        # Between the two steps there are no files, never some of them: `history.read_now` reads again.
        if self.exists(name):
            self._delete(self.of(former))
            self._system.mkdirs(self._path(self.of("_former")))
            self._rename(self.of(name), former)
        self._rename(aside, name)
        self._delete(self.of(former))

    def recover(self) -> None:
        """Put back what a `replace` that was cut short has taken away."""
        for name in self.names("_former"):
            if not self.exists(name):
                self._rename(self.of(f"_former/{name}"), name)
        self._delete(self.of("_former"))

    def _new_hidden_path(self) -> str:
        # Spark ignores names that begin with an underscore.
        return self.of(f"_aside/{uuid4().hex}")

    def _delete(self, path: str) -> None:
        self._system.delete(self._path(path), True)  # noqa: FBT003  (Hadoop's signature: recursive)

    def _rename(self, path: str, name: str) -> None:
        if not self._system.rename(self._path(path), self._path(self.of(name))):
            msg = f"{path} could not be renamed to {name}"
            raise OSError(msg)


@contextmanager
def _translate_faults(path: str) -> Iterator[None]:
    """Turn a refusal of the file system into a line that names the folder and what to do."""
    try:
        yield
    except Py4JJavaError as error:
        said = str(error.java_exception.getMessage() or error.java_exception).splitlines()[0]
        msg = f"the folder {path} cannot be used ({said[:200]}): name one that this user may write to, and Spark can reach"
        raise Unreadable(msg) from error
