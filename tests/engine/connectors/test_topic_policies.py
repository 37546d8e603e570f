"""Tests watermark policies of topics, on Spark: each partition has its own watermark."""

from __future__ import annotations

import pathlib
import threading
from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.log import Log
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_policies_of_topics(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    """`selected` is read by Catalyst, `percentile` by the program itself, and a column of marks is never read so."""
    log = str(tmp_path / "log")
    topic = Log(log).create("visits", partitions=2, values="ts timestamp, mark timestamp")

    def arrive(partition: int, *rows: tuple[int, int | None]) -> None:
        values: list[object] = [{"ts": ts, "mark": mark} for ts, mark in rows]
        topic.append(partition, topic.batch(values, timestamps=[0] * len(rows)))

    fired: dict[str, list[tuple[int, int]]] = {}
    lock = threading.Lock()
    p = hr.Pipeline(spark=spark)
    policies = {"percentile": hr.Percentile(0.6), "selected": hr.Percentile(0.6), "punctuated": hr.Punctuated("mark")}
    for name, policy in policies.items():

        def take(elements: list[Any], batch: int, name: str = name) -> None:
            with lock:
                panes = [(each.window.start // SECOND, each.value) for each in elements]
                fired.setdefault(name, []).extend(panes)

        rows = p | name >> hr.ReadTopic("visits", log=log, event_time="ts", watermark=policy)
        if name == "selected":
            rows = rows | hr.Where("ts is not null AND hash(ts) is not null")  # so it is Spark that reads
        windowed = rows | f"window {name}" >> hr.WindowInto(hr.FixedWindows(10))
        windowed | f"count {name}" >> hr.Count.globally() | f"take {name}" >> hr.ForEachBatch(take)

    arrive(0, (3, None), (14, None), (12, None))  # of three delays, 0, 0 and 2 s, more than 0.6 are none
    arrive(1, (4, None), (16, 10))
    handle = p.run()
    assert hasattr(handle, "query")
    try:
        handle.query.processAllAvailable()
        assert fired == {"percentile": [(0, 2)], "selected": [(0, 2)]}
        arrive(0, (15, 12))
        handle.query.processAllAvailable()
        assert fired == {"percentile": [(0, 2)], "selected": [(0, 2)], "punctuated": [(0, 2)]}
    finally:
        handle.stop()


def test_a_punctuation_must_be_a_column(spark: SparkSession, tmp_path: pathlib.Path) -> None:
    Log(tmp_path).create("visits", values="ts timestamp, ok boolean")
    for column, why in (("mark", "is no column; there are ts, ok$"), ("ok", "is a boolean; it must be a timestamp")):
        p = hr.Pipeline(spark=spark)
        p | hr.ReadTopic("visits", log=str(tmp_path), watermark=hr.Punctuated(column))
        with pytest.raises(hr.PipelineError, match=f"Punctuated: column='{column}' {why}"):
            p.run()
