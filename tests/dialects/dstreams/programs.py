"""Runs programs of DStreams on queues of lists, with a clock that the test moves, and collects what comes out."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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
    results = collect_all(ssc, build(*[ssc.queueStream(queue) for queue in queues]))
    ssc.start()
    clock.advance(batches)
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    ssc.awaitTermination(0)
    return results


def collect(stream: DStream[Any], into: list[list[Any]]) -> None:
    """Appends the elements of each batch to a list."""
    stream.foreachRDD(lambda rdd: into.append(rdd.collect()))


def collect_all(ssc: Any, streams: dict[str, Any]) -> dict[str, list[list[Any]]]:
    """Appends the elements of each batch of several streams to lists by name, with one job for all of one slide."""
    results: dict[str, list[list[Any]]] = {name: [] for name in streams}
    for slide in {stream._slideDuration for stream in streams.values()}:
        names = [name for name, stream in streams.items() if stream._slideDuration == slide]
        named = ssc.union(*[streams[name].map(partial(_pair, name)) for name in names])
        named.foreachRDD(_collector(names, results))
    return results


def _pair(name: str, element: Any) -> tuple[str, Any]:
    return name, element


def _collector(names: list[str], results: dict[str, list[list[Any]]]) -> Callable[[Any], None]:
    def collect_named(rdd: Any) -> None:
        found = rdd.collect()
        for name in names:
            results[name].append([element for each, element in found if each == name])

    return collect_named
