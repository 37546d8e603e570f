"""Modules for Spark's Python workers: `sys.path` for those on this machine; for those of a cluster this package, the
modules beside the user's script, and files."""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import sysconfig
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from pathlib import Path

from pyspark.sql import SparkSession

from headrace.model.errors import PipelineError

_PACKAGE = Path(__file__).parents[2]
_shipped: set[tuple[str, str]] = set()


def ship_modules(spark: SparkSession, files: Sequence[str] = ()) -> None:
    """Makes modules importable in workers: on this machine those of `sys.path` as it is now.

    Workers elsewhere get this package, and the modules and packages in directories of `sys.path` that are no part of
    the environment: that of the script, and those of PYTHONPATH.

    `files` are modules (.py), archives (.zip) or directories of packages that go to all workers.
    """
    context = spark.sparkContext
    if (context.master or "local").startswith("local"):
        environment = context.environment
        environment["PYTHONPATH"] = python_path(environment.get("PYTHONPATH", ""))
    else:
        _ship(spark, str(_PACKAGE))  # their Python need not have it
        for folder in _own_folders(sys.path):
            _ship_modules_of(spark, folder)
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


def _own_folders(paths: Sequence[str]) -> list[Path]:
    """Returns the directories of a search path whose modules no other machine has: not those of the environment.

    >>> _own_folders([sysconfig.get_path("stdlib"), sysconfig.get_path("purelib"), str(_PACKAGE.parent)]) == [
    ...     _PACKAGE.parent
    ... ]
    True
    """
    installed = {Path(path).resolve() for path in sysconfig.get_paths().values()}
    folders = dict.fromkeys(Path(path).resolve() for path in paths)
    return [each for each in folders if each.is_dir() and each not in installed and each.name not in _INSTALLED]


_INSTALLED = {"site-packages", "dist-packages", "lib-dynload"}


def _modules_of(folder: Path) -> list[Path]:
    """Returns the modules in a directory, and those of packages in it, apart from this package."""
    packages = [each for each in folder.iterdir() if (each / "__init__.py").is_file() and each != _PACKAGE]
    return sorted([*folder.glob("*.py"), *(file for package in packages for file in package.rglob("*.py"))])


def _ship_modules_of(spark: SparkSession, folder: Path) -> None:
    """Sends the modules of a directory to all workers, once per application."""
    context = spark.sparkContext
    if (context.applicationId, str(folder)) in _shipped:
        return
    if modules := _modules_of(folder):
        name = f"modules-{zlib.crc32(os.fsencode(folder)):08x}"  # archives of one application have different names
        context.addPyFile(str(_zip(name, folder, modules)))
    _shipped.add((context.applicationId, str(folder)))


def _ship(spark: SparkSession, file: str) -> None:
    """Sends a file or directory to all workers, once per application."""
    context = spark.sparkContext
    if (context.applicationId, os.path.abspath(file)) in _shipped:
        return
    path = Path(file).resolve()
    if path.is_dir():
        path = _zip(path.name, path.parent, sorted(path.rglob("*.py")))
    elif not path.is_file() or path.suffix not in (".py", ".zip", ".egg"):
        raise PipelineError(f"--py-files takes .py and .zip files and directories of packages, got {file!r}")
    context.addPyFile(str(path))
    _shipped.add((context.applicationId, os.path.abspath(file)))


def _zip(name: str, root: Path, modules: Sequence[Path]) -> Path:
    """Makes an archive of modules below a directory, for the life of this process: new executors fetch it."""
    folder = tempfile.mkdtemp(prefix="headrace-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    archive = Path(folder, f"{name}.zip")
    with zipfile.ZipFile(archive, "w") as files:
        for file in modules:
            files.write(file, file.relative_to(root))
    return archive
