"""Bodies of requests: read within limits of size and time, and of the types that no page of another site can send."""

from __future__ import annotations

import asyncio
import json
from typing import Any, Final

from starlette.requests import Request

from headrace.server.http.refusals import Refused
from headrace.server.limits import Limits

JSON: Final = "application/json"
LINES: Final = "application/x-ndjson"


async def read_body(request: Request, limits: Limits, *types: str) -> bytes:
    """The body of a request that says it is of one of these types."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind not in types:
        # Others come from forms, which any site can send without asking.
        raise Refused(415, f"Content-Type must be {' or '.join(types)}, got {kind or 'none'!r}")
    if "content-encoding" in request.headers:
        raise Refused(415, "a body is sent as it is; leave out Content-Encoding")
    large = Refused(413, f"a body has at most {limits.body_bytes:,} bytes; send it in parts")
    if int(request.headers.get("content-length", "0")) > limits.body_bytes:
        raise large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > limits.body_bytes:
                    raise large
                chunks.append(chunk)
    except TimeoutError:
        raise Refused(
            408, f"the body took longer than {limits.body_seconds:g} seconds", headers={"Connection": "close"}
        ) from None
    return b"".join(chunks)


async def read_json(request: Request, limits: Limits, *fields: str) -> dict[str, Any]:
    """The JSON object of a body, with no other fields than these."""
    body = await read_body(request, limits, JSON)
    try:
        found = json.loads(body) if body.strip() else {}
    except (ValueError, RecursionError):
        raise Refused(400, "the body is not JSON, or nested too deeply") from None
    if not isinstance(found, dict) or not found.keys() <= set(fields):
        raise Refused(400, f"the body is a JSON object with no other fields than {', '.join(fields)}")
    return found
