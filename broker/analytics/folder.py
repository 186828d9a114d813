"""A folder of files on any file system that Spark can write: local disk, HDFS, S3. Must not know what the files contain.

It goes through Hadoop's file system, as Spark does, so that executors on other machines find the same files.
"""

from collections.abc import Collection, Iterator
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
        try:
            self._system = self._path(path).getFileSystem(hadoop)
            self.path = self._system.makeQualified(self._path(path)).toString().rstrip("/")
        except Py4JJavaError as error:
            said = str(error.java_exception.getMessage() or error.java_exception).splitlines()[0]
            msg = f"the folder {path} cannot be used ({said[:200]}): name one that Spark can reach (--packages, --conf)"
            raise Unreadable(msg) from error

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
        self._system.delete(self._path(self.of(name)), True)  # noqa: FBT003  (Hadoop's signature: recursive)

    def remove_files(self, names: Collection[str]) -> None:
        """Remove files, and the sub-folders that they leave empty."""
        for name in names:
            self.remove(name)
        for folder in {name.rpartition("/")[0] for name in names}:
            if not self.names(folder):
                self.remove(folder)

    def remove_strays(self, known: Collection[str], apart: str, until_ms: int) -> None:
        """Remove the files written until then that are not known: what was cut short has left them; `apart` is a sub-folder."""
        strays = [
            name
            for name, status in self._files("")
            if name not in known and not name.startswith(f"{apart}/") and status.getModificationTime() <= until_ms
        ]
        self.remove_files(strays)

    def text(self, name: str) -> str:
        """Read a small file."""
        stream = self._system.open(self._path(self.of(name)))
        try:
            return bytes(stream.readAllBytes()).decode(errors="replace")
        finally:
            stream.close()

    def write(self, name: str, text: str) -> bool:
        """Write a small file, atomically; False if there is one of this name."""
        aside = self._new_hidden_name()
        stream = self._system.create(self._path(self.of(aside)))
        try:
            stream.write(bytearray(text.encode()))
        finally:
            stream.close()
        return not self.exists(name) and self._rename(aside, name)

    def add(self, frame: DataFrame, name: str, by: str = "") -> dict[str, int]:
        """Write rows to new Parquet files in a sub-folder, or in one for each value of a column; returns their sizes in bytes."""
        aside, sizes = self._new_hidden_name(), dict[str, int]()
        writer = frame.write.partitionBy(by) if by else frame.write
        try:
            writer.parquet(self.of(aside))
            for written, status in self._files(aside):
                if written.endswith(".parquet"):
                    below = written.removeprefix(f"{aside}/").rpartition("/")[0]
                    target = "/".join(filter(None, (name, below, f"{uuid4().hex}.parquet")))
                    if not self._rename(written, target):
                        msg = (
                            f"{self.of(written)} cannot be renamed to {target}: see whether somebody else writes there"
                        )
                        raise Unreadable(msg)
                    sizes[target] = status.getLen()
        finally:
            self.remove(aside)
        return sizes

    def _files(self, name: str) -> Iterator[tuple[str, Any]]:
        """Find the files below a sub-folder, with Hadoop's status of each."""
        found = self._system.listFiles(self._path(self.of(name)), True)  # noqa: FBT003  (recursive)
        while found.hasNext():
            status = found.next()
            yield status.getPath().toString().removeprefix(f"{self.path}/"), status

    def _new_hidden_name(self) -> str:
        # Spark ignores names that begin with an underscore.
        return f"_aside/{uuid4().hex}"

    def _rename(self, name: str, new: str) -> bool:
        target = self._path(self.of(new))
        self._system.mkdirs(target.getParent())
        return bool(self._system.rename(self._path(self.of(name)), target))
