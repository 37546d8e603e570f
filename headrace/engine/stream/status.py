"""Computes the status of a stream's sources and groupings from what its shards and Spark report."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice
from typing import Any

from headrace.engine.connectors.topicreaders import reader_of
from headrace.engine.handle import ExchangeStatus, SourceStatus
from headrace.engine.plan.line import Exchange, Line
from headrace.engine.shard.reports import ShardReport
from headrace.model.times import MAX_TIME, MIN_TIME


def exchange_status(exchange: Exchange, shards: Mapping[str, ShardReport]) -> ExchangeStatus:
    """Computes the status of a grouping from the reports of its shards."""
    reports = {number: shards[name] for number, name in enumerate(exchange.names()) if name in shards}
    if not reports:
        return ExchangeStatus()
    watermark, now = min(each.input_watermark for each in reports.values()), max(each.now for each in reports.values())
    known = MIN_TIME < watermark < MAX_TIME and now > MIN_TIME
    waiting = [each.waiting for each in reports.values() if each.waiting is not None]
    return ExchangeStatus(
        watermark,
        min(each.watermark for each in reports.values()),
        now - watermark if known else None,
        held=sum(each.held for each in reports.values()),
        late=sum(each.late for each in reports.values()),
        refused=sum(each.refused for each in reports.values()),
        waiting=min(waiting, key=lambda each: each.deadline, default=None),
        counts={number: each.counts for number, each in reports.items() if each.counts},
    )


def source_watermark(name: str, shards: Mapping[str, ShardReport]) -> int | None:
    """Returns the watermark of a source by the reports of shards; None as long as there is none."""
    return max((each.lows[name] for each in shards.values() if name in each.lows), default=None)


def source_statuses(
    line: Line, shards: Mapping[str, ShardReport], progress: Mapping[str, Any] | None, records: Mapping[str, int]
) -> dict[str, SourceStatus]:
    """Computes the status of each source from reports of shards, Spark's progress of the last batch, and its topic.

    `records` has, by label, how many records the last batch had of sources that Spark does not read.
    """
    inputs = iter([] if progress is None else progress["sources"])
    reported: dict[int, list[Any]] = {}  # taps of the same source share what Spark reports of it
    seconds = 0 if progress is None else progress["durationMs"]["triggerExecution"] / 1000
    statuses = {}
    for tap in line.taps:
        if id(tap.source) not in reported:
            reported[id(tap.source)] = list(islice(inputs, len(getattr(tap.source.transform, "paths", [None]))))
        own = reported[id(tap.source)]
        statuses[tap.name] = SourceStatus(
            source_watermark(tap.name, shards),
            sum(each["numInputRows"] for each in own) if own else None,
            sum(each["processedRowsPerSecond"] for each in own) if own else None,
        )
        if own and (rows := records.get(tap.source.label)) is not None:
            rate = rows / seconds if seconds else None
            statuses[tap.name] = replace(statuses[tap.name], rows=rows, rows_per_second=rate)
        if own and (reader := reader_of(tap.source)) is not None:
            statuses[tap.name] = reader.status(statuses[tap.name], own[0], seconds)
    return statuses
