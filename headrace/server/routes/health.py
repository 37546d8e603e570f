"""`/healthz` and `/readyz`: whether the process lives, and whether it can answer.

They are open to all, so they say no more than that.
"""

from __future__ import annotations

import logging
from collections.abc import Callable

from starlette.requests import Request
from starlette.responses import Response

from headrace.server.http.jsonresponse import JsonResponse
from headrace.server.http.openapi import ERROR, Operation, array, record, response
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.service import Service

_log = logging.getLogger("headrace.server")


def add_health(app: Application, service: Service, pool: WorkerPool) -> None:
    """Adds the two routes."""

    async def alive(request: Request) -> Response:
        return JsonResponse({"status": "alive"})

    async def ready(request: Request) -> Response:
        failing = await pool.run(lambda: _failing(service))
        if failing:
            return JsonResponse({"status": "not ready", "failing": failing}, 503)
        return JsonResponse({"status": "ready"})

    lives = response(record({"status": {"const": "alive"}}), "The process lives")
    app.add("GET", "/healthz", alive, Operation("Whether the process lives", {200: lives}))
    answers = response(record({"status": {"const": "ready"}}), "The store and the log answer")
    not_ready = record({"status": {"const": "not ready"}, "failing": array({"enum": ["store", "log"]})})
    operation = Operation("Whether it can answer", {200: answers}, refusals={503: {"anyOf": [not_ready, ERROR]}})
    app.add("GET", "/readyz", ready, operation)


def _failing(service: Service) -> list[str]:
    """Names which of the store and the log do not answer."""
    probes: dict[str, list[Callable[[], object]]] = {
        "store": [view.provenance for view in service.views.values()],
        "log": [topic.offsets for topic in service.topics.values()],
    }
    return [name for name, calls in probes.items() if not all(map(_succeeds, calls))]


def _succeeds(call: Callable[[], object]) -> bool:
    try:
        call()
        return True
    except Exception:
        _log.exception("not ready")
        return False
