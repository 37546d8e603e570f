"""`/topologies`: the status of topologies, their errors and dead letters, and commands to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import Response

from headrace.model.errors import HeadraceError
from headrace.model.times import SECOND, duration
from headrace.server.http.bodies import read_json
from headrace.server.http.jsonresponse import JsonResponse, PiecesResponse
from headrace.server.http.openapi import (
    BOOLEAN,
    ERROR,
    STRING,
    TIME,
    Operation,
    Schema,
    array,
    nullable,
    parameter,
    record,
    request_body,
    response,
)
from headrace.server.http.refusals import Refusal
from headrace.server.http.routing import Application, Handler
from headrace.server.http.workerpool import WorkerPool
from headrace.server.limits import Limits
from headrace.server.routes.operations import LIMIT, limit_of
from headrace.server.service import Topologies
from headrace.views.jsonencoding import encode_time

_log = logging.getLogger("headrace.server")

_MAX_COMMANDS: Final = 16  # at once
_PATIENCE: Final = 5.0  # seconds in which most commands are done
_TIMEOUT: Final = 660.0  # seconds; longer than `Topologies.ask` waits for the cluster

_NAME: Final = parameter("name", STRING, "The name of a topology that runs", "path")
_OBJECT: Final[Schema] = {"type": "object"}
_TOPOLOGY: Final[Schema] = {
    "type": "object",
    "properties": {"name": STRING, "state": STRING, "components": array(_OBJECT), "tasks": array(_OBJECT)},
    "required": ["name", "state", "components", "tasks"],
}
_MAX_WAIT: Final = 10_000  # seconds
_MAX_TASKS: Final = 1_000  # of a bolt, as topologies have them
_MAX_BYTES: Final = 16 << 10  # of the arguments of a command
_WAIT: Final[Schema] = {
    "anyOf": [
        {"type": "string", "pattern": r"^([0-9]{1,4} ?(ms|s|seconds)|[0-9]{1,2} ?(min|minutes)|[12] ?(h|hours))$"},
        {"type": "number", "minimum": 0, "maximum": _MAX_WAIT},
        {"type": "null"},
    ],
    "description": "How long to wait for what is under way, e.g. 10s",
}
_TASKS: Final[Schema] = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": 1, "maximum": _MAX_TASKS},
    "minProperties": 1,
    "description": "Numbers of tasks, by bolt",
}
# A command, its fields, those of them that it may lack, and what it does
_COMMANDS: Final[tuple[tuple[str, dict[str, Schema], tuple[str, ...], str], ...]] = (
    ("activate", {}, (), "Let the spouts emit again"),
    ("deactivate", {}, (), "Let the spouts emit no more"),
    ("rebalance", {"tasks": _TASKS, "wait": _WAIT}, ("wait",), "Go on with other numbers of tasks"),
    ("kill", {"wait": _WAIT}, ("wait",), "End a topology once what is under way is done"),
)


class Commands:
    """Sends commands to topologies. One that takes long goes on after its client has been answered."""

    def __init__(self, topologies: Topologies, patience: float = _PATIENCE) -> None:
        self._topologies, self._patience = topologies, patience
        self._pool = WorkerPool("commands to topologies", _MAX_COMMANDS, _MAX_COMMANDS, _TIMEOUT)

    async def run(self, command: str, name: str, arguments: dict[str, Any]) -> bool:
        """Sends a command; returns whether it is done, or goes on. A HeadraceError refuses it."""
        work = self._pool.run(lambda: self._topologies.ask(command, name=name, **arguments))
        running = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({running}, timeout=self._patience)
        if done:
            running.result()
            return True
        running.add_done_callback(lambda ended: _log_failure(ended, f"{command} of {name}"))
        return False

    def close(self) -> None:
        """Accepts no more commands."""
        self._pool.close()


def _log_failure(ended: asyncio.Future[Any], command: str) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        _log.error("%s: %s", command, error)


def add_topologies(
    app: Application, topologies: Topologies, commands: Commands, limits: Limits, pool: WorkerPool
) -> None:
    """Adds the routes. Names are those of topologies that run now, so all are under one pattern."""

    async def list_topologies(request: Request) -> Response:
        return await pool.respond(lambda: PiecesResponse.of(encode_published(topologies.published()), limits))

    async def show_topology(request: Request) -> Response:
        name = request.path_params["name"]
        return await pool.respond(lambda: PiecesResponse.of(status_of(topologies, name), limits))

    def newest(field: str, read: Callable[[str, int], list[dict[str, Any]]]) -> Handler:
        async def answer(request: Request) -> Response:
            limit, name = limit_of(request), request.path_params["name"]

            def entries() -> PiecesResponse:
                status_of(topologies, name)
                newest = [{**entry, "time": encode_time(entry["time"])} for entry in reversed(read(name, limit))]
                return PiecesResponse.of({"topology": name, field: newest}, limits)

            return await pool.respond(entries)

        return answer

    published = record({"runs": BOOLEAN, "time": nullable(TIME), "topologies": array(_TOPOLOGY)})
    app.add(
        "GET",
        "/topologies",
        list_topologies,
        Operation("The topologies, task by task", {200: response(published, "Those of the cluster, if one runs")}),
    )
    app.add(
        "GET",
        "/topologies/{name}",
        show_topology,
        Operation("A topology", {200: response(_TOPOLOGY, "Its status")}, (_NAME,), refusals={404: ERROR}),
    )
    for path, field, read, summary in (
        ("errors", "errors", topologies.errors, "Errors that components reported, newest first"),
        ("deadletters", "dead_letters", topologies.dead_letters, "Tuples that were given up, newest first"),
    ):
        entries = response(record({"topology": STRING, field: array(_OBJECT)}), "The newest first")
        operation = Operation(summary, {200: entries}, (_NAME, LIMIT), refusals={404: ERROR})
        app.add("GET", f"/topologies/{{name}}/{path}", newest(field, read), operation)
    for command, fields, optional, summary in _COMMANDS:
        outcome = record({"topology": STRING, "command": {"const": command}, "done": BOOLEAN})
        operation = Operation(
            summary,
            {200: response(outcome, "It is done"), 202: response(outcome, "It goes on")},
            (_NAME,),
            request_body(record(fields, optional), "The arguments" if fields else "An empty object"),
            {404: ERROR, 409: ERROR},
        )
        handler = _command_handler(topologies, commands, limits, pool, command, fields)
        app.add("POST", f"/topologies/{{name}}/{command}", handler, operation)


def _command_handler(
    topologies: Topologies,
    commands: Commands,
    limits: Limits,
    pool: WorkerPool,
    command: str,
    fields: dict[str, Schema],
) -> Handler:
    small = replace(limits, body_bytes=min(_MAX_BYTES, limits.body_bytes))

    async def run(request: Request) -> Response:
        arguments = await read_json(request, small, *fields)
        name = request.path_params["name"]
        _check_arguments(arguments, rebalances="tasks" in fields)
        await pool.run(lambda: status_of(topologies, name))
        try:
            done = await commands.run(command, name, arguments)
        except HeadraceError as error:
            raise Refusal(409, str(error)) from None
        return JsonResponse({"topology": name, "command": command, "done": done}, 200 if done else 202)

    return run


def _check_arguments(arguments: dict[str, Any], *, rebalances: bool) -> None:
    tasks, wait = arguments.get("tasks"), arguments.get("wait")
    if rebalances and not (
        isinstance(tasks, dict)
        and tasks
        and all(type(count) is int and 1 <= count <= _MAX_TASKS for count in tasks.values())
    ):
        raise Refusal(
            400, f'tasks are numbers of tasks by bolt, such as {{"count": 4}}, from 1 to {_MAX_TASKS:,}, got {tasks!r}'
        )
    if wait is not None:
        try:
            rounded = duration(wait) / SECOND
        except (ValueError, TypeError) as error:
            raise Refusal(400, f"wait is how long to wait for what is under way: {error}") from None
        if not 0 <= (rounded if isinstance(wait, str) else wait) <= _MAX_WAIT:
            raise Refusal(
                400, f"wait is how long to wait for what is under way, from 0 to {_MAX_WAIT:,} s, got {wait!r}"
            )


def encode_published(published: dict[str, Any] | None) -> dict[str, Any]:
    """Encodes what a cluster published as the API shows it.

    >>> encode_published({"time": 0, "topologies": []})
    {'runs': True, 'time': '1970-01-01T00:00:00Z', 'topologies': []}
    >>> encode_published(None)
    {'runs': False, 'time': None, 'topologies': []}
    """
    if published is None:
        return {"runs": False, "time": None, "topologies": []}
    return {"runs": True, "time": encode_time(published["time"]), "topologies": published["topologies"]}


def status_of(topologies: Topologies, name: str) -> dict[str, Any]:
    """Returns the status of a topology; refused if none of this name runs."""
    published = topologies.published()
    if published is None:
        raise Refusal(503, "no cluster of topologies runs now; `headrace storm submit` starts one")
    for topology in published["topologies"]:
        if topology["name"] == name:
            status: dict[str, Any] = topology
            return status
    raise Refusal(404, f"no topology {name!r} is running; GET /topologies lists those that are")
