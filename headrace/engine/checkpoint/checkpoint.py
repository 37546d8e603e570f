"""The checkpoint of a stream: a directory with Spark's own checkpoint, the scripts of sources, and manifests.

The newest manifest counts: a pipeline that goes on from the checkpoint is compared with it. A stream that was drained
has a mark, and does not go on.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import uuid
from collections.abc import Collection
from typing import Final

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.engine.checkpoint.compare import compare
from headrace.engine.checkpoint.manifest import Manifest
from headrace.engine.checkpoint.savepoints import copy
from headrace.engine.checkpoint.streamnames import MANIFEST, stream_name
from headrace.engine.plan.line import Line
from headrace.engine.spark.files import Folder
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.local.privatefolder import UntrustedPath, check_tree, make_folder
from headrace.model.errors import PipelineError

_DRAINED: Final = "drained"


class Checkpoint:
    """The directory of a checkpoint; without a path, a temporary one that is removed after the run.

    A new one begins as a copy of the `savepoint`, if there is one.
    """

    def __init__(self, spark: SparkSession, path: str | None, savepoint: str | None = None) -> None:
        if path is None and not (spark.sparkContext.master or "local").startswith("local"):
            raise PipelineError(
                "a stream on a cluster needs a checkpoint that all machines reach; give run(checkpoint='hdfs://...')"
            )
        self._temporary = tempfile.mkdtemp(prefix="headrace-stream-") if path is None else None
        self.folder = Folder(spark, path or f"{self._temporary}/checkpoint")
        self.local = str(self.folder).startswith("file:")
        _check(self.folder)
        spark_folder = self.folder.folder("spark")
        self.spark_path, self._offsets = str(spark_folder), OffsetLog(spark_folder)
        self.control = self.folder.folder("control")
        if self.folder.is_file():
            raise PipelineError(f"the checkpoint {self.folder} is a file; give the path of a directory")
        if savepoint is not None and not _manifests(self.folder):
            self._restore(Folder(spark, savepoint))
        self._written = _manifests(self.folder)
        self.fresh = not self._written
        cores = spark.sparkContext.defaultParallelism
        self.manifest = Manifest(uuid.uuid4().hex, cores, cores) if self.fresh else newest_manifest(self.folder)
        self.notes: list[str] = []
        if self.folder.exists(_DRAINED):
            raise PipelineError(
                f"the stream of the checkpoint {self.folder} was drained: its windows have fired and take no more; "
                "run the pipeline with a new checkpoint"
            )

    @property
    def temporary(self) -> bool:
        """Whether it is removed after the run."""
        return self._temporary is not None

    @property
    def name(self) -> str:
        """The name of the stream for others."""
        return stream_name(str(self.folder), self.manifest.stream)

    def check(self, line: Line, *, heartbeat: bool, forget: Collection[str] = ()) -> Manifest:
        """Returns the manifest of a pipeline. Refuses one that cannot go on from here; notes other changes.

        Groupings with the labels `forget` may be gone.
        """
        new = self.manifest.of(line, heartbeat=heartbeat)
        if not self.fresh:
            changes = compare(self.manifest, new, forget)
            if changes.refusals:
                listed = "\n".join(f"  {each}" for each in changes.refusals)
                raise PipelineError(
                    f"the pipeline has changed, and cannot go on from the checkpoint {self.folder}:\n{listed}\n"
                    "run it as it was, or with a new checkpoint"
                )
            self.notes = changes.notes
        return new

    def prepare(self) -> None:
        """Makes the directory, for this user only, and checks that it can be written."""
        trial, local = self.folder.folder(".trial"), self.folder.local
        try:
            if local is not None:
                make_folder(local)
            trial.make()
        except UntrustedPath:
            raise
        except (Py4JJavaError, OSError) as error:
            raise PipelineError(
                f"the checkpoint {self.folder} cannot be written: {_reason(error)}; give another directory"
            ) from None
        trial.delete()

    def write(self, manifest: Manifest) -> None:
        """Writes the manifest of the pipeline, if it is new."""
        if self.fresh or manifest != self.manifest:
            self.folder.write(MANIFEST.format(self._written), manifest.write())
            self._written += 1
            self.manifest = manifest

    def time_of(self, batch_id: int) -> int:
        """Returns the time of a batch, as Spark logged it before it ran, in microseconds."""
        return self._offsets.time_of(batch_id)

    def drained(self) -> None:
        """Marks the stream as drained."""
        self.folder.write(_DRAINED, b"")

    def copy_to(self, path: str) -> None:
        """Copies the checkpoint to a savepoint, which is a stream of its own; no batch must begin meanwhile."""
        if not self.folder.exists():
            raise PipelineError("the stream had no checkpoint of its own and is over; give run(checkpoint=...) one")
        with copy(self.folder, Folder(self.folder.spark, path)) as copied:
            copied.write(MANIFEST.format(self._written), self.manifest.forked().write())

    def close(self) -> None:
        """Removes a temporary directory after the run."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _restore(self, savepoint: Folder) -> None:
        _check(savepoint)
        if not (written := _manifests(savepoint)):
            raise PipelineError(f"there is no savepoint at {savepoint}; give the path that handle.savepoint(path) got")
        with copy(savepoint, self.folder) as copied:
            copied.write(MANIFEST.format(written), newest_manifest(savepoint).forked().write())


def stream_of(checkpoint: Folder) -> str:
    """Returns the id of a checkpoint's stream."""
    return newest_manifest(checkpoint).stream


def groupings_of(checkpoint: Folder) -> list[str]:
    """Returns the labels of a checkpoint's groupings; none if no stream has begun there."""
    return list(newest_manifest(checkpoint).groupings) if _manifests(checkpoint) else []


def _manifests(folder: Folder) -> int:
    """Returns how many manifests a directory has."""
    return next(number for number in itertools.count() if not folder.exists(MANIFEST.format(number)))


def newest_manifest(folder: Folder) -> Manifest:
    """Reads the newest manifest of a checkpoint."""
    return Manifest.read(folder.read(MANIFEST.format(_manifests(folder) - 1)) or b"", f"the checkpoint {folder}")


def _check(folder: Folder) -> None:
    """Refuses a directory on this machine that others may write to: state may contain pickles, which run code."""
    if (local := folder.local) is not None:
        check_tree(local)


def _reason(error: Exception) -> str:
    reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(reason).splitlines()[0]
