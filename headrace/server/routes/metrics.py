"""`/metrics`: requests, views, topics, pipelines and topologies, in the text format of Prometheus."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from headrace.model.times import SECOND
from headrace.server.http import openapi
from headrace.server.http.jsonresponse import PiecesResponse, split_text
from headrace.server.http.openapi import Operation
from headrace.server.http.requestmetrics import RequestMetrics
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.routes.pipelinemetrics import PipelineMetrics
from headrace.server.routes.topologymetrics import TopologyMetrics
from headrace.server.service import Service

_log = logging.getLogger("headrace.server")


class Metrics:
    """The metrics of one server.

    >>> metrics = Metrics(Service({}, {}))
    >>> metrics.count_response("GET", "/views", 200, 0.002)
    >>> print(metrics.text().decode().splitlines()[2])
    headrace_http_requests_total{method="GET",route="/views",status="200"} 1.0
    """

    def __init__(self, service: Service) -> None:
        self.registry = CollectorRegistry()
        self._requests = RequestMetrics()
        self.registry.register(self._requests)
        self._records = Counter(
            "headrace_ingested_records", "Records taken by POST /topics", ["topic"], registry=self.registry
        )
        self._lines = Counter(
            "headrace_refused_lines", "Lines refused by POST /topics", ["topic"], registry=self.registry
        )
        self._cut_off = Counter(
            "headrace_http_cut_off", "Clients that took an answer too slowly", registry=self.registry
        )
        self.registry.register(_ViewsAndTopics(service))
        if service.operations is not None:
            self.registry.register(PipelineMetrics(service.operations))
        if service.topologies is not None:
            self.registry.register(TopologyMetrics(service.topologies))

    def count_response(self, method: str, route: str, status: int, seconds: float) -> None:
        """Counts a response. Routes are those that exist, so their number is bounded."""
        self._requests.add(method, route, status, seconds)

    def count_records(self, topic: str, records: int) -> None:
        """Counts records that were appended."""
        self._records.labels(topic).inc(records)

    def count_bad_lines(self, topic: str, lines: int) -> None:
        """Counts lines that were refused."""
        self._lines.labels(topic).inc(lines)

    def count_cut_off(self) -> None:
        """Counts a client that took an answer too slowly."""
        self._cut_off.inc()

    def text(self) -> bytes:
        """Returns all metrics in the text format of Prometheus."""
        return generate_latest(self.registry)


class _ViewsAndTopics(Collector):
    """Gauges of the views and topics, read when somebody asks for metrics."""

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
            provenance = view.provenance()
            version.add_metric([name], provenance.version or 0)
            if provenance.freshness is not None:
                freshness.add_metric([name], provenance.freshness / SECOND)
            if provenance.watermark is not None:
                watermark.add_metric([name], provenance.watermark / SECOND)
            for partition, offset in provenance.reached.items():
                reached.add_metric([name, str(partition)], offset)
        for name, topic in self.service.topics.items():
            try:
                ends = topic.offsets()
            except Exception as error:  # its brokers are away; the others have metrics all the same
                _log.warning("no metrics of topic %r: %s", name, error)
                continue
            for partition, offset in ends.items():
                offsets.add_metric([name, str(partition)], offset)
        return iter((version, freshness, watermark, reached, offsets))

    def describe(self) -> list[Metric]:
        return []  # so that registering reads nothing


def add_metrics(app: Application, metrics: Metrics, pool: WorkerPool) -> None:
    """Adds the route."""

    async def text(request: Request) -> Response:
        return await pool.respond(lambda: PiecesResponse(split_text(metrics.text()), media_type=CONTENT_TYPE_LATEST))

    described = openapi.response(openapi.STRING, "Metrics in the text format of Prometheus", CONTENT_TYPE_LATEST)
    app.add("GET", "/metrics", text, Operation("Metrics for Prometheus", {200: described}))
