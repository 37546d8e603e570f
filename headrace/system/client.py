"""Asking a system from another process: over HTTP while it runs, from its store while it does not."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final, Protocol
from urllib.parse import urlencode

from headrace.server.http.jsonresponse import dumps
from headrace.server.routes.querystring import query_of
from headrace.system.home import Home
from headrace.views.declare.app import App
from headrace.views.declare.declarations import View
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import encode_answer, encode_provenance, encode_version
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView

_SECONDS: Final = 60

Asked = Sequence[tuple[str, str]]
"""Parameters of a question, as in the query string of a URL."""


class Asking(Protocol):
    """A system that can be asked. Answers are JSON, the same in both ways."""

    def query(self, view: str, asked: Asked) -> dict[str, Any]:
        """Rows of a view."""

    def rollback(self, view: str, version: int | None) -> int:
        """Goes back to a version of a view, or to the one before; returns which."""

    def status(self) -> dict[str, Any]:
        """How far everything is."""


def asking(home: Home, *, store: str | None = None) -> Asking:
    """The system of a directory. `store` is the URL of its store, where that needs a password."""
    holder = home.holder()
    if holder is not None and holder.url is not None:
        return Running(holder.url, os.environ.get("HEADRACE_TOKEN"))
    return Resting(home, store)


class Running:
    """A system that runs: its server answers."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url, self._token = url, token

    def query(self, view: str, asked: Asked) -> dict[str, Any]:
        return self._ask(f"/views/{view}?{urlencode(asked)}")

    def rollback(self, view: str, version: int | None) -> int:
        return int(self._ask(f"/views/{view}/rollback", {} if version is None else {"version": version})["version"])

    def status(self) -> dict[str, Any]:
        return {"url": self._url, **self._ask("/status")}

    def compute(self, view: str, *, incremental: bool) -> dict[str, Any]:
        """Begins a batch version; returns the job."""
        return self._ask(f"/views/{view}/batch", {"incremental": incremental})

    def _ask(self, path: str, body: dict[str, Any] | None = None) -> dict[str, Any]:
        request = urllib.request.Request(self._url + path)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as answer:
                found: dict[str, Any] = json.load(answer)
        except urllib.error.HTTPError as error:
            raise ViewError(_reason(error)) from None
        except OSError as error:
            raise ViewError(f"the server at {self._url} does not answer: {error}") from None
        return found


class Resting:
    """A system that does not run: its store answers what it has."""

    def __init__(self, home: Home, store: str | None = None) -> None:
        runs = home.runs()
        if runs is None:
            raise ViewError(f"there is no system in {home.path}; `headrace up FILE` makes one, and --dir names another")
        self._app, self._store = App.load(runs.app), Store(store or runs.store)
        self._runs = runs

    def query(self, view: str, asked: Asked) -> dict[str, Any]:
        stored = self._stored(view)
        return _json(encode_answer(view, stored.answer(query_of(stored.layout, urlencode(asked)))))

    def rollback(self, view: str, version: int | None) -> int:
        return self._stored(view).rollback(version)

    def status(self) -> dict[str, Any]:
        views = {}
        for name, view in self._app.views.items():
            stored = self._store.view(view.layout())
            views[name] = {
                "topic": view.topic.name,
                "state": "stopped",
                "provenance": encode_provenance(stored.provenance()),
                "versions": [encode_version(each) for each in stored.versions()],
            }
        return _json({"pid": None, "views": views, "dead_letters": self._store.dead_letters.counts(), "jobs": []})

    def _stored(self, name: str) -> StoredView:
        return self._store.view(view_of(self._app, name, self._runs.app).layout())


def view_of(app: App, name: str, file: str) -> View:
    """A view by its name."""
    if name not in app.views:
        raise ViewError(f"{Path(file).name} declares no view {name!r}; there are {', '.join(app.views)}")
    return app.views[name]


def _json(value: dict[str, Any]) -> dict[str, Any]:
    """As it would come over HTTP."""
    found: dict[str, Any] = json.loads(dumps(value))
    return found


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["reason"])
    except (ValueError, KeyError, OSError):
        return f"the server said {error.code} {error.reason}"
