"""Reads and writes files through Hadoop's file systems: local disks, HDFS and object stores alike."""

from __future__ import annotations

import copy
import os
import re
import uuid
from pathlib import Path
from typing import Any, Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.local.privatefile import private_opener
from headrace.local.privatefolder import make_folder
from headrace.model.errors import PipelineError

_RENAMING: Final = {"file", "hdfs", "webhdfs", "swebhdfs", "viewfs", "ofs", "o3fs"}
"""Schemes of file systems where a rename is one step. Elsewhere, a file appears whole when it is closed."""
_ABSENT: Final = "fs.option.create.conditional.overwrite"
"""The option by which a store puts a file only where none is."""
_TAKEN: Final = ("AlreadyExists", "RemoteFileChanged")
"""Parts of the names of errors which say that a file was there."""


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
        self._text = str(self._path)

    def __str__(self) -> str:
        return self._text

    def exists(self, name: str = "") -> bool:
        return bool(self.file_system.exists(self._at(name)))

    def is_file(self) -> bool:
        return self.exists() and bool(self.file_system.getFileStatus(self._path).isFile())

    def files(self) -> list[str]:
        """Returns the names of all files below it."""
        files, names = self.file_system.listFiles(self._path, True), []
        while files.hasNext():
            names.append(str(self._path.toUri().relativize(files.next().getPath().toUri()).getPath()))
        return sorted(names)

    def uri(self) -> str:
        """Returns its address as Spark writes it in its logs: escaped, and for local files with an empty host."""
        plain = path_of(self.spark, self._path.toUri().getPath())
        return str(self.file_system.makeQualified(plain).toUri())

    @property
    def local(self) -> Path | None:
        """Its path on a disk of this machine; None if it is elsewhere."""
        match = re.match(r"file:(?://)?(/.*)", str(self))
        return None if match is None else Path(match[1])

    @property
    def renames(self) -> bool:
        """Whether a rename is one step here. In an object store, it is a copy of one file after the other."""
        return str(self.file_system.getScheme()) in _RENAMING

    def sizes(self) -> list[tuple[str, int]]:
        """Returns the names and sizes of the files in it."""
        statuses = [status for status in self.file_system.listStatus(self._path) if status.isFile()]
        return [(str(status.getPath().getName()), int(status.getLen())) for status in statuses]

    def matching_files(self) -> list[tuple[str, int]]:
        """Returns the paths and sizes of the files in it or, if it is a pattern, in the directories that match."""
        found = self.file_system.globStatus(self._path)  # None if it does not exist
        folders = [status.getPath() for status in found or () if status.isDirectory()]
        statuses = [status for folder in folders for status in self.file_system.listStatus(folder) if status.isFile()]
        return [(str(status.getPath()), int(status.getLen())) for status in statuses]

    def lengths(self) -> dict[str, int]:
        """Returns the names and sizes of all files below it."""
        files, lengths = self.file_system.listFiles(self._path, True), {}
        while files.hasNext():
            status = files.next()
            name = str(self._path.toUri().relativize(status.getPath().toUri()).getPath())
            lengths[name] = int(status.getLen())
        return lengths

    def folder(self, name: str) -> Folder:
        """Returns a directory in this one, which need not exist."""
        inside = copy.copy(self)  # in the same file system, for which Spark need not be asked again
        inside._path = self._at(name)
        inside._text = str(inside._path)
        return inside

    def names(self) -> list[str]:
        """Returns the names of what is in it; none if it does not exist."""
        statuses = self.file_system.listStatus(self._path) if self.exists() else ()
        return sorted(str(status.getPath().getName()) for status in statuses)

    def make(self) -> None:
        if not self.file_system.mkdirs(self._path):
            raise OSError(f"could not make {self}")

    def delete(self) -> None:
        self.file_system.delete(self._path, True)

    def rename(self, to: Folder) -> None:
        if not self.file_system.rename(self._path, to._path):
            raise OSError(f"could not rename {self} to {to}")

    def read(self, name: str) -> bytes | None:
        """Returns the bytes of a file; None if there is no such file."""
        if (local := self.local) is not None:
            try:
                return (local / name).read_bytes()
            except (FileNotFoundError, NotADirectoryError):
                return None
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
        new = self._at(f".{name}.new") if self.renames else self._at(name)
        file = self.file_system.create(new, True)
        file.write(bytearray(data))
        file.close()  # not if that failed: a store would put what there is of it
        if not self.renames:
            return
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
        new = self._at(f".{name}.{uuid.uuid4().hex}.new") if self.renames else self._at(name)
        try:
            # A store that knows the option asks again when the file is closed, and not only now.
            builder = self.file_system.createFile(new).overwrite(False).recursive()
            file = builder.opt(_ABSENT, "true").build()
            file.write(bytearray(data))
            file.close()
        except Py4JJavaError as error:
            if any(part in str(error.java_exception.getClass().getName()) for part in _TAKEN):
                raise FileExistsError(f"{self._at(name)} is there already") from None
            raise
        if self.renames and not self.file_system.rename(new, self._at(name)):
            self.file_system.delete(new, False)
            raise FileExistsError(f"{self._at(name)} is there already")

    def _at(self, name: str) -> Any:
        return path_of(self.spark, f"{self}/{name}") if name else self._path


def _put_locally(folder: Path, name: str, data: bytes) -> None:
    make_folder(folder)
    new = folder / f".{name}.{uuid.uuid4().hex}.new"
    try:
        with open(new, "xb", opener=private_opener) as file:
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
    """Makes a label part of a file name, another one for each label.

    >>> plain_name("read visits")
    'read_20_visits'
    """
    return "".join(c if c.isalnum() else f"_{ord(c):x}_" for c in label)


def path_of(spark: SparkSession, path: str) -> Any:
    """Returns Hadoop's object for a path."""
    # By its whole name: each dot is a question to the JVM, which looks for a class of that name in every jar.
    return getattr(spark._jvm, "org.apache.hadoop.fs.Path")(located(spark, path))


def located(spark: SparkSession, path: str) -> str:
    """Makes a relative path absolute, from where this process is now and not from where Spark began.

    >>> from headrace.engine.spark.session import spark_session
    >>> located(spark_session(), "out") == os.path.abspath("out"), located(spark_session(), "s3a://bucket/out")
    (True, 's3a://bucket/out')
    """
    if re.match(r"[A-Za-z][\w+.-]*:|/", path):
        return path
    on_disk = str(spark.sparkContext._jsc.hadoopConfiguration().get("fs.defaultFS")).startswith("file:")
    return os.path.abspath(path) if on_disk else path


def file_system(spark: SparkSession, path: str) -> tuple[Any, Any]:
    """Returns Hadoop's file system for a path, and the path made absolute."""
    relative = path_of(spark, path)
    try:
        system = relative.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    except Py4JJavaError as error:
        reason = str(error.java_exception)
        if "ClassNotFoundException" not in reason and "UnsupportedFileSystemException" not in reason:
            raise
        raise PipelineError(
            f"{path!r}: this Spark session has no client of such a store; give it the jars of one, as "
            "docs/objectstores.md says for S3"
        ) from None
    return system, system.makeQualified(relative)
