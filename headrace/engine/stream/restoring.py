"""Begins a stream: with its checkpoint, or with a new one that is filled from a savepoint.

A savepoint is copied as it is if the stream can go on so. If it is to have other numbers of shards or partitions, or
its pipeline has changed in a way that Spark's own checkpoint does not allow, its state is written anew.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from pyspark.sql import SparkSession

from headrace.engine.checkpoint.checkpoint import Checkpoint, refuse_changes, restore_copy
from headrace.engine.checkpoint.compare import compare
from headrace.engine.checkpoint.manifest import Manifest
from headrace.engine.plan.lowering import lower
from headrace.engine.spark.files import Folder
from headrace.engine.state.rewriting import check_counts, rescaled, rewrite
from headrace.engine.state.storedstate import StoredState
from headrace.engine.stream.timing import Timing
from headrace.model.errors import PipelineError
from headrace.model.pipeline import Graph

if TYPE_CHECKING:
    from headrace.engine.stream.query import Options

_log = logging.getLogger("headrace.stream")


def begun(spark: SparkSession, graph: Graph, options: Options) -> Checkpoint:
    """Returns the checkpoint of a stream with these options."""
    check_counts(options.shards, options.partitions)
    restore = None if options.savepoint is None else partial(_restore, spark, graph, options)
    return Checkpoint(spark, options.checkpoint, restore, shards=options.shards, partitions=options.partitions)


def _restore(spark: SparkSession, graph: Graph, options: Options, target: Folder) -> list[str]:
    """Fills the directory of a new checkpoint; returns what has changed."""
    assert options.savepoint is not None
    state = StoredState.at(spark, options.savepoint)
    was = rescaled(state.manifest, options.shards, options.partitions)
    new, forget = _manifest(graph, options, was), options.forget or ()
    changes = compare(replace(was, sinks=new.sinks), new, forget, anew=True)  # all sinks are new to a fork
    if changes.refusals:
        refuse_changes(state.folder, changes.refusals, "run it as it was, or without a savepoint")
    before = state.manifest
    same_shards = (was.shards, was.partitions) == (before.shards, before.partitions)
    if same_shards and not compare(was, new, forget).refusals:
        restore_copy(state.folder, target)
        return []
    notes = [] if same_shards else [f"{was.shards} shards on {was.partitions} partitions"]
    notes += changes.notes
    _log.warning("the stream begins from %s with changes:\n%s", state.folder, "\n".join(f"  {note}" for note in notes))
    rewrite(state, target, new, inputs=None if list(new.sources) == list(was.sources) else _inputs(was, new))
    return notes


def _manifest(graph: Graph, options: Options, was: Manifest) -> Manifest:
    """Returns the manifest that the pipeline has if it goes on from another."""
    line = lower(
        graph,
        shards=was.shards,
        partitions=was.partitions,
        numbers=was.numbers,
        taken=(entry.number for entry in was.forgotten),
        levels=max(was.depth, options.levels if isinstance(options.levels, int) else 0),
    )
    line.taps = was.in_order(line.taps)
    return was.of(line, heartbeat=Timing.of(line, options.trigger).needs_heartbeat(had_one=was.heartbeat))


def _inputs(was: Manifest, new: Manifest) -> Mapping[int, int]:
    """Returns which of Spark's sources is which afterwards: those of the pipeline, and then that of control."""
    before, after = _places(was), _places(new)
    return {
        old: now
        for name in (*was.sources, None)
        if name in after
        for old, now in zip(before[name], after[name], strict=True)
    }


def _places(manifest: Manifest) -> dict[str | None, range]:
    places: dict[str | None, range] = {}
    at = 0
    for name, entry in manifest.sources.items():
        if entry.inputs is None:
            raise PipelineError(
                "an earlier version wrote this savepoint, and does not say how many of Spark's sources each source is; "
                "run the pipeline once as it was with this version, take a savepoint, and change it then"
            )
        places[name] = range(at, at + entry.inputs)
        at += entry.inputs
    places[None] = range(at, at + 1)
    return places
