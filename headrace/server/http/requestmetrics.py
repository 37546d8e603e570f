"""Counts requests and measures how long they took, for Prometheus."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from prometheus_client.core import CounterMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector
from prometheus_client.utils import floatToGoString

_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS")
_SECONDS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10)


class RequestMetrics(Collector):
    """Counts and times of responses. Only the event loop adds to it, so it needs no locks.

    It takes 0.4 µs a response. Prometheus's own counter and histogram take 3.2 µs, or 1.2 µs if their children are
    remembered, and add a `_created` series to each of them.
    """

    def __init__(self) -> None:
        self._counts: dict[tuple[str, str, int], int] = {}
        self._times: dict[str, list[float]] = {}  # by route: how many up to each bound and above all, and the sum

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
        return []  # so that registering reads nothing
