"""Files of master data: describes them for manifests when they are written, and checks them later."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from headrace.engine.spark.files import Folder
from headrace.local.atomicfile import sync_path
from headrace.views.archive.manifests import MasterFile
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import OFFSET, PARTITION


def describe_files(spark: SparkSession, folder: Folder, schema: StructType) -> tuple[list[Row], tuple[MasterFile, ...]]:
    """Reads back what was written to a folder: a summary of its records by file and partition, and its files.

    A row has the columns path, partition, count, first, last and total of the offsets.
    """
    lengths = {name: size for name, size in folder.lengths().items() if name.endswith(".parquet")}
    if not lengths:
        return [], ()
    rows = _summary(spark.read.schema(schema).parquet(str(folder))).collect()
    name = str(folder).rstrip("/").rpartition("/")[2]
    offsets: dict[str, dict[int, tuple[int, int]]] = {path: {} for path in lengths}
    records = dict.fromkeys(lengths, 0)
    for row in rows:
        path = unquote(row["path"]).rpartition(f"/{name}/")[2]
        offsets[path][row["partition"]] = (row["first"], row["last"])
        records[path] += row["count"]
    local = folder.local
    return rows, tuple(
        MasterFile(
            f"{name}/{path}", records[path], size, offsets[path], None if local is None else digest(local / path)
        )
        for path, size in sorted(lengths.items())
    )


def _summary(records: DataFrame) -> DataFrame:
    return records.groupBy(F.col("_metadata.file_path").alias("path"), F.col(PARTITION).alias("partition")).agg(
        F.count(OFFSET).alias("count"),
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.sum(F.col(OFFSET).cast("decimal(20,0)")).alias("total"),
    )


def digest(path: Path) -> str:
    """Returns the SHA-256 digest of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_files(data: Folder, files: Iterable[MasterFile], *, bytes: bool = False) -> None:
    """Refuses files that are not as they were written: they must exist, with their size and number of records.

    With `bytes`, the digest of file is checked, too. On file systems other than a local disk, only sizes are checked.
    """
    local = data.local
    for file in files:
        if local is None:
            folder, _, name = file.path.rpartition("/")
            if dict(data.folder(folder).sizes() if data.folder(folder).exists() else ()).get(name) != file.bytes:
                raise _damaged(data, file, f"should have {file.bytes} bytes")
            continue
        path = local / file.path
        if not path.is_file():
            raise _damaged(data, file, "is missing")
        if (size := path.stat().st_size) != file.bytes:
            raise _damaged(data, file, f"should have {file.bytes} bytes, but has {size}")
        try:
            records = pq.read_metadata(path).num_rows
        except pa.ArrowException:
            raise _damaged(data, file, "is not Parquet") from None
        if records != file.records:
            raise _damaged(data, file, f"should have {file.records} records, but has {records}")
        if bytes and file.digest is not None and digest(path) != file.digest:
            raise _damaged(data, file, "has other bytes than were written")


def _damaged(data: Folder, file: MasterFile, what: str) -> ViewError:
    return ViewError(f"the master data in {data} is damaged: {file.path} {what}; restore its files")


def sync_files(folder: Folder) -> None:
    """Makes files on a local disk survive a power cut: the log may then remove their records."""
    local = folder.local
    if local is None:
        return
    for path in [*local.rglob("*"), local, local.parent]:
        sync_path(path)
