"""The Java that Spark runs on: whether there is one, and whether it is new enough."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from typing import Final

from headrace.model.errors import HeadraceError

OLDEST: Final = 17

_REMEDY: Final = (
    f"install Java {OLDEST} or newer (on Debian: apt install openjdk-17-jre-headless), or set JAVA_HOME to where it is"
)


class JavaError(HeadraceError, RuntimeError):
    """There is no Java that Spark could run on."""


def check_java() -> None:
    """Refuses a machine without a Java that Spark runs on, before Spark fails with a trace of its own."""
    home = os.environ.get("JAVA_HOME")
    java = os.path.join(home, "bin", "java") if home else shutil.which("java")
    if java is None:
        raise JavaError(f"Spark needs Java, and there is none on the PATH; {_REMEDY}")
    try:
        answer = subprocess.run([java, "-version"], capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError) as error:
        place = f"JAVA_HOME is {home!r}, and " if home else ""
        raise JavaError(f"Spark needs Java, but {place}{java!r} does not run ({error}); {_REMEDY}") from None
    if (version := java_version(answer.stderr)) is not None and version < OLDEST:
        raise JavaError(f"Spark needs Java {OLDEST} or newer, and {java!r} is Java {version}; {_REMEDY}")


def java_version(text: str) -> int | None:
    """Reads the version from what `java -version` prints; None if it is not there.

    >>> java_version('openjdk version "17.0.9" 2023-10-17'), java_version('java version "1.8.0_392"'), java_version("?")
    (17, 8, None)
    """
    match = re.search(r'version "(?:1\.)?(\d+)', text)
    return None if match is None else int(match[1])
