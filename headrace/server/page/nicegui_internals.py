"""All of NiceGUI's internals that the page relies on. docs/upgrading.md lists them; each has a test with its name.

NiceGUI keeps its clients in the process, on one event loop; so a process has one server with a page at a time.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, Final
from urllib.parse import parse_qsl, urlencode

from engineio.packet import MESSAGE
from engineio.packet import Packet as EnginePacket
from fastapi import FastAPI
from nicegui import Client, __version__, app, core, ui
from socketio.packet import EVENT, Packet
from starlette.middleware.gzip import GZipMiddleware
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from headrace.server.http.quietsockets import drop_below

STATIC_PREFIX: Final = "/_nicegui/"
"""Where NiceGUI serves its scripts, styles and fonts."""

STATIC_PATH: Final = re.compile(re.escape(f"{STATIC_PREFIX}{__version__}/") + "(static|components|esm)/.+")
"""The paths of files below it. Others are for uploads, which the page has not, and for what programs make."""

SOCKET_PREFIX: Final = "/_nicegui_ws/"
"""Where an open page has its connection."""

SOCKET_PATH: Final = f"{SOCKET_PREFIX}socket.io/"
"""The one path below it."""

_UUID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SOCKET_QUERY: Final = {
    "EIO": re.compile("4"),
    "transport": re.compile("websocket"),
    "client_id": _UUID,
    "document_id": _UUID,
    "tab_id": _UUID,
    "next_message_id": re.compile(r"\d{1,15}"),
}

UNKNOWN_CLIENT: Final = "00000000-0000-0000-0000-000000000000"
"""An id that no client has: a page that connects with it is told to load anew."""

REFUSED: Final = "44"
"""The beginning of the message that tells a page so."""

JS_OPTION: Final = ":"
"""NiceGUI evaluates the option of a chart as JavaScript if its key begins with this."""

THEME_SWITCH: Final = """(dark) => {
  const follows = dark === matchMedia("(prefers-color-scheme: dark)").matches;
  setDark(follows ? null : dark);
  return follows;
}"""
"""JavaScript that sets the theme with NiceGUI's own function, and returns whether that is the system's theme."""

SOCKET: Final = "window.socket"
"""JavaScript for the page's connection, a client of Socket.IO."""

IS_DARK: Final = "Quasar.Dark.isActive"
"""JavaScript that says whether the page is dark."""


def count_clients() -> int:
    """Returns how many pages are open in browsers."""
    return len(Client.instances)


def client_scopes() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Iterates over the clients of open pages, oldest first: the id of each, and the scope of its request."""
    for client in list(Client.instances.values()):
        yield client.id, client.request.scope


def client_scope(client_id: str) -> Mapping[str, Any] | None:
    """Returns the scope of the request that loaded a client's page; None if there is no such client."""
    client = Client.instances.get(client_id)
    return None if client is None else client.request.scope


def is_connected(client_id: str) -> bool:
    """Tells whether a page has a connection."""
    return Client.instances[client_id].has_socket_connection


def is_expected(client_id: str) -> bool:
    """Tells whether a page had a connection and may come back with another: NiceGUI forgets it if it does not."""
    return bool(Client.instances[client_id]._delete_tasks)


def age(client_id: str, now: float) -> float:
    """Returns how many seconds ago a page was loaded. `now` is the time in seconds since 1970."""
    return now - Client.instances[client_id].created


def delete_client(client_id: str) -> None:
    """Forgets an open page, if there is one."""
    client = Client.instances.get(client_id)
    if client is not None:
        client.delete()


def delete_clients() -> None:
    """Forgets all pages that are open."""
    for client_id, _ in client_scopes():
        delete_client(client_id)


def socket_query(query: bytes) -> dict[str, str] | None:
    """Reads the query of a page's connection; None if it is not one that a page sends.

    >>> socket_query(b"EIO=4&transport=polling")
    """
    pairs = dict(parse_qsl(query.decode("latin-1")))
    if all(form.fullmatch(pairs.get(name, "")) for name, form in _SOCKET_QUERY.items()):
        return {name: pairs[name] for name in _SOCKET_QUERY}
    return None


def write_socket_query(query: Mapping[str, str]) -> bytes:
    """Writes the query of a connection that belongs to its page from the start."""
    return urlencode({**query, "implicit_handshake": "true"}).encode()


def open_message(path: str) -> str:
    """Returns the message that makes a page go elsewhere.

    >>> open_message("/login")
    '42["open",{"path":"/login","new_tab":false}]'
    """
    message = Packet(EVENT, data=["open", {"path": path, "new_tab": False}]).encode()
    return str(EnginePacket(MESSAGE, data=message).encode())


def unsent_messages(name: str, value: object) -> int:
    """Returns how many messages wait to be sent over the connection whose scope has this value under this name."""
    for engine_id, environ in core.sio.environ.items():
        if environ["asgi.scope"].get(name) is value and engine_id in core.sio.eio.sockets:
            return int(core.sio.eio.sockets[engine_id].queue.qsize())
    return 0


def is_started() -> bool:
    """Tells whether a server with a page runs in this process."""
    return not app.is_stopped


@cache
def shell(build: Callable[[Request], None], headers: Callable[[str], Mapping[str, str]], favicon: str) -> FastAPI:
    """Makes NiceGUI an application of its own, whose page at / is what `build` builds.

    That can be done only once in a process. `build` gets a request with the same scope as the application was called
    with, so that what is in it tells pages of several servers apart. `headers` gets the HTML and gives its headers.
    """

    @ui.page("/", title="Headrace", favicon=favicon, dark=None, language="en-US")
    def page(request: Request) -> Response:
        build(request)
        response = ui.context.client.build_response(request)
        response.headers.update(headers(bytes(response.body).decode()))
        return response

    # NiceGUI would answer both with pages, each with a client of its own.
    app.add_exception_handler(404, _not_found)
    app.add_exception_handler(Exception, _failed)
    for name, level in (("nicegui", logging.WARNING), ("engineio.server", logging.ERROR)):
        drop_below(logging.getLogger(name), level)  # the ids of clients are in what these say
    drop_below(logging.getLogger("socketio.server"), logging.ERROR)
    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(
        application,
        favicon=favicon,
        reconnect_timeout=30,  # seconds; a third of it is how long a busy browser may be silent
        message_history_length=30,
        binding_refresh_interval=None,
        gzip_middleware_factory=lambda inner: GZipMiddleware(inner, compresslevel=1),  # a tenth of the time of the best
        tailwind=False,
        show_welcome_message=False,
    )
    return application


def _not_found(request: Request, error: Exception) -> Response:
    return JSONResponse({"reason": "Not Found"}, 404)


def _failed(request: Request, error: Exception) -> Response:
    return JSONResponse({"reason": "this failed inside the server; its log says how"}, 500)


def lifespan(application: FastAPI) -> AbstractAsyncContextManager[Any]:
    """Starts NiceGUI for the duration of a block: `run_with` has put that into the lifespan of its application."""
    return application.router.lifespan_context(application)


async def wait_for_dialog(dialog: ui.dialog) -> object:
    """Waits for what is submitted in a dialog, and removes it; None if it is cancelled."""
    answer: object = await dialog
    if not dialog.is_deleted:  # somebody may have closed the page
        dialog.delete()
    return answer
