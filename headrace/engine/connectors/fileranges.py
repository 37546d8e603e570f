"""Deals files on local disks to tasks of Python: whole, or in shares where files are large."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from os.path import getsize
from pathlib import PurePath
from typing import Final
from urllib.parse import unquote

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from headrace.engine.connectors.fromfiles import LENGTH, PATH, SHARE, SHARES
from headrace.engine.spark.files import Folder
from headrace.engine.worker.hidden import PART
from headrace.model.sources import FileSource

FILES: Final = "path string, modificationTime timestamp, length long, content binary"
"""The columns of files as Spark lists them; it reads contents only if one asks for them."""

_SHARE: Final = 32 << 20
"""Bytes of a file that one task is to read, if there are files that are larger."""


def local_files(spark: SparkSession, source: FileSource, data: DataFrame) -> list[str] | None:
    """Returns the paths of the files that a frame reads; None if they are elsewhere, or directories may be columns."""
    if any(Folder(spark, path).local is None for path in source.paths):
        return None
    files = [unquote(name).removeprefix("file://") for name in data.inputFiles()]
    return None if any("=" in str(PurePath(name).parent) for name in files) else files


def sizes_of(files: Sequence[str]) -> list[int]:
    """Returns the sizes of files that are still there."""
    sizes = []
    for name in files:
        with suppress(OSError):
            sizes.append(getsize(name))
    return sizes


def as_ranges(names: DataFrame, files: Sequence[str]) -> DataFrame:
    """Returns the frame of files, or of their shares, dealt to all tasks, if some of the `files` known are large."""
    of_several = [name for name in (PART,) if name in names.columns]
    if max(sizes_of(files), default=0) <= _SHARE:
        return names.select(PATH, LENGTH, F.lit(0).alias(SHARE), F.lit(1).alias(SHARES), *of_several)
    shares = F.greatest(F.ceil(F.col(LENGTH) / _SHARE), F.lit(1)).cast("int")
    share = F.explode(F.sequence(F.lit(0), shares - 1)).alias(SHARE)
    dealt = names.select(PATH, LENGTH, share, shares.alias(SHARES), *of_several)
    return dealt.repartition(names.sparkSession.sparkContext.defaultParallelism)
