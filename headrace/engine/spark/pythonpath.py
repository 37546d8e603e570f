"""Modules for Spark's Python workers: this package and files for those of a cluster, `sys.path` for those here."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.model.errors import PipelineError

_shipped: set[tuple[str, str]] = set()


def ship_modules(spark: SparkSession, files: Sequence[str] = ()) -> None:
    """Makes modules importable in workers: on this machine those of `sys.path` as it is now, elsewhere this package.

    `files` are modules (.py), archives (.zip) or directories of packages that go to all workers.
    """
    context = spark.sparkContext
    if (context.master or "local").startswith("local"):
        environment = context.environment
        environment["PYTHONPATH"] = python_path(environment.get("PYTHONPATH", ""))
    else:
        _ship(spark, str(Path(__file__).parents[2]))  # their Python need not have it
    for file in files:
        _ship(spark, file)


def python_path(path: str = "") -> str:
    """Returns PYTHONPATH with what `sys.path` has besides; its order stays, so that workers that run can be reused.

    >>> python_path("/some/where").startswith("/some/where") and str(Path.cwd()) in python_path()
    True
    """
    parts = [part for part in path.split(os.pathsep) if part]
    here = [os.path.abspath(part) for part in sys.path]  # the first is often "", the current directory
    return os.pathsep.join(dict.fromkeys([*parts, *here, os.getcwd()]))


def _ship(spark: SparkSession, file: str) -> None:
    """Sends a file or directory to all workers, once per application."""
    context = spark.sparkContext
    if (context.applicationId, os.path.abspath(file)) in _shipped:
        return
    path = Path(file).resolve()
    if path.is_dir():
        path = _zip(path)
    elif not path.is_file() or path.suffix not in (".py", ".zip", ".egg"):
        raise PipelineError(f"--py-files takes .py and .zip files and directories of packages, got {file!r}")
    context.addPyFile(str(path))
    _shipped.add((context.applicationId, os.path.abspath(file)))


def _zip(package: Path) -> Path:
    """Makes an archive of a package; executors fetch it whenever they start, so it lives as long as this process."""
    folder = tempfile.mkdtemp(prefix="headrace-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, f"{package.name}.zip")
    with zipfile.ZipFile(archive, "w") as files:
        for file in sorted(package.rglob("*.py")):
            files.write(file, file.relative_to(package.parent))
    return archive
