"""A stream's checkpoint: a directory with Spark's own checkpoint, the scripts of sources, and what the stream is.

What it is, the manifest says: it is written once, and a pipeline that goes on from the checkpoint must agree with it.
"""

from __future__ import annotations

import json
import re
import shutil
import tempfile
import uuid
from dataclasses import asdict, dataclass
from typing import Final

from pyspark.sql import SparkSession

from headrace.engine.files import Folder
from headrace.engine.levels import Line
from headrace.model.errors import PipelineError

_MANIFEST: Final = "headrace.json"


@dataclass(frozen=True)
class Manifest:
    """What a stream is: an id, its shards and partitions, its sources and its exchanges."""

    stream: str
    shards: int
    partitions: int
    sources: list[str]
    exchanges: list[str]


class Checkpoint:
    """The directory of a checkpoint; without a path, one that is gone after the run."""

    def __init__(self, spark: SparkSession, path: str | None) -> None:
        if path is None and not (spark.sparkContext.master or "local").startswith("local"):
            raise PipelineError(
                "a stream on a cluster needs a checkpoint that all machines reach; give run(checkpoint='hdfs://...')"
            )
        self._temporary = tempfile.mkdtemp(prefix="headrace-stream-") if path is None else None
        self.folder = Folder(spark, path or self._temporary or "")
        self.local = str(self.folder).startswith("file:")
        self.spark_path = str(self.folder.folder("spark"))
        self.control = self.folder.folder("control")
        read = self.folder.read(_MANIFEST)
        self.fresh = read is None
        cores = spark.sparkContext.defaultParallelism
        self.manifest = Manifest(uuid.uuid4().hex, 2 * cores, cores, [], []) if read is None else _read(read)

    def check(self, line: Line) -> None:
        """Refuses a pipeline that is not the one of the checkpoint."""
        if self.fresh:
            return
        new = self._manifest_of(line)
        for what, held, now in (
            ("sources", self.manifest.sources, new.sources),
            ("groupings", self.manifest.exchanges, new.exchanges),
        ):
            if held != now:
                differing = [f"  was {each}" for each in held if each not in now]
                differing += [f"  is  {each}" for each in now if each not in held]
                raise PipelineError(
                    f"the checkpoint {self.folder} is of a pipeline with other {what}:\n"
                    + "\n".join(differing or ["  their order"])
                    + "\nrun the pipeline as it was, or with a new checkpoint"
                )

    def write(self, line: Line) -> None:
        """Makes it the checkpoint of this pipeline."""
        if self.fresh:
            self.manifest = self._manifest_of(line)
            self.folder.write(_MANIFEST, json.dumps(asdict(self.manifest), indent=1).encode())

    def close(self) -> None:
        """After the run."""
        if self._temporary is not None:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _manifest_of(self, line: Line) -> Manifest:
        held = self.manifest
        sources = [f"{tap.name!r}: {type(tap.source.transform).__name__}" for tap in line.taps]
        exchanges = [re.sub(r" at 0x[0-9a-f]+", "", exchange.describe()) for exchange in line.exchanges]
        return Manifest(held.stream, held.shards, held.partitions, sources, exchanges)


def _read(data: bytes) -> Manifest:
    return Manifest(**json.loads(data))
