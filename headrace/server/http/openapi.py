"""The OpenAPI document: operations with their parameters, bodies and every response, written as plain dictionaries."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from headrace.model.times import MAX_TIME, SECOND
from headrace.server.http.bodies import JSON

Schema = dict[str, Any]

STRING: Final[Schema] = {"type": "string"}
BOOLEAN: Final[Schema] = {"type": "boolean"}
COUNT: Final[Schema] = {"type": "integer", "minimum": 0}
TIME: Final[Schema] = {"type": "string", "format": "date-time"}
ANYTHING: Final[Schema] = {}
MAX_SECONDS: Final = MAX_TIME // SECOND
"""The largest number of seconds that is a time or a duration."""

_PLAIN: Final = "text/plain"  # what the HTTP server itself answers, before the application is asked
_ERROR: Final[Schema] = {
    "type": "object",
    "properties": {"reason": {"type": "string", "description": "Why the request was refused, and what to do"}},
    "required": ["reason"],
    "additionalProperties": False,
}
ERROR: Final[Schema] = {"$ref": "#/components/schemas/Error"}
"""The body of a refusal: its reason."""

_DESCRIPTIONS: Final[Mapping[int, str]] = {
    400: "The request cannot be read, or asks for what there is not",
    401: "The request has no valid token",
    403: "The token does not allow this, or the request comes from a page of another site",
    404: "There is nothing of this name",
    408: "The body took too long to arrive",
    409: "This cannot be done now",
    413: "The body is too large",
    415: "The body is of another type",
    421: "A server without tokens answers requests for localhost and loopback addresses only",
    422: "The body can be read, but holds what cannot be taken",
    429: "Too many requests are under way; ask again",
    500: "The server failed; its log says how",
    503: "The store or the log does not answer now, or the answer took too long",
}
_BY_HTTP_SERVER: Final = (400, 503)


@dataclass(frozen=True)
class Operation:
    """The description of an operation, which is one method of one path.

    `responses` are those of success, by status. `refusals` are further statuses and the schemas of their bodies. Those
    that any operation can answer are added by `document`.
    """

    summary: str
    responses: Mapping[int, Schema]
    parameters: tuple[Schema, ...] = ()
    body: Schema | None = None
    refusals: Mapping[int, Schema] = field(default_factory=dict)


def response(schema: Schema, description: str, media_type: str = JSON) -> Schema:
    """Describes a response.

    >>> response(STRING, "A name")
    {'description': 'A name', 'content': {'application/json': {'schema': {'type': 'string'}}}}
    """
    return {"description": description, "content": {media_type: {"schema": schema}}}


def event_stream(event: Schema, description: str) -> Schema:
    """Describes a response of server-sent events, each of which is like `event`."""
    return {"description": description, "content": {"text/event-stream": {"itemSchema": event}}}


def request_body(schema: Schema, description: str, *media_types: str) -> Schema:
    """Describes the body of a request, which is JSON unless other media types are given."""
    content = {media_type: {"schema": schema} for media_type in media_types or (JSON,)}
    return {"required": True, "description": description, "content": content}


def parameter(name: str, schema: Schema, description: str, place: str = "query") -> Schema:
    """Describes a parameter in the query string, or in another place.

    >>> parameter("limit", COUNT, "Rows of a page")["in"]
    'query'
    """
    described = {"name": name, "in": place, "schema": schema, "description": description}
    return described | ({"required": True} if place == "path" else {})


def record(fields: Mapping[str, Schema], optional: Iterable[str] = ()) -> Schema:
    """Describes an object with these fields and no others; it may lack those that are optional.

    >>> record({"name": STRING, "note": STRING}, optional=["note"])["required"]
    ['name']
    """
    required = [name for name in fields if name not in set(optional)]
    return {"type": "object", "properties": dict(fields), "required": required, "additionalProperties": False}


def mapping(schema: Schema) -> Schema:
    """Describes an object with any names, whose values are all of one kind."""
    return {"type": "object", "additionalProperties": schema}


def json_text(schema: Schema) -> Schema:
    """Describes a string that is JSON of such a value."""
    return {"type": "string", "contentMediaType": JSON, "contentSchema": schema}


def array(schema: Schema) -> Schema:
    """Describes an array."""
    return {"type": "array", "items": schema}


def nullable(schema: Schema) -> Schema:
    """Describes a value that may be null.

    >>> nullable(TIME)
    {'type': ['string', 'null'], 'format': 'date-time'}
    """
    if "anyOf" in schema:
        return {"anyOf": [*schema["anyOf"], {"type": "null"}]}
    return {**schema, "type": [schema["type"], "null"]}


def document(
    title: str,
    operations: Mapping[tuple[str, str], Operation],
    required_scope: Callable[[str, str], str | None],
    *,
    has_tokens: bool,
) -> Schema:
    """Writes the document. `required_scope` returns the scope that a method and path need; None if they need no token.

    >>> ping = Operation("Ping", {200: response(STRING, "Pong")})
    >>> found = document("Example", {("GET", "/ping"): ping}, lambda method, path: None, has_tokens=False)
    >>> list(found["paths"]["/ping"]["get"]["responses"])
    ['200', '400', '421', '429', '500', '503']
    """
    paths: dict[str, Schema] = {}
    for (method, path), operation in operations.items():
        scope = required_scope(method, path) if has_tokens else None
        paths.setdefault(path, {})[method.lower()] = _operation(method, path, operation, scope, has_tokens)
    return {
        "openapi": "3.2.0",
        "info": {"title": title, "version": "1"},
        "paths": paths,
        "components": {
            "schemas": {"Error": _ERROR},
            "securitySchemes": {"token": {"type": "http", "scheme": "bearer"}},
        },
    }


def _operation(method: str, path: str, operation: Operation, scope: str | None, has_tokens: bool) -> Schema:
    statuses = {400, 429, 500, 503, *operation.refusals}
    statuses |= {401, 403} if scope is not None else set()
    statuses |= set() if has_tokens else {421}
    statuses |= {403} if method != "GET" else set()
    statuses |= {408, 413, 415} if operation.body is not None else set()
    statuses -= operation.responses.keys()
    refusals = {status: _refusal(status, operation.refusals.get(status)) for status in statuses}
    described: Schema = {
        "summary": operation.summary,
        "operationId": f"{method.lower()}{path.replace('/', '_').replace('{', '').replace('}', '')}",
        "responses": {
            str(status): described for status, described in sorted({**operation.responses, **refusals}.items())
        },
    }
    if operation.parameters:
        described["parameters"] = list(operation.parameters)
    if operation.body is not None:
        described["requestBody"] = operation.body
    if scope is not None:
        described["security"] = [{"token": []}]
        described["description"] = f"Needs a token for {scope}."
    return described


def _refusal(status: int, schema: Schema | None) -> Schema:
    described = response(schema or ERROR, _DESCRIPTIONS[status])
    if status in _BY_HTTP_SERVER:
        described["content"][_PLAIN] = {"schema": STRING}
    return described
