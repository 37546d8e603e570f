"""How far a system is, as JSON: its topics with who reads them, and its views with their stages."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from headrace.engine.handle import ExchangeStatus, StreamStatus
from headrace.engine.stream.handle import StreamHandle
from headrace.model.times import SECOND
from headrace.system.pipelinegraph import drawn
from headrace.system.speedsupervisor import Speed
from headrace.views.feeds import Feed
from headrace.views.jsonencoding import encode_provenance, encode_time, encode_version
from headrace.views.offsets import Offsets
from headrace.views.stores.store import StoredView


def topic_status(feed: Feed, archived: Offsets, rate: float | None, read: Mapping[str, Offsets]) -> dict[str, Any]:
    """A topic: its partitions, and how far each view, the archive and each other consumer group has read.

    While its brokers are away, what is known without them, and why that is all.
    """
    try:
        ends, starts, groups = feed.ends(), feed.starts(), feed.groups()
    except Exception as error:
        return {"partitions": [], "groups": {}, "archived": archived, "records_per_second": None, "error": str(error)}
    partitions = [{"partition": each, "start": start, "end": ends[each]} for each, start in starts.items()]
    own = re.compile(rf"master|({'|'.join(map(re.escape, read)) or 'none'})-[0-9a-f]{{8}}-.*")
    others = {name: at for name, at in groups.items() if not own.fullmatch(name)}
    return {
        "partitions": partitions,
        "groups": {who: _position(partitions, at) for who, at in {**read, "archive": archived, **others}.items()},
        "archived": archived,
        "records_per_second": rate,
        "error": None,
    }


def view_status(speed: Speed, stored: StoredView) -> dict[str, Any]:
    """A view: its speed layer, where its answers come from, and its batch versions."""
    told = speed.handle.status() if isinstance(speed.handle, StreamHandle) else StreamStatus("stopped")
    metrics = speed.handle.metrics() if speed.handle is not None else {}
    sources = list(told.sources.values())
    return {
        "topic": speed.layer.view.topic.name,
        "state": speed.state,
        "error": speed.error,
        "batches": told.batches,
        "batch_seconds": told.batch_seconds,
        "records_per_second": sum(each.rows_per_second or 0 for each in sources) if sources else None,
        "lag": sum(each.lag or 0 for each in sources) if sources else None,
        "watermark": encode_time(min((each.watermark for each in sources if each.watermark is not None), default=None)),
        "stages": [_stage(label, each) for label, each in told.exchanges.items()],
        "graph": drawn(speed.layer.pipeline.graph(), metrics),
        "bad": {label: each.counts for label, each in told.bad.items()},
        "provenance": encode_provenance(stored.provenance()),
        "versions": [encode_version(each) for each in stored.versions()],
    }


def _stage(label: str, status: ExchangeStatus) -> dict[str, Any]:
    return {
        "label": label,
        "watermark": encode_time(status.watermark),
        "output_watermark": encode_time(status.output_watermark),
        "lag_seconds": None if status.lag is None else status.lag / SECOND,
        "held": status.held,
        "late": status.late,
        "refused": status.refused,
    }


def _position(partitions: list[dict[str, int]], at: Offsets) -> dict[str, Any]:
    lag = sum(max(each["end"] - at.get(each["partition"], each["start"]), 0) for each in partitions)
    return {"offsets": at, "lag": lag}
