"""Local files whose permissions are set by a system call have the modes that chmod gives them."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.engine.spark.javasources import install_native_files


@pytest.fixture
def files(spark: SparkSession) -> Any:
    install_native_files(spark.sparkContext)
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.FileSystem.getLocal(spark._jsparkSession.sessionState().newHadoopConf())


def hadoop(spark: SparkSession, path: Path) -> Any:
    jvm: Any = spark._jvm
    return jvm.org.apache.hadoop.fs.Path(str(path))


def test_modes_are_those_of_chmod(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    for before in (0o644, 0o2755, 0o6777, 0o1777):
        for mode in ("0644", "0750", "0000", "1777"):
            for kind in ("file", "directory"):
                ours, theirs = tmp_path / f"ours-{kind}-{before}-{mode}", tmp_path / f"theirs-{kind}-{before}-{mode}"
                for path in (ours, theirs):
                    path.mkdir() if kind == "directory" else path.touch()
                    path.chmod(before)
                files.setPermission(hadoop(spark, ours), jvm.org.apache.hadoop.fs.permission.FsPermission(mode))
                subprocess.run(["chmod", mode, theirs], check=True)
                assert oct(ours.stat().st_mode) == oct(theirs.stat().st_mode), (kind, oct(before), mode)


def test_what_is_written_has_the_mode_of_the_umask_and_a_checksum(
    spark: SparkSession, files: Any, tmp_path: Path
) -> None:
    files.create(hadoop(spark, tmp_path / "new" / "file")).close()
    assert oct((tmp_path / "new" / "file").stat().st_mode & 0o7777) == "0o644"
    assert oct((tmp_path / "new").stat().st_mode & 0o7777) == "0o755"
    assert sorted(os.listdir(tmp_path / "new")) == [".file.crc", "file"]


def test_a_file_that_is_not_there_is_an_error(spark: SparkSession, files: Any, tmp_path: Path) -> None:
    jvm: Any = spark._jvm
    with pytest.raises(Py4JJavaError, match="NoSuchFileException"):
        files.setPermission(hadoop(spark, tmp_path / "none"), jvm.org.apache.hadoop.fs.permission.FsPermission("0644"))
