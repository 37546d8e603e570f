"""Archives of a Python environment for the executors of a cluster, which then need nothing but a Python.

An archive has the installed files of packages, as their wheels put them into `site-packages`, and the version of the
Python they were installed for. Executors unpack it beside their work and find it by PYTHONPATH: so it does not matter
where their Python is, or where the environment was, as it would in a copy of a virtual environment.
"""

from __future__ import annotations

import os
import re
import sys
import tarfile
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, PackageNotFoundError, distribution, distributions
from pathlib import Path
from typing import Final, NamedTuple

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from headrace.model.errors import PipelineError

ARCHIVE: Final = "HEADRACE_ARCHIVE"
"""The variable with the path of the archive that a new session on a cluster ships."""

FOLDER: Final = "headrace-environment"
"""The directory into which executors unpack it."""

_HAVE: Final = frozenset({"pyspark", "py4j"})  # executors have those of the cluster's Spark, which must be the same
_OF_BUILDING: Final = frozenset({"pip", "setuptools", "wheel"})


class Packed(NamedTuple):
    """The contents of an archive: packages with their versions, and the number of their files.

    >>> Packed({"numpy": "2.3.1"}, 900).files
    900
    """

    packages: dict[str, str]
    files: int


def pack(target: Path, only: Sequence[str] = ()) -> Packed:
    """Packs the packages of this environment, or `only` these with what they need, into a `.tar.gz`.

    >>> import tempfile
    >>> made = pack(Path(tempfile.mkdtemp()) / "environment.tar.gz", only=["cloudpickle"])
    >>> list(made.packages), made.files > 3
    (['cloudpickle'], True)
    """
    if not target.name.endswith((".tar.gz", ".tgz")):
        raise PipelineError(f"an archive that Spark unpacks ends with .tar.gz, got {target.name!r}")
    chosen = _with_dependencies(only) if only else _installed()
    count = 0
    new = target.with_name(f".{target.name}.new")
    # Level 1: executors wait for the copy more often than anybody waits for the disk.
    with tarfile.open(new, "w:gz", compresslevel=1) as archive:
        for found in chosen.values():
            for path, name in _files(found):
                archive.add(path, f"{python_name()}/{name}", recursive=False)
                count += 1
    os.replace(new, target)
    return Packed({name: found.version for name, found in chosen.items()}, count)


def archive_settings(archive: str) -> dict[str, str]:
    """Returns the settings of a session that ships an archive to its executors.

    >>> archive_settings("no.tgz")
    Traceback (most recent call last):
    ...
    headrace.model.errors.PipelineError: there is no archive 'no.tgz'; make it with `headrace pack no.tgz`
    """
    if "://" not in archive and not Path(archive).is_file():
        raise PipelineError(f"there is no archive {archive!r}; make it with `headrace pack {archive}`")
    place = archive if "://" in archive else str(Path(archive).resolve())
    return {"spark.archives": f"{place}#{FOLDER}", "spark.executorEnv.PYTHONPATH": f"{FOLDER}/{python_name()}"}


def use_python_by_name() -> None:
    """Lets every process of Spark find this version of Python on its own PATH: the driver's processes this very one.

    Where PYSPARK_PYTHON is set, executors and driver run what it says.
    """
    if "PYSPARK_PYTHON" not in os.environ:
        os.environ["PYSPARK_PYTHON"] = python_name()
        os.environ["PATH"] = os.pathsep.join([os.path.dirname(sys.executable), os.environ.get("PATH", os.defpath)])


def python_name() -> str:
    """Returns the name of this version of Python, which executors must have, too.

    >>> python_name().startswith("python3.")
    True
    """
    return f"python{sys.version_info.major}.{sys.version_info.minor}"


def _installed() -> dict[str, Distribution]:
    """Returns all packages of this environment that executors may need."""
    found = {canonicalize_name(each.name): each for each in distributions() if each.name}
    return {name: each for name, each in sorted(found.items()) if name not in _HAVE | _OF_BUILDING}


def _with_dependencies(names: Sequence[str]) -> dict[str, Distribution]:
    """Returns packages, given as requirements such as `headrace[kafka]`, and all that they require here."""
    found: dict[str, Distribution] = {}
    seen: set[tuple[str, str]] = set()
    left = [(Requirement(name), "") for name in names]
    while left:
        wanted, by = left.pop()
        name = canonicalize_name(wanted.name)
        if name in _HAVE:
            continue
        try:
            found[name] = distribution(wanted.name)
        except PackageNotFoundError:
            needed = f", which {by} needs," if by else ""
            raise PipelineError(f"the package {name!r}{needed} is not installed here; pip install it first") from None
        for extra in ("", *wanted.extras):
            if (name, extra) not in seen:
                seen.add((name, extra))
                left += [(each, name) for each in _required(found[name], extra)]
    return dict(sorted(found.items()))


def _required(package: Distribution, extra: str) -> Iterator[Requirement]:
    """Yields what a package requires in this environment, because of an extra if it is not empty."""
    for line in package.requires or ():
        wanted = Requirement(line)
        by_extra = re.search(r"\bextra\b", str(wanted.marker or "")) is not None
        if by_extra == bool(extra) and (wanted.marker is None or wanted.marker.evaluate({"extra": extra})):
            yield wanted


def _files(package: Distribution) -> Iterator[tuple[Path, str]]:
    """Yields the files of a package and their names below `site-packages`; none of one that is installed editable.

    Scripts are left out, whose first line names the Python of this environment, and compiled files, which Python makes.
    """
    for file in package.files or ():
        name = file.as_posix()
        path = Path(str(package.locate_file(file)))
        if not name.startswith(("..", "/", "__editable__")) and not name.endswith((".pyc", ".pth")) and path.is_file():
            yield path, name
