"""A home of Spark in which PySpark is a directory and no archive, so that Spark's Python processes import it compiled.

Spark puts SPARK_HOME/python/lib/pyspark.zip first on the path of every Python process that it starts. Python compiles
the modules of an archive in each process anew: a second of CPU, several times for each stream that starts, where the
package itself takes a quarter of one; on a busy machine Spark then gives up waiting. The home made here has links to
all of Spark's files, and in the archives' places directories with a link to the package.
"""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import py4j
import pyspark

VARIABLE: Final = "SPARK_HOME"


def linked_home() -> Path:
    """Returns the home, in this Python environment; the package itself if nothing can be written there.

    >>> (linked_home() / "bin" / "spark-submit").is_file()
    True
    """
    package = Path(pyspark.__file__).parent
    home = Path(sys.prefix, "share", "headrace", f"spark-{pyspark.__version__}")
    if not _is_of(home, package):
        try:
            _make(home, package)
        except OSError:
            return package
    return home


@contextmanager
def home_for(master: str) -> Iterator[Path]:
    """Lets a JVM that is started in the block have that home, unless SPARK_HOME is set.

    Not with a cluster: YARN would send its machines the archive, and finds a directory.
    """
    if VARIABLE in os.environ:
        yield Path(os.environ[VARIABLE])
    elif not master.startswith("local"):
        yield Path(pyspark.__file__).parent
    else:
        os.environ[VARIABLE] = str(linked_home())
        try:
            yield Path(os.environ[VARIABLE])
        finally:
            del os.environ[VARIABLE]


def archive_in(home: Path) -> Path:
    """Returns where PySpark is for the Python processes of a Spark with this home."""
    return home / "python" / "lib" / "pyspark.zip"


def _is_of(home: Path, package: Path) -> bool:
    """Returns whether a home is there, and of this package: environments can be moved."""
    link = archive_in(home) / "pyspark"
    return link.is_symlink() and Path(os.readlink(link)) == package


def _make(home: Path, package: Path) -> None:
    home.parent.mkdir(parents=True, exist_ok=True)
    new = Path(tempfile.mkdtemp(prefix=f".{home.name}-", dir=home.parent))
    try:
        _link_all(package, new, but=("python", "__pycache__"))
        _link_all(package / "python", new / "python", but=("lib",))
        archives = package / "python" / "lib"
        _link_all(archives, new / "python" / "lib", but=[each.name for each in archives.glob("*.zip")])
        for archive in archives.glob("*.zip"):
            module = py4j if archive.name.startswith("py4j") else pyspark
            place = new / "python" / "lib" / archive.name
            place.mkdir()
            (place / module.__name__).symlink_to(Path(str(module.__file__)).parent)
        shutil.rmtree(home, ignore_errors=True)
        new.rename(home)
    except OSError:
        shutil.rmtree(new, ignore_errors=True)
        if not _is_of(home, package):  # nobody else has made it meanwhile
            raise


def _link_all(source: Path, target: Path, but: tuple[str, ...] | list[str]) -> None:
    target.mkdir(exist_ok=True)
    for each in source.iterdir():
        if each.name not in but:
            (target / each.name).symlink_to(each)
