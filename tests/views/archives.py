"""Master data that is written without Spark, for tests of who reads it."""

from __future__ import annotations

import datetime as dt
import itertools
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.views.archive.archivetable import Archive
from headrace.views.archive.manifests import ArchiveStep, MasterFile

Event = tuple[int, dict[str, Any], int | None]
"""A partition, the values, and the day since 1970 that its directory is of."""


def write(archive: Archive, folder: Path, *steps: Sequence[Event]) -> None:
    """Writes steps of events, which get the offsets that come next."""
    ends: dict[int, int] = {}
    before = ""
    for number, events in enumerate(steps):
        since, rows = dict(ends), []
        for partition, values, day in events:
            at = ends.get(partition, 0)
            ends[partition] = at + 1
            rows.append({**values, "_partition": partition, "_offset": at, "_timestamp": 0, "day": day})
        files = []
        days = sorted(rows, key=lambda row: (row["day"] is None, row["day"]))
        for day, each in itertools.groupby(days, key=lambda row: row.pop("day")):
            found = list(each)
            name = "__HIVE_DEFAULT_PARTITION__" if day is None else str(dt.date(1970, 1, 1) + dt.timedelta(days=day))
            path = f"step-{number:06d}-ab/_day={name}/a.parquet"
            (folder / "data" / path).parent.mkdir(parents=True)
            pq.write_table(pa.Table.from_pylist(found, archive.empty().schema), folder / "data" / path)
            size = (folder / "data" / path).stat().st_size
            partitions = {row["_partition"] for row in found}
            offsets = {n: [row["_offset"] for row in found if row["_partition"] == n] for n in partitions}
            files.append(MasterFile(path, len(found), size, {n: (min(at), max(at)) for n, at in offsets.items()}))
        step = ArchiveStep(number, since, dict(ends), files=tuple(files), before=before)
        (folder / "manifests").mkdir(exist_ok=True, parents=True)
        (folder / "manifests" / step.name).write_bytes(step.write())
        before = ArchiveStep.read(step.write()).seal
