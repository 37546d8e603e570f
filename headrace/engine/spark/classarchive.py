"""An archive of the Java classes of Spark, from which a JVM loads them in a fraction of the time (class data sharing).

`headrace warmup` makes it. It belongs to a Python environment, a Java and a class path, and lies in the environment,
whose files are trusted anyway. A JVM that finds an archive of other classes than its own ignores it.
"""

from __future__ import annotations

import os
import shutil
import sys
from hashlib import sha256
from pathlib import Path

import pyspark

from headrace.engine.spark import kafkajars
from headrace.engine.spark.sparkhome import linked_home


def archive_path() -> Path:
    """Returns where the archive of this environment, this Java and these jars is, or would be."""
    java = os.environ.get("JAVA_HOME") or shutil.which("java") or ""
    classes = [java, pyspark.__version__, str(linked_home()), *kafkajars.jars()]
    return Path(sys.prefix, "share", "headrace", f"spark-{sha256(repr(classes).encode()).hexdigest()[:16]}.jsa")


def archive_options() -> str:
    """Returns the options with which a JVM uses the archive; none if there is no archive.

    >>> archive_options() == "" or "SharedArchiveFile" in archive_options()
    True
    """
    path = archive_path()
    # Or it would warn of an archive that is not of its classes, which only costs time.
    return f"-XX:SharedArchiveFile={path} -Xlog:cds=off -Xlog:cds+dynamic=off" if path.exists() else ""


def making_options(path: Path) -> str:
    """Returns the options with which a JVM writes the classes that it has loaded to an archive when it ends."""
    return f"-XX:ArchiveClassesAtExit={path} -Xlog:cds=off -Xlog:cds+dynamic=off"
