"""Files wherever Spark keeps them: local disks, HDFS and object stores alike, through Hadoop's file systems."""

from __future__ import annotations

import os
import re
import uuid
from pathlib import Path
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession


class Folder:
    """A directory.

    >>> import tempfile
    >>> from headrace.engine.spark.session import spark_session
    >>> folder = Folder(spark_session(), tempfile.mkdtemp() + "/new")
    >>> folder.exists(), folder.write("a", b"text"), folder.read("a"), folder.exists()
    (False, None, b'text', True)
    """

    def __init__(self, spark: SparkSession, path: str) -> None:
        self.spark = spark
        self.file_system, self._path = file_system(spark, path)

    def __str__(self) -> str:
        return str(self._path)

    def exists(self, name: str = "") -> bool:
        return bool(self.file_system.exists(self._at(name)))

    def is_file(self) -> bool:
        return self.exists() and bool(self.file_system.getFileStatus(self._path).isFile())

    def files(self) -> list[str]:
        """The names of all files below it."""
        found, names = self.file_system.listFiles(self._path, True), []
        while found.hasNext():
            names.append(str(self._path.toUri().relativize(found.next().getPath().toUri()).getPath()))
        return sorted(names)

    def uri(self) -> str:
        """Its address as Spark writes it in its logs: escaped, and of local files with an empty host."""
        plain = path_of(self.spark, self._path.toUri().getPath())
        return str(self.file_system.makeQualified(plain).toUri())

    @property
    def local(self) -> Path | None:
        """Where it is on a disk of this machine; None if it is elsewhere."""
        found = re.match(r"file:(?://)?(/.*)", str(self))
        return None if found is None else Path(found[1])

    def sizes(self) -> list[tuple[str, int]]:
        """The names of the files in it, and how many bytes they have."""
        found = [status for status in self.file_system.listStatus(self._path) if status.isFile()]
        return [(str(status.getPath().getName()), int(status.getLen())) for status in found]

    def lengths(self) -> dict[str, int]:
        """The names of all files below it, and how many bytes they have."""
        found, lengths = self.file_system.listFiles(self._path, True), {}
        while found.hasNext():
            status = found.next()
            name = str(self._path.toUri().relativize(status.getPath().toUri()).getPath())
            lengths[name] = int(status.getLen())
        return lengths

    def folder(self, name: str) -> Folder:
        """A directory in this one, which need not exist."""
        return Folder(self.spark, str(self._at(name)))

    def names(self) -> list[str]:
        """What is in it; nothing, if it does not exist."""
        found = self.file_system.listStatus(self._path) if self.exists() else ()
        return sorted(str(status.getPath().getName()) for status in found)

    def make(self) -> None:
        if not self.file_system.mkdirs(self._path):
            raise OSError(f"could not make {self}")

    def delete(self) -> None:
        self.file_system.delete(self._path, True)

    def rename(self, to: Folder) -> None:
        if not self.file_system.rename(self._path, to._path):
            raise OSError(f"could not rename {self} to {to}")

    def read(self, name: str) -> bytes | None:
        """What a file has; None if there is none."""
        if not self.exists(name):
            return None
        file = self.file_system.open(self._at(name))
        try:
            return bytes(file.readAllBytes())
        finally:
            file.close()

    def write(self, name: str, data: bytes, modified: int | None = None) -> None:
        """Writes a file, which appears whole; `modified` is the time it is to have, in milliseconds."""
        # Spark's sources pass over names that begin with a dot.
        new = self._at(f".{name}.new")
        file = self.file_system.create(new, True)
        try:
            file.write(bytearray(data))
        finally:
            file.close()
        if modified is not None:
            self.file_system.setTimes(new, modified, -1)
        if not self.file_system.rename(new, self._at(name)):
            raise OSError(f"could not write {self._at(name)}")

    def put(self, name: str, data: bytes) -> None:
        """Writes a file where none is, whole or not at all; FileExistsError if there is one.

        Of any number of processes that try, one succeeds: on local disks and HDFS, and on object stores that put only
        what is absent when they are asked to.
        """
        if (local := self.local) is not None:
            _put_locally(local, name, data)
            return
        whole_at_once = str(self.file_system.getScheme()) not in ("hdfs", "viewfs")
        new = self._at(name) if whole_at_once else self._at(f".{name}.{uuid.uuid4().hex}.new")
        try:
            file = self.file_system.create(new, False)
        except Py4JJavaError as error:
            if "AlreadyExists" in str(error.java_exception.getClass().getName()):
                raise FileExistsError(f"{self._at(name)} is there already") from None
            raise
        try:
            file.write(bytearray(data))
        finally:
            file.close()
        if not whole_at_once and not self.file_system.rename(new, self._at(name)):
            self.file_system.delete(new, False)
            raise FileExistsError(f"{self._at(name)} is there already")

    def _at(self, name: str) -> Any:
        return path_of(self.spark, f"{self._path}/{name}") if name else self._path


def _put_locally(folder: Path, name: str, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    new = folder / f".{name}.{uuid.uuid4().hex}.new"
    try:
        with open(new, "xb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        os.link(new, folder / name)  # fails where there is a file, as a rename would not
    finally:
        new.unlink(missing_ok=True)
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def copy_file(source: Folder, target: Folder, name: str, *, same_time: bool = False) -> None:
    """Copies a file from one directory to another; `same_time`: as modified when the original was."""
    jvm: Any = source.spark._jvm
    conf = source.spark._jsparkSession.sessionState().newHadoopConf()
    at, to = source._at(name), target._at(name)
    jvm.org.apache.hadoop.fs.FileUtil.copy(source.file_system, at, target.file_system, to, False, conf)
    if same_time:
        target.file_system.setTimes(to, source.file_system.getFileStatus(at).getModificationTime(), -1)


def plain_name(label: str) -> str:
    """A label as part of a file name; labels that differ still do.

    >>> plain_name("read visits")
    'read_20_visits'
    """
    return "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in label)


def path_of(spark: SparkSession, path: str) -> Any:
    """Hadoop's object for a path."""
    return spark._jvm.org.apache.hadoop.fs.Path(located(spark, path))  # type: ignore[union-attr]


def located(spark: SparkSession, path: str) -> str:
    """A path that means the same to Spark: a relative one is relative to where this process is, not where Spark began.

    >>> from headrace.engine.spark.session import spark_session
    >>> located(spark_session(), "out") == os.path.abspath("out"), located(spark_session(), "s3a://bucket/out")
    (True, 's3a://bucket/out')
    """
    scheme_or_absolute = re.match(r"[A-Za-z][\w+.-]*:|/", path)
    on_disk = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")).startswith("file:")
    return path if scheme_or_absolute or not on_disk else os.path.abspath(path)


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Hadoop's file system for a path, and the path made absolute."""
    relative = path_of(spark, path)
    found = relative.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    return found, found.makeQualified(relative)
