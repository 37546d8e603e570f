"""Machines without a Java that Spark runs on."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headrace.engine.spark.java import JavaError, check_java


def pretend(folder: Path, script: str) -> Path:
    """A directory with a java of this text."""
    java = folder / "bin/java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def test_no_java_is_told_with_the_remedy(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(JavaError, match=r"there is none on the PATH; install Java 17 or newer .*JAVA_HOME"):
        check_java()
    monkeypatch.setenv("JAVA_HOME", f"{tmp_path}/gone")
    with pytest.raises(JavaError, match=r"JAVA_HOME is '.*/gone', and '.*/gone/bin/java' does not run"):
        check_java()


def test_a_java_that_is_too_old_or_does_not_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    java = pretend(tmp_path, "echo 'openjdk version \"11.0.2\" 2019-01-15' >&2")
    with pytest.raises(JavaError, match=r"Spark needs Java 17 or newer, and '.*' is Java 11"):
        check_java()
    java.write_text("#!/bin/sh\nexit 3\n")
    with pytest.raises(JavaError, match=r"does not run"):
        check_java()


def test_a_command_says_it_in_one_line(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text("import headrace as hr\nwith hr.Pipeline() as p:\n    p | hr.Create([1]) | hr.Collect()\n")
    environment = {**os.environ, "PATH": str(tmp_path), "JAVA_HOME": ""}
    run = subprocess.run(
        [sys.executable, "-m", "headrace", "run", str(script)], env=environment, capture_output=True, text=True
    )
    assert run.returncode == 1
    (line,) = run.stderr.splitlines()
    assert line.startswith("error: Spark needs Java, and there is none on the PATH; install Java 17 or newer")
