"""Metrics for Prometheus: requests as they are answered; views and topics as they are when somebody looks."""

from __future__ import annotations

import logging
import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client import CollectorRegistry, Counter, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

from headrace.model.times import SECOND
from headrace.server.routes.topologymetrics import TopologyMetrics
from headrace.server.service import Service

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
_log = logging.getLogger("headrace.server")

_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class Metrics:
    """The metrics of one server.

    >>> metrics = Metrics(Service({}, {}))
    >>> metrics.answered("GET", "/views", 200, 0.002)
    >>> print(metrics.text().decode().splitlines()[2])
    headrace_http_requests_total{method="GET",route="/views",status="200"} 1.0
    """

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self._requests = _Requests()
        self.registry.register(self._requests)
        self._records = Counter(
            "headrace_ingested_records", "Records taken by POST /topics", ["topic"], registry=self.registry
        )
        self._lines = Counter(
            "headrace_refused_lines", "Lines refused by POST /topics", ["topic"], registry=self.registry
        )
        self.registry.register(_State(service))
        if service.topologies is not None:
            self.registry.register(TopologyMetrics(service.topologies))

    def answered(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a request. Routes are those that exist, so their number is bounded."""
        self._requests.add(method, route, status, seconds)

    def taken(self, topic: str, records: int) -> None:
        """Counts records that were appended."""
        self._records.labels(topic).inc(records)

    def refused(self, topic: str, lines: int) -> None:
        """Counts lines that were not."""
        self._lines.labels(topic).inc(lines)

    def text(self) -> bytes:
        """All metrics, as Prometheus reads them."""
        return generate_latest(self.registry)


class _Requests(Collector):
    """Requests as they were answered. It is told by the event loop alone, so it needs none of Prometheus's locks."""

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[float]] = {}  # of each route: how many up to each bound and above all, and the sum

    def add(self, method: str, route: str, status: int, seconds: float) -> None:
        key = (method if method in _METHODS else "other", route, status)
        self._counts[key] = self._counts.get(key, 0) + 1
        times = self._times.get(route)
        if times is None:
            times = self._times[route] = [0.0] * (len(_SECONDS) + 2)
        times[bisect_left(_SECONDS, seconds)] += 1
        times[-1] += seconds

    def collect(self) -> Iterator[Metric]:
        requests = CounterMetricFamily(
            "headrace_http_requests", "Requests answered", labels=["method", "route", "status"]
        )
        for (method, route, status), count in list(self._counts.items()):
            requests.add_metric([method, route, str(status)], count)
        seconds = HistogramMetricFamily("headrace_http_request_seconds", "Time to answer", labels=["route"])
        for route, (*counts, total) in list(self._times.items()):
            bounds = map(floatToGoString, (*_SECONDS, math.inf))
            seconds.add_metric([route], list(zip(bounds, accumulate(counts), strict=True)), total)
        return iter((requests, seconds))

    def describe(self) -> list[Metric]:
        return []  # registering asks for nothing


class _State(Collector):
    """What the views and topics are like now."""

    def __init__(self, service: Service) -> None:
        self.service = service

    def collect(self) -> Iterator[Metric]:
        version = GaugeMetricFamily("headrace_view_version", "Batch version that answers", labels=["view"])
        freshness = GaugeMetricFamily(
            "headrace_view_freshness_seconds", "Time since the last micro-batch", labels=["view"]
        )
        watermark = GaugeMetricFamily(
            "headrace_view_watermark_seconds", "Watermark of the speed layer", labels=["view"]
        )
        reached = GaugeMetricFamily("headrace_view_reached_offset", "Offset reached", labels=["view", "partition"])
        offsets = GaugeMetricFamily("headrace_topic_next_offset", "Next offset", labels=["topic", "partition"])
        for name, view in self.service.views.items():
            found = view.provenance()
            version.add_metric([name], found.version or 0)
            if found.freshness is not None:
                freshness.add_metric([name], found.freshness / SECOND)
            if found.watermark is not None:
                watermark.add_metric([name], found.watermark / SECOND)
            for partition, offset in found.reached.items():
                reached.add_metric([name, str(partition)], offset)
        for name, topic in self.service.topics.items():
            try:
                ends = topic.offsets()
            except Exception as error:  # its brokers are away: the others are told all the same
                _log.warning("topic %r does not tell how far it is: %s", name, error)
                continue
            for partition, offset in ends.items():
                offsets.add_metric([name, str(partition)], offset)
        return iter((version, freshness, watermark, reached, offsets))

    def describe(self) -> list[Metric]:
        return []  # registering asks for nothing
