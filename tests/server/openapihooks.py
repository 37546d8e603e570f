"""Hooks for schemathesis: bodies of lines of JSON, and rules between parameters that OpenAPI has no words for."""

from __future__ import annotations

import json
import uuid
from typing import Any

import schemathesis

TOPOLOGY = "words"  # the one of test_openapi.py, which is collected where schemathesis is not installed, too


@schemathesis.serializer("application/x-ndjson")
def lines_of_json(context: schemathesis.SerializationContext, value: Any) -> bytes:
    events = value if isinstance(value, list) else [value]
    return "\n".join(map(json.dumps, events)).encode()


@schemathesis.hook
def before_call(context: schemathesis.HookContext, case: schemathesis.Case, kwargs: dict[str, Any]) -> None:
    """Changes valid requests so that the server has to accept them: each parameter alone is what the document says."""
    if case.meta is None or not case.meta.generation.mode.is_positive:
        return
    path = case.operation.path
    if path.startswith("/views/") and case.query:
        case.query = {name: value for name, value in case.query.items() if _is_compatible(name, case.query)}
    if path.startswith("/topics/") and case.headers:
        case.headers["Idempotency-Key"] = uuid.uuid4().hex  # one that was used needs the same events
    if case.path_parameters:
        case.path_parameters["name"] = TOPOLOGY


def _is_compatible(name: str, query: dict[str, Any]) -> bool:
    """A key is asked for in one form; `after` is what an answer gave."""
    key = name.partition(".")[0]
    first = next(other for other in query if other.partition(".")[0] == key)
    return name == first and name != "after"
