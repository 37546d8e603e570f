"""Reads request bodies, within limits of size and time, and only of types that no page of another site can send."""

from __future__ import annotations

import asyncio
import json
import re
from typing import Any, Final, Protocol

from starlette.requests import Request

from headrace.server.http.refusals import Refusal

JSON: Final = "application/json"
NDJSON: Final = "application/x-ndjson"
_MAX_JSON: Final = 1 << 20  # bytes of a JSON object; it is parsed on the event loop
_CHARSET: Final = re.compile(r';[ \t]*charset="?([^;"]*)', re.IGNORECASE)
_HALF_PAIR: Final = re.compile(r"\\u[dD][89a-fA-F]")  # or half of one that is whole


class BodyLimits(Protocol):
    """The limits of a request body: its size, and how long it may take to arrive."""

    @property
    def body_bytes(self) -> int:
        """The size limit."""

    @property
    def body_seconds(self) -> float:
        """The time limit."""


async def read_body(request: Request, limits: BodyLimits, *types: str, at_most: int | None = None) -> bytes:
    """Reads the body of a request whose Content-Type is one of these, of `at_most` bytes if that is less."""
    header = request.headers.get("content-type", "")
    content_type = header.partition(";")[0].strip().lower()
    if content_type not in types:
        # A form of any site can send the other types without asking.
        raise Refusal(415, f"Content-Type must be {' or '.join(types)}, got {content_type or 'none'!r}")
    charset = _CHARSET.search(header)
    if charset is not None and charset[1].strip().lower() not in ("utf-8", "utf8", "us-ascii"):
        raise Refusal(415, f"a body is sent in UTF-8, got charset={charset[1]!r}")
    if "content-encoding" in request.headers:
        raise Refusal(415, "a body is sent as it is; leave out Content-Encoding")
    most = limits.body_bytes if at_most is None else min(at_most, limits.body_bytes)
    too_large = Refusal(413, f"a body has at most {most:,} bytes here; send less at once")
    if int(request.headers.get("content-length", "0")) > most:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    try:
        async with asyncio.timeout(limits.body_seconds):
            async for chunk in request.stream():
                size += len(chunk)
                if size > most:
                    raise too_large
                chunks.append(chunk)
    except TimeoutError:
        raise Refusal(
            408, f"the body took longer than {limits.body_seconds:g} seconds", headers={"Connection": "close"}
        ) from None
    return b"".join(chunks)


async def read_json(request: Request, limits: BodyLimits, *fields: str) -> dict[str, Any]:
    """Reads a JSON object that has no other fields than these. An empty body is an empty object."""
    body = await read_body(request, limits, JSON, at_most=_MAX_JSON)
    try:
        text = body.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise Refusal(400, "the body is not UTF-8") from None
    try:
        document = _DECODER.decode(text) if text.strip() else {}
        if _HALF_PAIR.search(text):
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        raise Refusal(
            400, "a text of the body has half of a surrogate pair, such as \\ud800, which is no character"
        ) from None
    except (ValueError, RecursionError):
        raise Refusal(400, "the body is not JSON, or nested too deeply") from None
    if not isinstance(document, dict) or not document.keys() <= set(fields):
        allowed = f"no other fields than {', '.join(fields)}" if fields else "no fields"
        raise Refusal(400, f"the body is a JSON object with {allowed}")
    return document


def _number(text: str) -> int | float:
    """Reads a number with a fraction or an exponent: JSON has one kind of numbers, and 3.0 is a whole one."""
    value = float(text)
    return int(value) if value.is_integer() else value


_DECODER: Final = json.JSONDecoder(parse_float=_number)
