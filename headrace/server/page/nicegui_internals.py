"""All of NiceGUI's internals that the page relies on. docs/upgrading.md lists them; each has a test with its name.

NiceGUI keeps its clients in the process, on one event loop; so a process has one server with a page at a time.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from functools import cache
from typing import Any, Final

from fastapi import FastAPI
from nicegui import Client, app, ui
from starlette.requests import Request

STATIC_PREFIX: Final = "/_nicegui/"
"""Where NiceGUI serves its scripts, styles and fonts."""

SOCKET_PREFIX: Final = "/_nicegui_ws/"
"""Where an open page has its connection, as a WebSocket or by polling."""

JS_OPTION: Final = ":"
"""NiceGUI evaluates the option of a chart as JavaScript if its key begins with this."""

THEME_SWITCH: Final = """(dark) => {
  const follows = dark === matchMedia("(prefers-color-scheme: dark)").matches;
  setDark(follows ? null : dark);
  return follows;
}"""
"""JavaScript that sets the theme with NiceGUI's own function, and returns whether that is the system's theme."""

IS_DARK: Final = "Quasar.Dark.isActive"
"""JavaScript that says whether the page is dark."""


def count_clients() -> int:
    """Returns how many pages are open in browsers."""
    return len(Client.instances)


def delete_clients() -> None:
    """Forgets all pages that are open."""
    for client in list(Client.instances.values()):
        client.delete()


def is_started() -> bool:
    """Tells whether a server with a page runs in this process."""
    return not app.is_stopped


@cache
def shell(build: Callable[[Request], None], favicon: str) -> FastAPI:
    """Makes NiceGUI an application of its own, whose page at / is what `build` builds.

    That can be done only once in a process. `build` gets a request with the same scope as the application was called
    with, so that what is in it tells pages of several servers apart.
    """

    @ui.page("/", title="Headrace", favicon=favicon, dark=None, language="en-US")
    def page(request: Request) -> None:
        build(request)

    application = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)
    app.config.socket_io_js_transports = ["websocket"]
    ui.run_with(
        application,
        favicon=favicon,
        reconnect_timeout=30,  # seconds; a third of it is how long a busy browser may be silent
        message_history_length=30,
        binding_refresh_interval=None,
        tailwind=False,
        show_welcome_message=False,
    )
    return application


def lifespan(application: FastAPI) -> AbstractAsyncContextManager[Any]:
    """Starts NiceGUI for the duration of a block: `run_with` has put that into the lifespan of its application."""
    return application.router.lifespan_context(application)


async def wait_for_dialog(dialog: ui.dialog) -> object:
    """Waits for what is submitted in a dialog, and removes it; None if it is cancelled."""
    answer: object = await dialog
    if not dialog.is_deleted:  # somebody may have closed the page
        dialog.delete()
    return answer
