"""Files of master data: what is noted of them when they are written, and how one sees later that they are whole."""

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
from headrace.views.archive.manifests import File
from headrace.views.errors import ViewError
from headrace.views.feeds.feed import OFFSET, PARTITION


def written(spark: SparkSession, folder: Folder, schema: StructType) -> tuple[list[Row], tuple[File, ...]]:
    """What was written to a folder, read back: the places of its records by file and partition, and its files.

    A row has the columns path, partition, count, first, last and total of the offsets.
    """
    lengths = {name: size for name, size in folder.lengths().items() if name.endswith(".parquet")}
    if not lengths:
        return [], ()
    rows = _places(spark.read.schema(schema).parquet(str(folder))).collect()
    name = str(folder).rstrip("/").rpartition("/")[2]
    at: dict[str, dict[int, tuple[int, int]]] = {path: {} for path in lengths}
    records = dict.fromkeys(lengths, 0)
    for row in rows:
        path = unquote(row["path"]).rpartition(f"/{name}/")[2]
        at[path][row["partition"]] = (row["first"], row["last"])
        records[path] += row["count"]
    local = folder.local
    return rows, tuple(
        File(f"{name}/{path}", records[path], size, at[path], None if local is None else digest(local / path))
        for path, size in sorted(lengths.items())
    )


def _places(records: DataFrame) -> DataFrame:
    return records.groupBy(F.col("_metadata.file_path").alias("path"), F.col(PARTITION).alias("partition")).agg(
        F.count(OFFSET).alias("count"),
        F.min(OFFSET).alias("first"),
        F.max(OFFSET).alias("last"),
        F.sum(F.col(OFFSET).cast("decimal(20,0)")).alias("total"),
    )


def digest(path: Path) -> str:
    """Of the bytes of a file."""
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check(data: Folder, files: Iterable[File], *, bytes: bool = False) -> None:
    """Refuses files that are not as they were written: they must be there, of their size, with their records.

    With `bytes`, each byte is looked at. Footers are read where files are on a disk of this machine; elsewhere the size
    must do.
    """
    local = data.local
    for each in files:
        if local is None:
            folder, _, name = each.path.rpartition("/")
            if dict(data.folder(folder).sizes() if data.folder(folder).exists() else ()).get(name) != each.bytes:
                raise _damaged(data, each, f"should have {each.bytes} bytes")
            continue
        path = local / each.path
        if not path.is_file():
            raise _damaged(data, each, "is missing")
        if (size := path.stat().st_size) != each.bytes:
            raise _damaged(data, each, f"should have {each.bytes} bytes, but has {size}")
        try:
            found = pq.read_metadata(path).num_rows
        except pa.ArrowException:
            raise _damaged(data, each, "is not Parquet") from None
        if found != each.records:
            raise _damaged(data, each, f"should have {each.records} records, but has {found}")
        if bytes and each.digest is not None and digest(path) != each.digest:
            raise _damaged(data, each, "has other bytes than were written")


def _damaged(data: Folder, file: File, what: str) -> ViewError:
    return ViewError(f"the master data in {data} is damaged: {file.path} {what}; restore its files")


def sync(folder: Folder) -> None:
    """Sees to it that files on a local disk outlive a power cut: the log may forget what they have."""
    where = folder.local
    if where is None:
        return
    for path in [*where.rglob("*"), where, where.parent]:
        sync_path(path)
