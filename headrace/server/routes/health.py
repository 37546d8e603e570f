"""`/healthz` and `/readyz`: whether the process lives, and whether it can answer. Open to all, so they tell no more."""

from __future__ import annotations

import logging
from collections.abc import Callable

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.server.http.jsonresponse import Json
from headrace.server.http.workerpool import Worker
from headrace.server.service import Service

_log = logging.getLogger("headrace.server")


def add_health(router: APIRouter, service: Service, worker: Worker) -> None:
    """The two routes."""

    async def alive(request: Request) -> Response:
        return Json({"status": "alive"})

    async def ready(request: Request) -> Response:
        failing = await worker.run(lambda: _failing(service))
        return Json({"status": "not ready", "failing": failing}, 503) if failing else Json({"status": "ready"})

    router.add_api_route("/healthz", alive, methods=["GET"], summary="Whether the process lives")
    router.add_api_route("/readyz", ready, methods=["GET"], summary="Whether it can answer")


def _failing(service: Service) -> list[str]:
    """Which of the store and the log do not answer."""
    checks: dict[str, list[Callable[[], object]]] = {
        "store": [view.provenance for view in service.views.values()],
        "log": [topic.offsets for topic in service.topics.values()],
    }
    return [name for name, asked in checks.items() if not all(map(_answers, asked))]


def _answers(ask: Callable[[], object]) -> bool:
    try:
        ask()
        return True
    except Exception:
        _log.exception("not ready")
        return False
