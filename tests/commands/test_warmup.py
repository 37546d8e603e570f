"""`headrace warmup`: the archive of Spark's classes is made once, used by sessions, and ignored by other JVMs."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from headrace.commands import warmup
from headrace.commands.main import main
from headrace.engine.spark import classarchive
from headrace.engine.spark.classarchive import archive_options, archive_path

needs_archive = pytest.mark.skipif(not archive_path().exists(), reason="no archive of Spark's classes: headrace warmup")


@needs_archive
def test_a_session_loads_its_classes_from_the_archive(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    process = jvm.java.lang.ProcessHandle.current().pid()
    assert str(archive_path()) in Path("/proc", str(process), "maps").read_text()


@needs_archive
def test_a_jvm_with_other_classes_ignores_the_archive_and_says_nothing() -> None:
    ran = subprocess.run(["java", *archive_options().split(), "-cp", "/", "-version"], capture_output=True, text=True)
    assert ran.returncode == 0
    assert "cds" not in ran.stdout + ran.stderr


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "share" / "spark.jsa"
    monkeypatch.setattr(classarchive, "archive_path", lambda: path)
    return path


def in_place_of_the_process(monkeypatch: pytest.MonkeyPatch, run: Callable[[str], tuple[int, str]]) -> None:
    def replaced(command: list[str], **_: Any) -> subprocess.CompletedProcess[str]:
        status, said = run(command[-1])
        return subprocess.CompletedProcess(command, status, "", said)

    monkeypatch.setattr(warmup.subprocess, "run", replaced)


def test_it_is_made_once(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_the_process(monkeypatch, lambda path: (Path(path).write_bytes(b"x" * 2_000_000) * 0, ""))
    made = CliRunner().invoke(main, ["warmup"])
    assert (made.exit_code, made.stdout) == (0, f"Spark's classes are in {archive} (2 MB)\n")
    assert CliRunner().invoke(main, ["warmup"]).stdout == f"Spark's classes are in {archive} already\n"
    assert [path.name for path in archive.parent.iterdir()] == ["spark.jsa"]


def test_what_fails_leaves_nothing(archive: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    in_place_of_the_process(monkeypatch, lambda path: (1, "Traceback\nJavaError: Spark needs Java"))
    failed = CliRunner().invoke(main, ["warmup"])
    assert failed.exit_code == 1
    assert "Spark's classes could not be stored: JavaError: Spark needs Java" in failed.stderr
    assert list(archive.parent.iterdir()) == []


def test_an_environment_that_cannot_be_written(archive: Path) -> None:
    archive.parent.write_text("a file")
    failed = CliRunner().invoke(main, ["warmup"])
    assert failed.exit_code == 1
    assert f"Spark's classes cannot be stored in {str(archive.parent)!r}: File exists" in failed.stderr
