"""Fences in S3: an object is replaced only as it was read, over both clients, in an environment of their own."""

import json
import site
import subprocess
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_PYTHON = _ROOT / ".venv" / "tools" / "s3" / "bin" / "python"

_REFUSED = "Fenced: orders {} is refused under the token {}: a job of orders with a newer lock has been here"


def test_objects() -> None:
    """A smaller token is refused, also if a larger one has come since; an older one that was in time is replaced."""
    assert _PYTHON.exists(), "clients of S3 are missing: make .venv/.tools"
    command = [str(_PYTHON), "-m", "tests.fencing.with_s3", site.getsitepackages()[0]]
    played = subprocess.run(command, cwd=_ROOT, capture_output=True, text=True, check=False, timeout=60)
    assert played.returncode == 0, played.stderr
    assert json.loads(played.stdout) == {
        "boto3": {
            "smaller": _REFUSED.format("a", 6),
            "a": [2, {"orders": 7, "refunds": 2}],
            "overtaken": _REFUSED.format("b", 5),
            "b": [6, {"orders": 6}],
            "c": [6, {"orders": 6}],
            "no token in it": "ValueError: the body does not have job.token in it:"
            " S3 could not tell it from an equal one that another job writes",
            "own": ["application/json", "1"],
            "bucket": "NoSuchBucket: An error occurred (NoSuchBucket) when calling the PutObject operation:"
            " The specified bucket does not exist",
            "service": "TypeError: fences are in S3, and this is a client of sqs",
        },
        "aiobotocore": {
            "smaller": _REFUSED.format("x", 4),
            "overtaken": _REFUSED.format("y", 5),
            "x": [5, {"orders": 5}],
            "y": [6, {"orders": 6}],
            "z": [6, {"orders": 6}],
        },
    }
