"""Bodies of requests: numbers as JSON has them, and fields that a request may not have."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from starlette.requests import Request

from headrace.server import Limits
from headrace.server.http.bodies import read_json
from headrace.server.http.refusals import Refusal


def parse(body: bytes, *fields: str) -> dict[str, Any]:
    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": body, "more_body": False}

    scope = {"type": "http", "method": "POST", "headers": [(b"content-type", b"application/json")]}
    return asyncio.run(read_json(Request(scope, receive), Limits(), *fields))


@pytest.mark.parametrize(
    ("text", "value"), [("3.0", 3), ("3e2", 300), ("-0.0", 0), ("2.5", 2.5), ("1e999", float("inf"))]
)
def test_json_has_one_kind_of_numbers(text: str, value: float) -> None:
    read = parse(f'{{"n": {text}}}'.encode(), "n")["n"]
    assert (read, type(read)) == (value, type(value))


def test_an_empty_body_is_an_empty_object() -> None:
    assert parse(b" ") == {}


@pytest.mark.parametrize("body", [b"[]", b"{", b'{"m": 1}', b"[" * 100_000])
def test_what_is_no_object_with_these_fields(body: bytes) -> None:
    with pytest.raises(Refusal):
        parse(body, "n")
