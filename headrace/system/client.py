"""Clients of a system in another process: over HTTP while it runs, from its store while it does not."""

from __future__ import annotations

import json
import os
import urllib.error
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any, Final, Protocol, cast
from urllib.parse import quote, urlencode

from headrace.model.jsontext import dumps
from headrace.server.routes.querystring import query_of
from headrace.system.home import Home
from headrace.views.declare.app import App
from headrace.views.declare.declarations import View
from headrace.views.errors import ViewError
from headrace.views.jsonencoding import AnswerJson, encode_answer, encode_provenance, encode_version
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from headrace.views.systemstatus import JobStatus, SystemStatus, ViewStatus

_SECONDS: Final = 180  # a statement of SQL may wait for Spark

Parameters = Sequence[tuple[str, str]]
"""Parameters of a query, as in the query string of a URL."""


class SystemClient(Protocol):
    """A client of a system. What it returns is JSON, the same for both implementations."""

    def query(self, view: str, parameters: Parameters) -> AnswerJson:
        """Queries a view."""

    def rollback(self, view: str, version: int | None) -> int:
        """Goes back to a version of a view, or to the one before; returns its number."""

    def status(self) -> SystemStatus:
        """Returns the status of the system."""


def client_of(home: Home, *, store: str | None = None) -> SystemClient:
    """Returns a client of the system of a directory. `store` is the URL of its store, where that needs a password."""
    holder = home.holder()
    if holder is not None and holder.url is not None:
        return HttpClient(holder.url, os.environ.get("HEADRACE_TOKEN"))
    return StoreClient(home, store)


class HttpClient:
    """A client of a system that runs: its server answers."""

    def __init__(self, url: str, token: str | None = None) -> None:
        self._url, self._token = url, token

    def query(self, view: str, parameters: Parameters) -> AnswerJson:
        return cast(AnswerJson, self._request(f"/views/{view}?{urlencode(parameters)}"))

    def rollback(self, view: str, version: int | None) -> int:
        body = {} if version is None else {"version": version}
        return int(self._request(f"/views/{view}/rollback", body)["version"])

    def status(self) -> SystemStatus:
        return cast(SystemStatus, {"url": self._url, **self._request("/status")})

    def compute(self, view: str, *, incremental: bool) -> JobStatus:
        """Begins a batch version; returns the job."""
        return cast(JobStatus, self._request(f"/views/{view}/batch", {"incremental": incremental}))

    def execute(self, text: str, *, wait: bool = False) -> list[dict[str, Any]]:
        """Executes statements of continuous SQL; returns what each did, or its columns and rows."""
        results: list[dict[str, Any]] = self._request("/sql/statements", {"text": text, "wait": wait})["results"]
        return results

    def catalog(self) -> dict[str, list[dict[str, Any]]]:
        """Returns the streams and views of continuous SQL."""
        return self._request("/sql/catalog")

    def changes(self, view: str) -> Iterator[tuple[dict[str, Any] | None, dict[str, Any] | None]]:
        """Yields the changes of a view of continuous SQL, old and new row, until the server or the view is gone."""
        with self._open(f"/sql/views/{quote(view, safe='')}/changes") as response:
            kind = ""
            for line in response:
                name, _, value = line.decode().rstrip("\n").partition(": ")
                if name == "event":
                    kind = value
                elif name == "data" and kind == "change":
                    change = json.loads(value)
                    yield change["old"], change["new"]
                elif name == "data" and kind == "end":
                    raise ViewError(json.loads(value)["reason"])
        raise ViewError(f"the server at {self._url} has ended the stream of changes; subscribe again")

    def _request(self, path: str, body: Mapping[str, Any] | None = None) -> dict[str, Any]:
        with self._open(path, body) as response:
            reply: dict[str, Any] = json.load(response)
        return reply

    @contextmanager
    def _open(self, path: str, body: Mapping[str, Any] | None = None) -> Iterator[IO[bytes]]:
        request = urllib.request.Request(self._url + path)
        if body is not None:
            request.data = json.dumps(body).encode()
            request.add_header("Content-Type", "application/json")
        if self._token:
            request.add_header("Authorization", f"Bearer {self._token}")
        try:
            with urllib.request.urlopen(request, timeout=_SECONDS) as response:
                yield response
        except urllib.error.HTTPError as error:
            raise ViewError(_reason(error)) from None
        except OSError as error:
            raise ViewError(f"the server at {self._url} does not answer: {error}") from None


class StoreClient:
    """A client of a system that does not run: its store answers."""

    def __init__(self, home: Home, store: str | None = None) -> None:
        config = home.config()
        if config is None:
            raise ViewError(f"there is no system in {home.path}; create one with `headrace up FILE`, or use --dir")
        self._app, self._store = App.load(config.app), Store(store or config.store)
        self._config = config

    def query(self, view: str, parameters: Parameters) -> AnswerJson:
        stored = self._stored(view)
        answer = stored.answer(query_of(stored.layout, urlencode(parameters)))
        return cast(AnswerJson, _as_sent(encode_answer(view, answer)))

    def rollback(self, view: str, version: int | None) -> int:
        return self._stored(view).rollback(version)

    def status(self) -> SystemStatus:
        views = {name: self._view_status(view) for name, view in self._app.views.items()}
        status: SystemStatus = {
            "pid": None,
            "views": views,
            "dead_letters": self._store.dead_letters.counts(),
            "jobs": [],
        }
        return cast(SystemStatus, _as_sent(status))

    def _view_status(self, view: View) -> ViewStatus:
        stored = self._store.view(view.layout())
        return {
            "topic": view.topic.name,
            "state": "stopped",
            "provenance": encode_provenance(stored.provenance()),
            "versions": [encode_version(version) for version in stored.versions()],
        }

    def _stored(self, name: str) -> StoredView:
        return self._store.view(view_of(self._app, name, self._config.app).layout())


def view_of(app: App, name: str, file: str) -> View:
    """Returns a view by its name."""
    if name not in app.views:
        raise ViewError(f"{Path(file).name} declares no view {name!r}; there are {', '.join(app.views)}")
    return app.views[name]


def _as_sent(value: Mapping[str, Any]) -> Any:
    """Returns JSON as it would come over HTTP."""
    return json.loads(dumps(value))


def _reason(error: urllib.error.HTTPError) -> str:
    try:
        return str(json.load(error)["reason"])
    except (ValueError, KeyError, OSError):
        return f"the server answered {error.code} {error.reason}"
