"""A private Spark master with a worker on the loopback. Must not know what is run on it."""

import os
import shutil
import socket
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Self

import pyspark

from frontends.tools.servers.process import Process, free_ports

_HOME = Path(pyspark.__file__).parent
# What Spark's own start scripts, which know no loopback, would set.
_ENVIRONMENT = {"SPARK_HOME": str(_HOME), "SPARK_SCALA_VERSION": "2.13", "SPARK_LOCAL_IP": "127.0.0.1"}
_QUIET = ["-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m"]
_READY_SECONDS = 90.0


class Standalone:
    """A master, and a worker for two executors of one core each; runs inside a `with`."""

    def __init__(self, directory: Path) -> None:
        """Choose the directory for their files."""
        self._directory = directory
        self._port, *self._pages = free_ports(3)
        self._stack = ExitStack()

    @property
    def url(self) -> str:
        """The master's URL."""
        return f"spark://127.0.0.1:{self._port}"

    def __enter__(self) -> Self:
        """Start both and wait until the worker has registered."""
        page, other = map(str, self._pages)
        with ExitStack() as stack:
            self._start(stack, "master", "Master", "--port", str(self._port), "--webui-port", page)
            options = ["--cores", "2", "--memory", "1400m", "--webui-port", other]
            options += ["--work-dir", str(self._directory / "work")]
            worker = self._start(stack, "worker", "Worker", *options, self.url)
            worker.wait_until(self._registered, _READY_SECONDS)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        """End them."""
        self._stack.close()

    def _start(self, stack: ExitStack, name: str, kind: str, *options: str) -> Process:
        java = shutil.which("java")
        assert java, "`make test` installs it"
        main = f"org.apache.spark.deploy.{kind.lower()}.{kind}"
        process = Process(
            [java, *_QUIET, "-cp", str(_HOME / "jars" / "*"), main, "--host", "127.0.0.1", *options],
            directory=self._directory,
            log=self._directory / f"{name}.log",
            environment={"PATH": os.environ["PATH"], **_ENVIRONMENT},
        )
        stack.callback(process.kill)
        if kind == "Master":
            process.wait_until(self._listens, _READY_SECONDS)
        return process

    def _registered(self) -> bool:
        return "registered with master" in (self._directory / "worker.log").read_text()

    def _listens(self) -> bool:
        with suppress(OSError), socket.create_connection(("127.0.0.1", self._port), 1.0):
            return True
        return False
