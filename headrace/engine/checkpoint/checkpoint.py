"""The checkpoint of a stream: a directory with Spark's own checkpoint, the scripts of sources, and manifests.

The newest manifest counts: a pipeline that goes on from the checkpoint is compared with it. A stream that was drained
has a mark, and does not go on.
"""

from __future__ import annotations

import itertools
import shutil
import tempfile
import uuid
from collections.abc import Callable, Collection
from typing import Final, NoReturn

from py4j.protocol import Py4JJavaError
from pyspark.sql import SparkSession

from headrace.engine.checkpoint.compare import compare
from headrace.engine.checkpoint.manifest import Manifest
from headrace.engine.checkpoint.savepoints import INITIAL, copy, has_begun
from headrace.engine.checkpoint.streamnames import MANIFEST, stream_name
from headrace.engine.plan.line import Line
from headrace.engine.spark.files import Folder
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.local.privatefolder import UntrustedPath, check_tree, make_folder
from headrace.model.errors import PipelineError

_DRAINED: Final = "drained"


class Checkpoint:
    """The directory of a checkpoint; without a path, a temporary one that is removed after the run.

    A new one is filled by `restore`, if there is one, which returns what has changed; or it has so many shards and
    partitions.
    """

    def __init__(
        self,
        spark: SparkSession,
        path: str | None,
        restore: Callable[[Folder], list[str]] | None = None,
        *,
        shards: int | None = None,
        partitions: int | None = None,
    ) -> None:
        if path is None and not (spark.sparkContext.master or "local").startswith("local"):
            raise PipelineError(
                "a stream on a cluster needs a checkpoint that all machines reach; give run(checkpoint='hdfs://...')"
            )
        self._temporary = tempfile.mkdtemp(prefix="headrace-stream-") if path is None else None
        self.folder = Folder(spark, path or f"{self._temporary}/checkpoint")
        self.local = str(self.folder).startswith("file:")
        check_private(self.folder)
        spark_folder = self.folder.folder("spark")
        self.spark_path, self._offsets = str(spark_folder), OffsetLog(spark_folder)
        self.control = self.folder.folder("control")
        if self.folder.is_file():
            raise PipelineError(f"the checkpoint {self.folder} is a file; give the path of a directory")
        self.notes: list[str] = []
        if restore is not None and not manifests_in(self.folder):
            self.notes = restore(self.folder)
        self._written = manifests_in(self.folder)
        self.fresh = not self._written
        cores = spark.sparkContext.defaultParallelism
        begun = Manifest(uuid.uuid4().hex, shards or cores, partitions or min(cores, shards or cores))
        self.manifest = begun if self.fresh else newest_manifest(self.folder)
        self._check_shards(shards, partitions)
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
                remedy = "run it as it was, or with a new checkpoint"
                if not compare(self.manifest, new, forget, anew=True).refusals:
                    remedy += f"; with savepoint={str(self.folder)!r}, the new one begins with the state of this one"
                refuse_changes(self.folder, changes.refusals, remedy)
            self.notes += changes.notes
        return new

    def prepare(self) -> None:
        """Makes the directory, for this user only, and checks that it can be written.

        What a stream began with is removed, once a micro-batch is done.
        """
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
        if has_begun(self.folder):
            self.folder.folder(INITIAL).delete()

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

    def _check_shards(self, shards: int | None, partitions: int | None) -> None:
        was = self.manifest
        for name, number, wanted in (("shards", was.shards, shards), ("partitions", was.partitions, partitions)):
            if wanted is not None and wanted != number:
                raise PipelineError(
                    f"run: {name} is {wanted}, and the checkpoint {self.folder} keeps the number it began with, "
                    f"{number}; stop the stream, and run it with savepoint={str(self.folder)!r}, {name}={wanted} and a "
                    "new checkpoint"
                )


def refuse_changes(folder: Folder, refusals: list[str], remedy: str) -> NoReturn:
    """Refuses a pipeline that has changed in these ways."""
    listed = "\n".join(f"  {each}" for each in refusals)
    raise PipelineError(f"the pipeline has changed, and cannot go on from the checkpoint {folder}:\n{listed}\n{remedy}")


def restore_copy(savepoint: Folder, target: Folder) -> None:
    """Fills the directory of a new checkpoint with a copy of a savepoint, which is a stream of its own."""
    manifest = newest_manifest(checked(savepoint))
    with copy(savepoint, target) as copied:
        copied.write(MANIFEST.format(manifests_in(savepoint)), manifest.forked().write())


def checked(savepoint: Folder) -> Folder:
    """Returns the directory of a savepoint or checkpoint. Refuses one that is none, or that others may write to."""
    check_private(savepoint)
    if not manifests_in(savepoint):
        raise PipelineError(f"there is no savepoint at {savepoint}; give the path that handle.savepoint(path) got")
    return savepoint


def stream_of(checkpoint: Folder) -> str:
    """Returns the id of a checkpoint's stream."""
    return newest_manifest(checkpoint).stream


def groupings_of(checkpoint: Folder) -> list[str]:
    """Returns the labels of a checkpoint's groupings; none if no stream has begun there."""
    return list(newest_manifest(checkpoint).groupings) if manifests_in(checkpoint) else []


def manifests_in(folder: Folder) -> int:
    """Returns how many manifests a directory has."""
    return next(number for number in itertools.count() if not folder.exists(MANIFEST.format(number)))


def newest_manifest(folder: Folder) -> Manifest:
    """Reads the newest manifest of a checkpoint."""
    return Manifest.read(folder.read(MANIFEST.format(manifests_in(folder) - 1)) or b"", f"the checkpoint {folder}")


def check_private(folder: Folder) -> None:
    """Refuses a directory on this machine that others may write to: state may contain pickles, which run code."""
    if (local := folder.local) is not None:
        check_tree(local)


def _reason(error: Exception) -> str:
    reason = error.java_exception.toString() if isinstance(error, Py4JJavaError) else str(error)
    return str(reason).splitlines()[0]
