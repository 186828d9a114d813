"""Executors of another machine have only Python with its libraries: the driver sends the rest. Those here have it all."""

import json
import os
import pickle
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest
from pyspark.sql import SparkSession

from broker.analytics import session
from broker.analytics.session import _pack_program
from broker.analytics.source.options import Options
from broker.analytics.source.reader import Reader
from broker.model.names import Partition
from frontends import cli
from tests.analytics.conftest import Journals
from tests.analytics.standalone import Standalone

PROGRAM = """
import json, sys
from broker.analytics import inputs
from broker.analytics.session import session

def where(_):
    from broker.analytics.source import tasks
    import os
    yield tasks.__file__, os.getcwd()

with session(sys.argv[1], **json.loads(sys.argv[3])) as spark:
    found = inputs.of_redis(sys.argv[2], spark=spark)
    rows = sorted(row["token"] for row in found.attempts.select("token").collect())
    places = spark.sparkContext.parallelize(range(2), 2).mapPartitions(where).collect()
    print(json.dumps({"rows": rows, "tasks": found.attempts.rdd.getNumPartitions(), "places": places}))
"""

ROOT = Path(__file__).parents[2]

SPARK_SECONDS = 900
"""Patience with a program of Spark's: it takes half a minute on a quiet machine, and has taken 200 s beside much load."""

SETTINGS = {
    "spark_driver_host": "127.0.0.1",
    "spark_driver_bindAddress": "127.0.0.1",
    "spark_driver_memory": "512m",
    "spark_executor_memory": "512m",
    "spark_executor_cores": "1",
    "spark_locality_wait": "0",
    "spark_scheduler_minRegisteredResourcesRatio": "1.0",
    "spark_executor_extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark_driver_extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
    "spark_sql_codegen_wholeStage": "false",
}


SENT = """
import pickle, sys
reader, task = pickle.load(sys.stdin.buffer)
from broker.analytics.source import tasks
print(tasks.__file__)
print(sum(len(batch) for batch in reader.read(task)))
"""


def test_what_is_sent(journals: Journals, tmp_path: Path) -> None:
    """What is sent of this program is enough to read the records of a task."""
    journals.write(Partition("jobs", "ab12"), 500)
    reader = Reader(Options.read({"url": journals.url}))
    (task,) = reader.partitions()
    with zipfile.ZipFile(_pack_program(tmp_path)) as packed:
        packed.extractall(tmp_path / "broker")
    done = subprocess.run(
        [sys.executable, "-c", SENT],
        input=pickle.dumps((reader, task)),
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        check=False,
        timeout=SPARK_SECONDS,
    )
    path, rows = done.stdout.decode().splitlines()
    assert (path, rows) == (f"{tmp_path}/broker/analytics/source/tasks.py", "500"), done.stderr


def _bare_python(directory: Path) -> str:
    """Make a Python that has the libraries of an executor's, and this program not."""
    python = directory / "python"
    libraries = Path(pyspark.__file__).parents[1]
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{libraries}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    return str(python)


# It starts Java five times.
@pytest.mark.soak
@pytest.mark.timeout(2 * SPARK_SECONDS)
def test_two_executors(journals: Journals, tmp_path: Path) -> None:
    """Two executors share the read, with code of this program that was sent to them."""
    for number in range(2):
        journals.write(Partition("jobs", "ab12", number), 500, first=1_000 * number)
    with Standalone(tmp_path) as spark:
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, spark.url, journals.url, json.dumps(SETTINGS)],
            env={
                "PATH": os.environ["PATH"],
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": _bare_python(tmp_path),
                "SPARK_LOCAL_IP": "127.0.0.1",
            },
            cwd=tmp_path,
            capture_output=True,
            text=True,
            check=False,
            timeout=SPARK_SECONDS,
        )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout.splitlines()[-1])
    assert said["rows"] == [*range(500), *range(1_000, 1_500)]
    assert said["tasks"] == 2
    assert all(Path(path).is_relative_to(directory) for path, directory in said["places"])
    assert {Path(directory).is_relative_to(tmp_path) for _, directory in said["places"]} == {True}
    assert len({directory for _, directory in said["places"]}) == 2


@pytest.mark.soak
@pytest.mark.timeout(2 * SPARK_SECONDS)
def test_as_kubernetes_starts_it(journals: Journals, tmp_path: Path) -> None:
    """A report as the Spark operator starts it: the image's entry point gets Spark's arguments, and executors share the work."""
    journals.write(Partition("jobs", "ab12"), 500)
    settings = {name.replace("_", "."): value for name, value in SETTINGS.items()}
    with Standalone(tmp_path) as spark:
        properties = tmp_path / "spark.properties"
        properties.write_text(
            "".join(f"{name} {value}\n" for name, value in {**settings, "spark.master": spark.url}.items())
        )
        program = [f"local://{cli.__file__}", "report", "capacity", "--out", "report", "--format", "json"]
        options = ["--properties-file", str(properties), "--class", "org.apache.spark.deploy.PythonRunner"]
        told = {"STANZAQ_REDIS_URL": journals.url, "PYSPARK_DRIVER_PYTHON": sys.executable}
        done = _start(tmp_path, "driver", *options, *program, **told, PYSPARK_PYTHON=_bare_python(tmp_path))
    assert done.returncode == 0, done.stderr
    [node] = json.loads((tmp_path / "report" / "capacity.json").read_text())["nodes"]
    assert node["waste"]["acknowledged"] == 500
    assert len([*tmp_path.glob("work/*/*/broker")]) == 2


@pytest.mark.soak
def test_an_executor_of_kubernetes(tmp_path: Path) -> None:
    """An executor's process starts with what Spark tells it, and looks for its driver."""
    told = {
        "SPARK_DRIVER_URL": "spark://CoarseGrainedScheduler@127.0.0.1:1", "SPARK_EXECUTOR_ID": "1",
        "SPARK_EXECUTOR_CORES": "1", "SPARK_EXECUTOR_MEMORY": "256m", "SPARK_APPLICATION_ID": "spark-1",
        "SPARK_EXECUTOR_POD_IP": "127.0.0.1", "SPARK_RESOURCE_PROFILE_ID": "0", "SPARK_EXECUTOR_POD_NAME": "one",
        "SPARK_JAVA_OPT_0": "-XX:TieredStopAtLevel=1",
    }  # fmt: skip
    done = _start(tmp_path, "executor", **told)
    assert "Failed to connect to /127.0.0.1:1" in done.stderr, done.stderr
    assert "KubernetesExecutorBackend" in done.stderr


def _start(directory: Path, *words: str, **told: str) -> "subprocess.CompletedProcess[str]":
    """Run the entry point of the image for reports, with this installation in place of the image's."""
    return subprocess.run(
        [ROOT / "deploy" / "entrypoint.sh", *words],
        env={
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "SPARK_LOCAL_IP": "127.0.0.1",
            "SPARK_DRIVER_BIND_ADDRESS": "127.0.0.1",
            **told,
        },
        cwd=directory,
        capture_output=True,
        text=True,
        check=False,
        timeout=SPARK_SECONDS,
    )


def test_this_machine(spark: SparkSession) -> None:
    """Processes here import pyspark as it is installed, not from an archive, which each of them would compile again."""
    places = spark.sparkContext.parallelize([0], 1).map(lambda _: pyspark.__file__)
    assert places.collect() == [pyspark.__file__]


@pytest.mark.parametrize(
    ("limits", "heap"), [(["max"], 32), ([f"{12 * 2**30}\n"], 6), ([str(2**63), str(8 * 2**30)], 4), ([str(2**30)], 1)]
)
def test_heap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limits: list[str], heap: int) -> None:
    """Java gets half of what the machine or its container has, and not less than Spark would give it."""
    files = [tmp_path / str(number) for number in range(len(limits))]
    for file, limit in zip(files, limits, strict=True):
        file.write_text(limit)
    monkeypatch.setattr(session, "_MEMORY_LIMITS", (str(tmp_path / "none"), *map(str, files)))
    monkeypatch.setattr(os, "sysconf", {"SC_PAGE_SIZE": 4096, "SC_PHYS_PAGES": 64 * 2**30 // 4096}.get)
    assert session._heap_bytes() == heap * 2**30


@pytest.mark.parametrize(
    ("master", "environment", "line"),
    [
        ("nonsense", {"PATH": os.environ["PATH"]}, "Spark cannot be started at nonsense ("),
        ("local[1]", {"PATH": "/nowhere"}, "java is missing, which runs Spark: apt-get install openjdk-17"),
    ],
)
def test_no_session(tmp_path: Path, master: str, environment: dict[str, str], line: str) -> None:
    """If Spark cannot be started, one line says why."""
    program = "import sys; from broker.analytics.session import session; session(sys.argv[1]).__enter__()"
    done = subprocess.run(
        [sys.executable, "-c", program, master],
        env={**environment, "SPARK_LOCAL_IP": "127.0.0.1"},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=SPARK_SECONDS,
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(f"broker.analytics.faults.Unreadable: {line}")
