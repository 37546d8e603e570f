"""Computes the status of a stream's sources and groupings from what its shards and Spark report."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import islice
from typing import Any

from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.handle import ExchangeStatus, SourceStatus
from headrace.engine.plan.line import Exchange, Line
from headrace.engine.shard.processor import Waiting
from headrace.model.times import MAX_TIME, MIN_TIME


def exchange_status(exchange: Exchange, shards: Mapping[str, Mapping[str, Any]]) -> ExchangeStatus:
    """A grouping's, from what its shards told."""
    told = [shards[name] for name in exchange.names() if name in shards]
    if not told:
        return ExchangeStatus()
    watermark, now = min(each["input"] for each in told), max(each["now"] for each in told)
    known = MIN_TIME < watermark < MAX_TIME and now > MIN_TIME
    waiting = [Waiting(**each["waiting"]) for each in told if each["waiting"] is not None]
    return ExchangeStatus(
        watermark,
        min(each["watermark"] for each in told),
        now - watermark if known else None,
        held=sum(each["held"] for each in told),
        late=sum(each["late"] for each in told),
        refused=sum(each["refused"] for each in told),
        waiting=min(waiting, key=lambda each: each.deadline, default=None),
        counts={
            number: shards[name]["counts"]
            for number, name in enumerate(exchange.names())
            if name in shards and shards[name].get("counts")
        },
    )


def source_statuses(
    line: Line, shards: Mapping[str, Mapping[str, Any]], progress: Mapping[str, Any] | None
) -> dict[str, SourceStatus]:
    """Those of sources, from what shards told, from Spark's progress of the last batch, and from topics as they are."""
    inputs = iter([] if progress is None else progress["sources"])
    seconds = 0 if progress is None else progress["durationMs"]["triggerExecution"] / 1000
    statuses = {}
    for tap in line.taps:
        own = list(islice(inputs, len(getattr(tap.source.transform, "paths", [None]))))
        lows = [each["lows"][tap.name] for each in shards.values() if tap.name in each.get("lows", ())]
        statuses[tap.name] = SourceStatus(
            max(lows, default=None),
            sum(each["numInputRows"] for each in own) if own else None,
            sum(each["processedRowsPerSecond"] for each in own) if own else None,
        )
        if own and (reader := reader_of(tap.source)) is not None:
            statuses[tap.name] = reader.status(statuses[tap.name], own[0], seconds)
    return statuses
