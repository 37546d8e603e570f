"""`/topologies`: how far topologies are, what went wrong in them, and commands to them."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any, Final

from fastapi import APIRouter, Request
from starlette.responses import Response

from headrace.dialects.storm.api.topology import TopologyError
from headrace.model.times import duration
from headrace.server.http.bodies import JSON, read_json
from headrace.server.http.jsonresponse import Json
from headrace.server.http.refusals import Refused
from headrace.server.http.workerpool import Worker
from headrace.server.limits import Limits
from headrace.server.routes.operations import LIMIT, limit_of
from headrace.server.routes.viewparameters import body
from headrace.server.service import Topologies
from headrace.views.jsonencoding import encode_time

_log = logging.getLogger("headrace.server")

_AT_ONCE: Final = 16  # commands under way
_PATIENCE: Final = 5.0  # seconds in which most commands are done
_LONGEST: Final = 660.0  # seconds: longer than the cluster is waited for

_NAME: Final = {"name": "name", "in": "path", "required": True, "schema": {"type": "string"}}
_WAIT: Final = {"type": "string", "description": "How long to wait for what is under way, e.g. 10s"}
_TASKS: Final = {
    "type": "object",
    "additionalProperties": {"type": "integer", "minimum": 1},
    "description": "Numbers of tasks, by bolt",
}
# The command, what it may be given, and what it does
_COMMANDS: Final[tuple[tuple[str, dict[str, Any], str], ...]] = (
    ("activate", {}, "Let the spouts emit again"),
    ("deactivate", {}, "Let the spouts emit no more"),
    ("rebalance", {"tasks": _TASKS, "wait": _WAIT}, "Go on with other numbers of tasks"),
    ("kill", {"wait": _WAIT}, "End a topology once what is under way is done"),
)


class Commands:
    """Commands to topologies. One that waits for what is under way goes on when nobody waits for it any more."""

    def __init__(self, topologies: Topologies, patience: float = _PATIENCE) -> None:
        self._topologies, self._patience = topologies, patience
        self._worker = Worker("commands to topologies", _AT_ONCE, _AT_ONCE, _LONGEST)

    async def run(self, command: str, name: str, arguments: dict[str, Any]) -> bool:
        """Has something done; tells whether it is, or goes on. Refused with a TopologyError."""
        work = self._worker.run(lambda: self._topologies.ask(command, name=name, **arguments))
        doing = asyncio.ensure_future(work)
        done, _ = await asyncio.wait({doing}, timeout=self._patience)
        if done:
            doing.result()
            return True
        doing.add_done_callback(lambda ended: _tell_log(ended, f"{command} of {name}"))
        return False

    def close(self) -> None:
        """Takes no more."""
        self._worker.close()


def _tell_log(ended: asyncio.Future[Any], what: str) -> None:
    if not ended.cancelled() and (error := ended.exception()) is not None:
        _log.error("%s: %s", what, error)


def add_topologies(
    router: APIRouter, topologies: Topologies, commands: Commands, limits: Limits, worker: Worker
) -> None:
    """The routes. Names are those of topologies that run now, so all are under one pattern."""

    async def listed(request: Request) -> Response:
        return Json(told(await worker.run(topologies.published)))

    async def one(request: Request) -> Response:
        return Json(await worker.run(lambda: status_of(topologies, request.path_params["name"])))

    def newest(kind: str, read: Callable[[str, int], list[dict[str, Any]]]) -> Callable[[Request], Awaitable[Response]]:
        async def answer(request: Request) -> Response:
            limit, name = limit_of(request), request.path_params["name"]

            def found() -> list[dict[str, Any]]:
                status_of(topologies, name)
                return [{**each, "time": encode_time(each["time"])} for each in reversed(read(name, limit))]

            return Json({"topology": name, kind: await worker.run(found)})

        return answer

    router.add_api_route("/topologies", listed, methods=["GET"], summary="The topologies, task by task")
    router.add_api_route(
        "/topologies/{name}", one, methods=["GET"], summary="A topology", openapi_extra={"parameters": [_NAME]}
    )
    for path, kind, read, text in (
        ("errors", "errors", topologies.errors, "Errors that components reported, newest first"),
        ("deadletters", "dead_letters", topologies.dead_letters, "Tuples that were given up, newest first"),
    ):
        router.add_api_route(
            f"/topologies/{{name}}/{path}",
            newest(kind, read),
            methods=["GET"],
            summary=text,
            openapi_extra={"parameters": [_NAME, LIMIT]},
        )
    for command, fields, text in _COMMANDS:
        _add_command(router, topologies, commands, limits, worker, command, fields, text)


def _add_command(
    router: APIRouter,
    topologies: Topologies,
    commands: Commands,
    limits: Limits,
    worker: Worker,
    command: str,
    fields: dict[str, Any],
    text: str,
) -> None:
    async def run(request: Request) -> Response:
        given = await read_json(request, limits, *fields)
        name = request.path_params["name"]
        _check(given, rebalances="tasks" in fields)
        await worker.run(lambda: status_of(topologies, name))
        try:
            done = await commands.run(command, name, given)
        except TopologyError as error:
            raise Refused(409, str(error)) from None
        return Json({"topology": name, "command": command, "done": done}, 200 if done else 202)

    schema = {"type": "object", "properties": fields, "additionalProperties": False}
    given = body(JSON, schema, "What the command is given" if fields else "An empty object")
    router.add_api_route(
        f"/topologies/{{name}}/{command}",
        run,
        methods=["POST"],
        summary=text,
        openapi_extra={"parameters": [_NAME], **given},
    )


def _check(given: dict[str, Any], *, rebalances: bool) -> None:
    tasks, wait = given.get("tasks"), given.get("wait")
    if rebalances and not (
        isinstance(tasks, dict) and tasks and all(type(each) is int and each > 0 for each in tasks.values())
    ):
        raise Refused(400, f'tasks are numbers of tasks by bolt, such as {{"count": 4}}, got {tasks!r}')
    if wait is not None:
        try:
            duration(wait)
        except (ValueError, TypeError) as error:
            raise Refused(400, f"wait is how long to wait for what is under way: {error}") from None


def told(published: dict[str, Any] | None) -> dict[str, Any]:
    """What a cluster published, as the API tells it.

    >>> told({"time": 0, "topologies": []}), told(None)
    ({'runs': True, 'time': '1970-01-01T00:00:00Z', 'topologies': []}, {'runs': False, 'time': None, 'topologies': []})
    """
    if published is None:
        return {"runs": False, "time": None, "topologies": []}
    return {"runs": True, "time": encode_time(published["time"]), "topologies": published["topologies"]}


def status_of(topologies: Topologies, name: str) -> dict[str, Any]:
    """The status of a topology; refused if there is none of this name."""
    published = topologies.published()
    if published is None:
        raise Refused(503, "no cluster of topologies runs now; `headrace storm submit` starts one")
    for each in published["topologies"]:
        if each["name"] == name:
            found: dict[str, Any] = each
            return found
    raise Refused(404, f"no topology {name!r} is running; GET /topologies tells which are")
