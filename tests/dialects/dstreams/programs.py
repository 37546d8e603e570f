"""Runs programs of DStreams on queues of lists, with a clock that the test moves, and collects what comes out."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from pyspark import SparkContext

from headrace.dstreams import DStream, ManualClock, StreamingContext

START = 1_700_000_000_000
"""When the clock of every program begins, in milliseconds."""

Build = Callable[..., "dict[str, DStream[Any]]"]


def collected(
    sc: SparkContext, queues: list[list[list[Any]]], build: Build, batches: int, checkpoint: Path | None = None
) -> dict[str, list[list[Any]]]:
    """Runs a program for so many intervals of a second; returns the elements of each batch, by name of its stream."""
    clock = ManualClock(START)
    ssc = StreamingContext(sc, 1, clock=clock)
    if checkpoint is not None:
        ssc.checkpoint(str(checkpoint))
    results: dict[str, list[list[Any]]] = {}
    for name, stream in build(*[ssc.queueStream(queue) for queue in queues]).items():
        collect(stream, results.setdefault(name, []))
    ssc.start()
    clock.advance(batches)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    ssc.awaitTermination(0)
    return results


def collect(stream: DStream[Any], into: list[list[Any]]) -> None:
    """Appends the elements of each batch to a list."""
    stream.foreachRDD(lambda rdd: into.append(rdd.collect()))
