"""Builds the JSON status of a system: its topics with their readers, and its views with their stages."""

from __future__ import annotations

import re
from collections.abc import Mapping

from headrace.engine.handle import ExchangeStatus, StreamStatus
from headrace.engine.plan.graphjson import graph_json
from headrace.model.metriccells import Cells, DistributionResult, GaugeResult
from headrace.model.times import SECOND
from headrace.system.speedsupervisor import SpeedSupervisor
from headrace.views.feeds import Feed
from headrace.views.jsonencoding import encode_provenance, encode_time, encode_version
from headrace.views.offsets import Offsets
from headrace.views.stores.store import StoredView
from headrace.views.systemstatus import MetricJson, PartitionStatus, ReaderStatus, StageStatus, TopicStatus, ViewStatus


def topic_status(feed: Feed, archived: Offsets, rate: float | None, read: Mapping[str, Offsets]) -> TopicStatus:
    """Returns the status of a topic: its partitions, and the offsets of its views, its archive and other groups.

    While its brokers cannot be reached, it has the error and what is known without them.
    """
    try:
        ends, starts, groups = feed.ends(), feed.starts(), feed.groups()
    except Exception as error:
        return {"partitions": [], "groups": {}, "archived": archived, "records_per_second": None, "error": str(error)}
    partitions: list[PartitionStatus] = [
        {"partition": number, "start": start, "end": ends[number]} for number, start in starts.items()
    ]
    internal = re.compile(rf"master|({'|'.join(map(re.escape, read)) or 'none'})-[0-9a-f]{{8}}-.*")
    others = {name: offsets for name, offsets in groups.items() if not internal.fullmatch(name)}
    readers = {**read, "archive": archived, **others}
    return {
        "partitions": partitions,
        "groups": {name: _reader_status(partitions, offsets) for name, offsets in readers.items()},
        "archived": archived,
        "records_per_second": rate,
        "error": None,
    }


def view_status(speed: SpeedSupervisor, stored: StoredView, topic: TopicStatus) -> ViewStatus:
    """Returns the status of a view: its speed layer, the origin of its answers, and its batch versions.

    It lags behind its topic by the records that are in no answer yet, whatever its stream has begun to read.
    """
    status = StreamStatus("stopped") if speed.handle is None else speed.handle.status()
    metrics = {} if speed.handle is None else speed.handle.metrics()
    sources = list(status.sources.values())
    watermarks = [source.watermark for source in sources if source.watermark is not None]
    return {
        "topic": speed.layer.view.topic.name,
        "state": speed.state,
        "error": speed.error,
        "batches": status.batches,
        "batch_seconds": status.batch_seconds,
        "records_per_second": sum(source.rows_per_second or 0 for source in sources) if sources else None,
        "lag": topic["groups"][stored.layout.name]["lag"] if topic["error"] is None else None,
        "watermark": encode_time(min(watermarks, default=None)),
        "stages": [stage_status(label, exchange) for label, exchange in status.exchanges.items()],
        "graph": graph_json(speed.layer.pipeline.graph(), metrics),
        "bad": {label: records.counts for label, records in status.bad.items()},
        "metrics": encode_metrics(status.recorded),
        "provenance": encode_provenance(stored.provenance()),
        "versions": [encode_version(version) for version in stored.versions()],
    }


def stage_status(label: str, status: ExchangeStatus) -> StageStatus:
    """Returns the status of a grouping."""
    waiting = status.waiting
    return {
        "label": label,
        "watermark": encode_time(status.watermark),
        "output_watermark": encode_time(status.output_watermark),
        "lag_seconds": None if status.lag is None else status.lag / SECOND,
        "held": status.held,
        "late": status.late,
        "refused": status.refused,
        "waiting": None if waiting is None else f"has not fired {waiting.window} of {waiting.key}: {waiting.why}",
    }


def encode_metrics(cells: Cells) -> list[MetricJson]:
    """Encodes the metrics that functions recorded, in the order of transforms and names.

    >>> encode_metrics({("parse", "bad"): 2})
    [{'transform': 'parse', 'name': 'bad', 'kind': 'counter', 'value': 2}]
    """
    encoded: list[MetricJson] = []
    for (label, name), cell in sorted(cells.items(), key=lambda item: item[0]):
        if isinstance(cell, DistributionResult):
            rest = {"count": cell.count, "min": cell.min, "max": cell.max}
            encoded.append({"transform": label, "name": name, "kind": "distribution", "value": cell.sum, **rest})  # type: ignore[typeddict-item]
        elif isinstance(cell, GaugeResult):
            encoded.append({"transform": label, "name": name, "kind": "gauge", "value": cell.value})
        elif isinstance(cell, int):  # others are of a dialect, which has its own way to show them
            encoded.append({"transform": label, "name": name, "kind": "counter", "value": cell})
    return encoded


def _reader_status(partitions: list[PartitionStatus], offsets: Offsets) -> ReaderStatus:
    lags = (part["end"] - offsets.get(part["partition"], part["start"]) for part in partitions)
    return {"offsets": offsets, "lag": sum(max(lag, 0) for lag in lags)}
