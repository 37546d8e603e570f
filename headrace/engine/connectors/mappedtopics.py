"""Frames of the records of an embedded topic that Spark reads itself, by the column, from the mapped segments.

Python says where the batches are; `engine/spark/mappedrecords.py` reads them. Checksums are compared as ever.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import from_arrow_schema

from headrace.edges.topicranges import Range, divided_ranges
from headrace.engine.connectors.fromrecords import OFFSET_BITS, PLACE
from headrace.engine.connectors.topicdatasource import Scan, with_parts
from headrace.engine.spark.mappedrecords import (
    BLOCK,
    PLACES,
    Blocks,
    Layout,
    Share,
    is_compiled,
    mapped_frame,
    slots_of,
)
from headrace.engine.worker.blame import blame, failure
from headrace.engine.worker.hidden import TIME
from headrace.log import LogError, Topic
from headrace.log.errors import CorruptionError
from headrace.log.partitions import TIMESTAMP
from headrace.log.segments import DAMAGED
from headrace.log.values import KEY, VALUE, WATERMARK_KEY

_MANY: Final = 1_000_000
"""Records, of which the first frame that Spark maps pays for being compiled."""
_MOST_BLOCKS: Final = 100_000
_LARGEST: Final = (1 << 31) - 1  # bytes that Java maps at once


def mapped_records(spark: SparkSession, scan: Scan, *, at_least: int = _MANY) -> DataFrame | None:
    """Returns the frame of the records if Spark can map their files and read the columns itself, and it is worthwhile.

    It is not for few records, nor for so many batches that their places are a burden.
    """
    if scan.form != "columns" or scan.watermarks or scan.end is None:
        return None
    topic = scan.open()
    with blame(scan.label):
        ranges = divided_ranges(topic, scan.start, scan.end, scan.tasks)
    count = sum(span.until - span.first for spans in ranges for span in spans)
    if not count or (count < at_least and not is_compiled(spark)):
        return None
    with blame(scan.label):
        shares = [_share(topic, spans) for spans in ranges]
    if sum(len(share.blocks) for share in shares) > _MOST_BLOCKS or not all(map(_is_mappable, shares)):
        return None
    return with_parts(mapped_frame(spark, f"topic {topic.name}", _layout(scan, topic), shares))


def _share(topic: Topic, spans: Sequence[Range]) -> Share:
    """Returns where the batches of some ranges are."""
    files: list[str] = []
    names: list[str] = []
    blocks: list[Blocks] = [np.zeros(0, BLOCK)]
    for span in spans:
        partition = topic.partition(span.partition)
        for segment, entries in partition.entries(span.first, span.until):
            some = np.zeros(len(entries), BLOCK)
            some["file"], some["place"] = len(files), (span.partition << OFFSET_BITS) + entries["base"]
            for name in ("position", "length", "checksum", "count"):
                some[name] = entries[name]
            some["first"] = np.maximum(span.first - entries["base"], 0)
            some["until"] = np.minimum(span.until - entries["base"], entries["count"])
            blocks.append(some)
            files.append(str(segment.data))
            names.append(partition.place)
    return Share(files, names, np.concatenate(blocks))


def _is_mappable(share: Share) -> bool:
    """Returns whether Java can map what is read of each file."""
    ends = share.blocks["position"] + share.blocks["length"]
    starts = np.flatnonzero(np.diff(share.blocks["file"], prepend=-1))
    return bool((np.maximum.reduceat(ends, starts) - share.blocks["position"][starts] <= _LARGEST).all())


def _layout(scan: Scan, topic: Topic) -> Layout:
    """Returns where the columns of a scan are in a batch of the topic."""
    schema, slots = scan.schema(), slots_of(topic.schema)
    known = {TIME: slots[TIMESTAMP], PLACE: PLACES, VALUE: slots[VALUE]}
    chosen = [slots.get(f"{VALUE}.{name}") or known[name] for name in schema.names]
    gone = LogError("{place}: offset {first} was removed by retention while it was being read; run it again")
    failures = [failure(scan.label, error) for error in (CorruptionError(DAMAGED), gone)]
    key, value = slots[KEY], slots[VALUE]
    return Layout(from_arrow_schema(schema), chosen, key, value, WATERMARK_KEY, OFFSET_BITS, *failures)
