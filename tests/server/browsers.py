"""A real Chromium for tests of the page: what it shows, and that it complains of nothing and asks nobody else.

Debian's package, driven by Playwright. Where there is none, tests that need one are skipped with that reason;
HEADRACE_REQUIRE=chromium makes them fail instead.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import BrowserContext, ConsoleMessage, Page, WebSocket, expect, sync_playwright

FLAGS = ["--no-sandbox", "--disable-dev-shm-usage"]  # as root, and where shared memory is small
WAIT = 60_000  # milliseconds until something that should be on the page counts as missing
expect.set_options(timeout=WAIT)


def chromium() -> str:
    """Where Chromium is."""
    browser = shutil.which("chromium")
    if browser is None:
        reason = "no chromium on PATH: `scripts/apt-install 'tests of the page need it' chromium`, as `make test` does"
        if "chromium" in os.environ.get("HEADRACE_REQUIRE", "").split(","):
            pytest.fail(f"{reason}, and HEADRACE_REQUIRE says that it is required")
        pytest.skip(reason)
    return browser


@contextmanager
def browsing() -> Iterator[BrowserContext]:
    """A browser. One for a module: while it is open, asyncio.run cannot be called in this thread."""
    path = chromium()
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        with browser.new_context(viewport={"width": 1280, "height": 860}) as context:
            context.set_default_timeout(WAIT)
            yield context
        browser.close()


class Watched:
    """A page whose complaints are collected."""

    def __init__(self, page: Page) -> None:
        self.page = page
        self.complaints: list[str] = []
        self.hosts: set[str] = set()
        self.closed: list[str] = []  # WebSockets that the server closed while the page was there
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.complaints.append(str(error)))
        page.on("request", lambda request: self.hosts.add(urlsplit(request.url).netloc))
        page.on("websocket", self._connected)

    def _said(self, message: ConsoleMessage) -> None:
        if message.type == "error":  # warnings are also about a machine that is slow, as of what is preloaded in vain
            self.complaints.append(message.text)

    def _connected(self, socket: WebSocket) -> None:
        self.hosts.add(urlsplit(socket.url).netloc)
        socket.on("close", lambda _: self.closed.append(socket.url))


@contextmanager
def looking(context: BrowserContext, at: str) -> Iterator[Page]:
    """A page at an address, and the check at its end that it was quiet and made requests to its server only."""
    context.clear_cookies()
    page = context.new_page()
    watched = Watched(page)
    page.goto(at)
    yield page
    assert watched.complaints == []
    assert {host for host in watched.hosts if host} == {urlsplit(at).netloc}
    assert watched.closed == []
    page.close()
