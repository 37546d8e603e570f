"""`POST /topics/{name}`: appends events to a topic, as lines of JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from starlette.requests import Request
from starlette.responses import Response

from headrace.log import CorruptionError, LogError
from headrace.server.http.bodies import JSON, NDJSON, read_body
from headrace.server.http.gate import Gate
from headrace.server.http.jsonresponse import JsonResponse
from headrace.server.http.openapi import (
    BOOLEAN,
    COUNT,
    ERROR,
    MAX_SECONDS,
    STRING,
    TIME,
    Operation,
    Schema,
    array,
    mapping,
    nullable,
    parameter,
    record,
    response,
)
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application
from headrace.server.http.workerpool import WorkerPool
from headrace.server.ingestion import MAX_BAD, BadLines, Ingestion
from headrace.server.limits import Limits
from headrace.server.routes.metrics import Metrics
from headrace.server.security.guard import GRANT
from headrace.views.declare.declarations import Topic
from headrace.views.feeds import RequestConflict, RequestKey, TopicUnavailable

_SMALL: Final = 256 << 10  # bytes of a body that takes milliseconds
_KEY: Final = re.compile(r"[\x21-\x7e]{1,200}")
_SEQUENCE: Final = re.compile(r"\d{1,18}", re.ASCII)
_PARAMETERS: Final = (
    parameter(
        "Idempotency-Key",
        {"type": "string", "pattern": "^[!-~]{1,200}$"},
        "A name for this request: sent again under the same, with the same token, it is appended once",
        "header",
    ),
    parameter(
        "Idempotency-Sequence",
        {"type": "integer", "minimum": 0, "maximum": 10**18 - 1},
        "For clients that send many requests under one key: their number, which grows",
        "header",
    ),
)
_INT: Final[Schema] = {"type": "integer", "minimum": -(1 << 31), "maximum": (1 << 31) - 1}
_COLUMNS: Final[Mapping[str, Schema]] = {
    "string": STRING,
    "boolean": BOOLEAN,
    "int": _INT,
    "bigint": {"type": "integer", "minimum": -(1 << 63), "maximum": (1 << 63) - 1},
    "float": {"type": "number"},
    "double": {"type": "number"},
    "date": {"anyOf": [{"type": "string", "format": "date"}, {**_INT, "description": "Days since 1970"}]},
    "timestamp": {
        "anyOf": [
            TIME,
            {
                "type": "number",
                "minimum": -MAX_SECONDS,
                "maximum": MAX_SECONDS,
                "description": "Seconds since 1970",
            },
        ]
    },
}


def add_topics(
    app: Application,
    topics: Mapping[str, Ingestion],
    limits: Limits,
    pool: WorkerPool,
    bulk: WorkerPool,
    metrics: Metrics,
) -> None:
    """Adds a route for each topic. Large bodies are appended in the pool `bulk`, so that small ones need not wait."""
    gate = Gate(limits.posts, "requests to topics")
    for name, ingestion in topics.items():
        _add_topic(app, name, ingestion, limits, pool, bulk, metrics, gate)


def _add_topic(
    app: Application,
    name: str,
    ingestion: Ingestion,
    limits: Limits,
    pool: WorkerPool,
    bulk: WorkerPool,
    metrics: Metrics,
    gate: Gate,
) -> None:
    async def append(request: Request) -> Response:
        with gate.entered():  # before the body is read: bodies that wait take memory
            attempt = _attempt(request)
            lines = await read_body(request, limits, NDJSON, JSON)
            if lines.count(b"\n") + (not lines.endswith(b"\n")) > limits.body_lines:
                raise Refusal(413, f"a body has at most {limits.body_lines:,} lines; send it in parts")
            try:
                chosen = pool if len(lines) <= _SMALL else bulk
                receipt = await chosen.run(lambda: ingestion.append(lines, attempt))
            except BadLines as bad:
                metrics.count_bad_lines(name, bad.count)
                reasons = [{"line": line, "reason": reason} for line, reason in bad.reasons.items()]
                raise Refusal(422, str(bad), bad=bad.count, lines=reasons) from None
            except RequestConflict as other:
                raise Refusal(422, str(other)) from None
            except TopicUnavailable as away:
                raise Refusal(503, str(away)) from None
            except (CorruptionError, OSError):
                raise
            except LogError as error:
                raise Refusal(409, str(error)) from None
        if not receipt.repeated:
            metrics.count_records(name, receipt.records)
        return JsonResponse(
            {"topic": name, "records": receipt.records, "offsets": receipt.offsets, "repeated": receipt.repeated}
        )

    receipt = record({"topic": {"const": name}, "records": COUNT, "offsets": mapping(COUNT), "repeated": BOOLEAN})
    bad_lines = record(
        {
            "reason": STRING,
            "bad": {
                **COUNT,
                "maximum": MAX_BAD,
                "description": f"The number of bad lines; the search ends with {MAX_BAD}, and there may be more",
            },
            "lines": array(record({"line": COUNT, "reason": STRING})),
        },
        optional=["bad", "lines"],
    )
    operation = Operation(
        f"Append to {name}",
        {200: response(receipt, "All events are in the log, or were there before")},
        _PARAMETERS,
        _body(ingestion.declared),
        {409: ERROR, 422: bad_lines},
    )
    app.add("POST", f"/topics/{name}", append, operation)


def _body(topic: Topic) -> Schema:
    """Describes the body: an event a line. One line alone is JSON, too."""
    columns = {name: nullable(_COLUMNS.get(kind, STRING)) for name, kind in topic.columns.items()}
    if topic.event_time is not None:
        columns[topic.event_time] = _COLUMNS[topic.columns[topic.event_time]]
    event = record(columns, optional=[name for name in columns if name != topic.event_time])
    return {
        "required": True,
        "description": "One JSON object a line",
        "content": {NDJSON: {"schema": array(event)}, JSON: {"schema": event}},
    }


def _attempt(request: Request) -> RequestKey | None:
    key, sequence = request.headers.get("idempotency-key"), request.headers.get("idempotency-sequence")
    if key is None:
        if sequence is not None:
            raise Refusal(400, "Idempotency-Sequence counts the requests of an Idempotency-Key; give that, too")
        return None
    if not _KEY.fullmatch(key):
        raise Refusal(400, "an Idempotency-Key has 1 to 200 letters, digits or signs, and no spaces")
    if sequence is not None and not _SEQUENCE.fullmatch(sequence):
        raise Refusal(400, f"an Idempotency-Sequence is a whole number from 0 on, got {sequence!r}")
    return RequestKey(key, int(sequence or 0), request.scope[GRANT].owner)
