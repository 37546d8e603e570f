"""NiceGUI's insides that the page relies on: a test for each item of docs/upgrading.md, with the item's name."""

from __future__ import annotations

import ast
import asyncio
import base64
import inspect
import re
import time
import uuid
from collections.abc import Callable, Iterator
from hashlib import sha256
from pathlib import Path
from urllib.parse import urlencode

import httpx
import nicegui.logging
import pytest
from nicegui import Client, app, core, ui
from nicegui.props import Props
from starlette.routing import BaseRoute

from headrace.server import Server, Service
from headrace.server.page import nicegui_internals
from headrace.server.page.nicegui_internals import (
    IS_DARK,
    JS_OPTION,
    SOCKET_PATH,
    SOCKET_PREFIX,
    STATIC_PREFIX,
    THEME_SWITCH,
)

PAGE = Path(__file__).parents[3] / "docs" / "upgrading.md"
PACKAGE = Path(nicegui.__file__).parent
SCRIPT = (PACKAGE / "static" / "nicegui.js").read_text()


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    assert app.is_stopped
    with Server(Service({}, {}), port=0, page=True) as server, httpx.Client(base_url=server.url, timeout=60) as client:
        yield client
    assert app.is_stopped and not Client.instances


def open_pages(client: httpx.Client) -> None:
    before = nicegui_internals.count_clients()
    assert client.get("/").status_code == 200
    assert nicegui_internals.count_clients() == before + 1


def delete_pages(client: httpx.Client) -> None:
    client.get("/")
    page = list(Client.instances.values())[-1]
    assert callable(page.delete)
    assert page.id in Client.instances


def says_whether_it_runs(client: httpx.Client) -> None:
    assert client.get("/healthz").status_code == 200
    assert nicegui_internals.is_started()


def runs_with_an_application(client: httpx.Client) -> None:
    options = {"favicon", "reconnect_timeout", "message_history_length", "binding_refresh_interval", "tailwind"}
    assert options | {"show_welcome_message", "gzip_middleware_factory"} <= set(
        inspect.signature(ui.run_with).parameters
    )
    assert client.get("/").status_code == 200  # which it would not be without its lifespan


def has_transports(client: httpx.Client) -> None:
    assert app.config.socket_io_js_transports == ["websocket"]
    assert re.search(r"""transports['"]?: *\[ *['"]websocket['"] *\]""", client.get("/").text)


def serves_scripts_under_its_prefix(client: httpx.Client) -> None:
    text = client.get("/").text
    links = re.findall(r"""(?:src|href)=["'](/[^"']+)""", text)
    assert links and all(link.startswith(STATIC_PREFIX) for link in links), links
    assert client.get(links[0]).status_code == 200


def has_its_socket_under_its_prefix(client: httpx.Client) -> None:
    assert f"{SOCKET_PREFIX}socket.io/" == SOCKET_PATH
    assert f"{SOCKET_PREFIX}socket.io" in SCRIPT
    assert client.get(SOCKET_PATH, params={"EIO": "4", "transport": "polling"}).status_code == 404


def hands_the_scope_on(client: httpx.Client) -> None:
    """The page is found in the scope: without it, there is no answer but a failure."""
    assert "Headrace" in client.get("/?tab=views").text


def has_routes(client: httpx.Client) -> None:
    """A route that is new is one that the page refuses until somebody has looked at it."""
    kinds = {path.split("/")[3] for path in map(_path, app.routes) if path.startswith(STATIC_PREFIX)}
    assert kinds == {"static", "libraries", "components", "resources", "esm", "dynamic_resources"}


def _path(route: BaseRoute) -> str:
    return str(getattr(route, "path", ""))


def answers_what_is_not_there(client: httpx.Client) -> None:
    assert {app.exception_handlers[404], app.exception_handlers[Exception]} == {
        nicegui_internals._not_found,
        nicegui_internals._failed,
    }
    before = nicegui_internals.count_clients()
    assert asyncio.run(_status("/none")) == 404 and nicegui_internals.count_clients() == before


async def _status(path: str) -> int:
    transport = httpx.ASGITransport(app)
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as direct:
        return (await direct.get(path)).status_code


def builds_a_response(client: httpx.Client) -> None:
    """Each script that stands in the page is named by its digest; there are four, and none with names from data."""
    answer = client.get("/")
    policy = dict(part.split(" ", 1) for part in answer.headers["content-security-policy"].split("; "))
    assert "unsafe-inline" not in policy["script-src"] + policy["style-src-elem"]
    scripts = re.findall(r"<script(?: type=\"\w+\")?>(.*?)</script>", answer.text, re.DOTALL)
    digests = [base64.b64encode(sha256(script.encode()).digest()).decode() for script in scripts]
    assert [f"'sha256-{digest}'" for digest in digests] == policy["script-src"].split()[2:]
    assert len(scripts) == 4


def keeps_the_request(client: httpx.Client) -> None:
    client.get("/?tab=topics")
    client_id, scope = list(nicegui_internals.client_scopes())[-1]
    assert scope["query_string"] == b"tab=topics" and nicegui_internals.client_scope(client_id) is scope


def knows_who_is_connected(client: httpx.Client) -> None:
    client.get("/")
    client_id = list(Client.instances)[-1]
    assert not nicegui_internals.is_connected(client_id)
    Client.instances[client_id].tab_id = "a tab"
    assert nicegui_internals.is_connected(client_id)
    assert "self._delete_tasks[document_id] =" in inspect.getsource(Client.handle_disconnect)
    assert not nicegui_internals.is_expected(client_id)
    assert 0 <= nicegui_internals.age(client_id, time.time()) < 60


def connects_with_a_query(client: httpx.Client) -> None:
    shown = re.search(r"query: (\{.*\}),", client.get("/").text)
    assert shown is not None
    query = {key: str(value) for key, value in ast.literal_eval(shown[1]).items()}
    assert query["implicit_handshake"] == "True"
    query |= dict(re.findall(r"options\.query\.(\w+) = (?:window\.documentId|TAB_ID)()", SCRIPT))
    assert {"document_id", "tab_id"} <= set(query)
    ids = dict.fromkeys(("document_id", "tab_id"), str(uuid.uuid4()))
    sent = query | ids | {"EIO": "4", "transport": "websocket"}
    assert nicegui_internals.socket_query(urlencode(sent).encode()) is not None
    assert "Implicit handshake failed" in SCRIPT


def sends_messages(client: httpx.Client) -> None:
    """A message that is new is one that the page refuses until somebody has looked at it."""
    assert set(re.findall(r"socket\??\.emit\(\s*\"(\w+)\"", SCRIPT)) == {
        "event",
        "log",
        "ack",
        "handshake",
        "javascript_response",
    }
    for field in ("id", "client_id", "listener_id", "args", "next_message_id"):
        assert re.search(rf"\b{field}: ", SCRIPT)
    assert set(core.sio.handlers["/"]) == {
        "connect",
        "disconnect",
        "handshake",
        "event",
        "javascript_response",
        "ack",
        "log",
    }
    assert re.search(r"\bopen: \(msg\) =>", SCRIPT)


def has_queues(client: httpx.Client) -> None:
    assert isinstance(core.sio.environ, dict) and isinstance(core.sio.eio.sockets, dict)
    assert nicegui_internals.unsent_messages("headrace.socket", object()) == 0
    assert core.sio.eio.create_queue().qsize() == 0


def has_loggers(client: httpx.Client) -> None:
    for logger in (core.sio.logger, core.sio.eio.logger, nicegui.logging.log):
        assert logger.filters, logger


def has_a_socket(client: httpx.Client) -> None:
    assert f"{nicegui_internals.SOCKET} = io(" in SCRIPT and f"{nicegui_internals.SOCKET}.io.on(" in SCRIPT


def evaluates_options(client: httpx.Client) -> None:
    dynamic = (PACKAGE / "static" / "utils" / "dynamic_properties.js").read_text()
    assert f'"{JS_OPTION}"' in dynamic or f"'{JS_OPTION}'" in dynamic
    assert "convertDynamicProperties" in (PACKAGE / "elements" / "echart" / "echart.js").read_text()


def switches_the_theme(client: httpx.Client) -> None:
    assert "function setDark(dark)" in SCRIPT and "setDark(" in THEME_SWITCH
    assert "Quasar." in SCRIPT and IS_DARK == "Quasar.Dark.isActive"
    assert "Dark" in (quasar := (PACKAGE / "static" / "quasar.umd.prod.js").read_text()) and "isActive" in quasar


def has_dialogs_that_are_awaited(client: httpx.Client) -> None:
    assert hasattr(ui.dialog, "__await__") and callable(ui.dialog.submit)
    assert isinstance(ui.dialog.is_deleted, property)


def has_properties_by_name(client: httpx.Client) -> None:
    assert issubclass(Props, dict)


ITEMS: dict[str, Callable[[httpx.Client], None]] = {
    "Client.instances": open_pages,
    "Client.delete": delete_pages,
    "app.is_stopped": says_whether_it_runs,
    "ui.run_with": runs_with_an_application,
    "app.config.socket_io_js_transports": has_transports,
    "/_nicegui/": serves_scripts_under_its_prefix,
    "/_nicegui_ws/": has_its_socket_under_its_prefix,
    "routes below /_nicegui/": has_routes,
    "exception handlers": answers_what_is_not_there,
    "Client.build_response": builds_a_response,
    "request.scope": hands_the_scope_on,
    "Client.request": keeps_the_request,
    "Client.has_socket_connection": knows_who_is_connected,
    "query of a connection": connects_with_a_query,
    "messages": sends_messages,
    "core.sio": has_queues,
    "loggers": has_loggers,
    "window.socket": has_a_socket,
    "keys with a colon": evaluates_options,
    "setDark": switches_the_theme,
    "ui.dialog": has_dialogs_that_are_awaited,
    "element.props": has_properties_by_name,
}


@pytest.mark.parametrize("item", ITEMS)
def test_nicegui_still_has(item: str, client: httpx.Client) -> None:
    ITEMS[item](client)


def test_the_page_lists_all_items() -> None:
    section = PAGE.read_text().partition("## NiceGUI")[2].partition("\n## ")[0]
    assert re.findall(r"^\| `([^`]+)`", section, re.MULTILINE) == list(ITEMS)
