"""Server-sent events: all rows first, and then what changes."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from typing import Any

import httpx

from headrace.server import Limits
from headrace.server.http.refusals import Refusal
from headrace.server.http.workerpool import WorkerPool
from headrace.server.routes.serversentevents import EventStreams, changes_since
from headrace.views.query.queries import Query
from headrace.views.stores.store import StoredView
from tests.server.conftest import feed, on_both, partial_row, publish


def events(response: httpx.Response) -> Iterator[tuple[str, Any]]:
    lines = response.iter_lines()
    for line in lines:
        if line.startswith("event: "):
            yield line.removeprefix("event: "), json.loads(next(lines).removeprefix("data: "))
        elif line.startswith(":"):
            yield "comment", line


def until_progress(stream: Iterator[tuple[str, Any]]) -> tuple[list[tuple[str, str, int | None]], Any]:
    """Reads the changes up to the next progress event, and returns both."""
    rows = []
    for name, data in stream:
        if name == "progress":
            return rows, data
        rows.append((name, data["key"]["url"], data.get("values", {}).get("hits")))
    raise AssertionError("the stream ended")


@on_both
def test_a_row_that_changes_is_an_event(client: httpx.Client, view: StoredView) -> None:
    feed(view, partial_row("a", 0, "x"), partial_row("b", 0, "x"))
    with client.stream("GET", "/views/visitors/changes") as response:
        assert response.headers["content-type"].startswith("text/event-stream")
        stream = events(response)
        rows, progress = until_progress(stream)
        assert rows == [("row", "a", 1), ("row", "b", 1)]
        assert (progress["reached"], progress["version"], progress["next"]) == ({"0": 2}, None, None)
        feed(view, partial_row("b", 0, "y", "z"))
        assert until_progress(stream)[0] == [("row", "b", 3)]
        publish(view, partial_row("a", 0, "x"), partial_row("b", 0, "x", "y", "z"))
        rows, progress = until_progress(stream)
        assert (rows, progress["version"]) == ([], 1)  # the same answer, from elsewhere
        publish(view, partial_row("b", 0, "x"))
        assert until_progress(stream)[0] == [("gone", "a", None), ("row", "b", 1)]
        view.rollback()
        assert until_progress(stream)[0] == [("row", "a", 1), ("row", "b", 3)]


def test_a_stream_that_has_begun_waits_when_too_much_is_under_way(view: StoredView) -> None:
    class Busy(WorkerPool):
        calls = 0

        async def _run(self, work: Any) -> Any:
            self.calls += 1
            if self.calls % 2:
                raise Refusal(429, "too much")
            return work(), ExitStack()

    async def listened() -> list[bytes]:
        streams = EventStreams(Limits(poll=0), Busy("questions", 1, 1, 1))
        stream = streams._events(view, Query(), changes_since({}, view.answer(Query()), 1_000), ExitStack())
        first = await anext(stream)
        feed(view, partial_row("a", 0, "x"))
        return [first, await anext(stream)]

    assert [re.findall(rb"event: (\w+)", piece) for piece in asyncio.run(listened())] == [
        [b"progress"],
        [b"row", b"progress"],
    ]


def test_of_a_query_only(client: httpx.Client, view: StoredView) -> None:
    feed(view, partial_row("a", 0, "x"), partial_row("b", 0, "x", "y"))
    with client.stream("GET", "/views/visitors/changes?top=hits:1") as response:
        stream = events(response)
        assert until_progress(stream)[0] == [("row", "b", 2)]
        feed(view, partial_row("a", 0, "y", "z"))
        assert until_progress(stream)[0] == [("gone", "b", None), ("row", "a", 3)]


def test_there_are_signs_of_life(started: Callable[..., httpx.Client]) -> None:
    client = started(limits=Limits(poll=0.001, heartbeat=0.005))
    with client.stream("GET", "/views/visitors/changes") as response:
        stream = events(response)
        assert [name for name, _ in (next(stream), next(stream), next(stream))] == ["progress", "comment", "comment"]


def test_so_many_may_listen(started: Callable[..., httpx.Client]) -> None:
    client = started(limits=Limits(poll=0.001, heartbeat=0.005, listeners=1))
    with client.stream("GET", "/views/visitors/changes") as first:
        stream = events(first)  # kept open: httpx ends a stream that nobody reads on
        assert next(stream)[0] == "progress"
        refused = client.get("/views/visitors/changes")
        assert (refused.status_code, refused.headers["retry-after"]) == (429, "1")
    status = 429
    while status == 429:  # the server notices that the first has gone when it next writes to it
        with client.stream("GET", "/views/visitors/changes") as again:
            status = again.status_code
    assert status == 200


def test_a_question_without_answer_is_refused_before_the_stream_begins(client: httpx.Client) -> None:
    assert client.get("/views/visitors/changes?top=likes:1").status_code == 400
