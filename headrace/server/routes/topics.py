"""`POST /topics/{name}`: events into a topic, as lines of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.log import CorruptionError, LogError
from headrace.server.http.bodies import JSON, LINES, read_body
from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.ingestion import BadLines, Ingestion
from headrace.server.limits import Gate, Limits
from headrace.server.routes.metrics import Metrics
from headrace.server.routes.viewparameters import body
from headrace.views.feeds import RequestConflict, RequestKey, TopicUnavailable

_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_SEQUENCE: Final = re.compile(r"\d{1,18}", re.ASCII)

_PARAMETERS: Final[list[dict[str, Any]]] = [
    {
        "name": "Idempotency-Key",
        "in": "header",
        "schema": {"type": "string", "maxLength": 200},
        "description": "A name for this request: sent again under the same, it is appended once",
    },
    {
        "name": "Idempotency-Sequence",
        "in": "header",
        "schema": {"type": "integer", "minimum": 0},
        "description": "For clients that send many requests under one key: their number, which grows",
    },
]


def add_topics(
    router: APIRouter, topics: Mapping[str, Ingestion], limits: Limits, worker: Worker, metrics: Metrics
) -> None:
    """A route for each topic."""
    gate = Gate(limits.posts, "requests to topics")
    for name, ingestion in topics.items():
        _add_topic(router, name, ingestion, limits, worker, metrics, gate)


def _add_topic(
    router: APIRouter,
    name: str,
    ingestion: Ingestion,
    limits: Limits,
    worker: Worker,
    metrics: Metrics,
    gate: Gate,
) -> None:
    async def append(request: Request) -> Response:
        with gate.entered():  # before the body is read: what waits takes memory
            tried = _tried(request)
            lines = await read_body(request, limits, LINES, JSON)
            try:
                receipt = await worker.run(lambda: ingestion.append(lines, tried))
            except BadLines as bad:
                metrics.refused(name, bad.count)
                told = [{"line": line, "reason": reason} for line, reason in bad.reasons.items()]
                raise Refused(422, str(bad), bad=bad.count, lines=told) from None
            except RequestConflict as other:
                raise Refused(422, str(other)) from None
            except TopicUnavailable as away:
                raise Refused(503, str(away)) from None
            except (CorruptionError, OSError):
                raise
            except LogError as error:
                raise Refused(409, str(error)) from None
        if not receipt.repeated:
            metrics.taken(name, receipt.records)
        return Json(
            {"topic": name, "records": receipt.records, "offsets": receipt.offsets, "repeated": receipt.repeated}
        )

    columns = {"type": "object", "description": ingestion.declared.schema}
    asked = {"parameters": _PARAMETERS, **body(LINES, columns, "One JSON object a line")}
    router.add_api_route(f"/topics/{name}", append, methods=["POST"], summary=f"Append to {name}", openapi_extra=asked)


def _tried(request: Request) -> RequestKey | None:
    key, sequence = request.headers.get("idempotency-key"), request.headers.get("idempotency-sequence")
    if key is None:
        if sequence is not None:
            raise Refused(400, "Idempotency-Sequence counts the requests of an Idempotency-Key; give that, too")
        return None
    if not _KEY.fullmatch(key):
        raise Refused(400, "an Idempotency-Key has 1 to 200 letters, digits or signs, and no spaces")
    if sequence is not None and not _SEQUENCE.fullmatch(sequence):
        raise Refused(400, f"an Idempotency-Sequence is a whole number from 0 on, got {sequence!r}")
    return RequestKey(key, int(sequence or 0))
