"""The stream into data lakes that is killed: windows with retractions, into tables of both formats and all modes.

    python tests/chaos/lakejob.py FOLDER

begins the stream of a folder, or goes on with it, and leaves its output there.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from job import Output, script

import headrace as hr
from headrace.engine.spark.session import spark_session

LANDMARKS: Final = (
    "delta/log/_delta_log/*.json",
    "checkpoint/spark/offsets/[!.]*",
    "delta/now/_delta_log/*.json",
    "checkpoint/spark/commits/[!.]*",
    "checkpoint/spark/state/*/*/*.changelog",
    "delta/bag/_delta_log/*.json",
    "checkpoint/headrace-*.json",
)
"""Files whose names are the same in every run; those of Iceberg are not, and lie between them."""

TABLES: Final[dict[str, dict[str, Any]]] = {
    "log": {},
    "now": {"key": ["name", "window_start"], "mode": "upsert"},
    "bag": {"mode": "retract"},
}


def catalog(folder: Path) -> dict[str, str]:
    return {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": f"file://{folder}"}


def run(folder: Path) -> None:
    p = hr.Pipeline(spark=spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"}))
    trigger = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
    windows = hr.WindowInto(hr.FixedWindows(10), trigger=trigger, accumulation="retracting", allowed_lateness=60)
    sums = p | script() | windows | "sums" >> hr.CombinePerKey(sum).with_output_types(tuple[str, int])
    for name, options in TABLES.items():
        options = {"columns": ["name", "total"], **options}
        sums | f"delta {name}" >> hr.WriteDelta(str(folder / "delta" / name), **options)
        sums | f"iceberg {name}" >> hr.WriteIceberg(f"lake.{name}", catalog=catalog(folder), **options)
    p.run(checkpoint=str(folder / "checkpoint")).wait()


def output(folder: Path) -> Output:
    """What the tables have, as multisets."""
    from deltalake import DeltaTable
    from pyiceberg.catalog import load_catalog

    lake = load_catalog(**catalog(folder))

    def rows(table: pa.Table) -> Counter[str]:
        return Counter(repr(sorted(row.items())) for row in table.to_pylist())

    return {
        **{f"delta {name}": rows(DeltaTable(str(folder / "delta" / name)).to_pyarrow_table()) for name in TABLES},
        **{f"iceberg {name}": rows(lake.load_table(f"lake.{name}").scan().to_arrow()) for name in TABLES},
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]))
