"""NiceGUI's insides that the page relies on: a test for each item of docs/upgrading.md, with the item's name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import nicegui
import pytest
from nicegui import Client, app, ui
from nicegui.props import Props

from headrace.server import Server, Service
from headrace.server.page import nicegui_internals
from headrace.server.page.nicegui_internals import IS_DARK, JS_OPTION, SOCKET_PREFIX, STATIC_PREFIX, THEME_SWITCH

PAGE = Path(__file__).parents[3] / "docs" / "upgrading.md"
PACKAGE = Path(nicegui.__file__).parent


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
    assert options | {"show_welcome_message"} <= set(inspect.signature(ui.run_with).parameters)
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
    answer = client.get(f"{SOCKET_PREFIX}socket.io/?EIO=4&transport=polling")
    assert (answer.status_code, answer.text[:1]) == (200, "0")
    assert f"{SOCKET_PREFIX}socket.io" in (PACKAGE / "static" / "nicegui.js").read_text()


def hands_the_scope_on(client: httpx.Client) -> None:
    """The page is found in the scope: without it, there is no answer but a failure."""
    assert "Headrace" in client.get("/?tab=views").text


def evaluates_options(client: httpx.Client) -> None:
    dynamic = (PACKAGE / "static" / "utils" / "dynamic_properties.js").read_text()
    assert f'"{JS_OPTION}"' in dynamic or f"'{JS_OPTION}'" in dynamic
    assert "convertDynamicProperties" in (PACKAGE / "elements" / "echart" / "echart.js").read_text()


def switches_the_theme(client: httpx.Client) -> None:
    script = (PACKAGE / "static" / "nicegui.js").read_text()
    assert "function setDark(dark)" in script and "setDark(" in THEME_SWITCH
    assert "Quasar." in script and IS_DARK == "Quasar.Dark.isActive"
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
    "request.scope": hands_the_scope_on,
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
