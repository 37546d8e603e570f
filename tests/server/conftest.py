"""A service on a store and an embedded log, and a real server of it on a free port."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import httpx
import pytest
from playwright.sync_api import BrowserContext

import headrace as hr
from headrace.log import Log
from headrace.model.sketches import ApproxDistinctFn
from headrace.server import Limits, Server, Service
from headrace.views import adhoc
from headrace.views.declare.app import App
from headrace.views.declare.layout import Partial
from headrace.views.offsets import MicroBatch
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from tests.edges import postgresql
from tests.server.browsers import browsing

HOUR = 3_600_000_000
LIMITS = Limits(poll=0.01, sql=adhoc.Limits(seconds=20))
PEOPLE = ApproxDistinctFn()

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url", partitions=3)


@hr.view(visits, window=hr.FixedWindows("1 hour"))
def visitors(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("url").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))


@hr.view(visits)
def users(events: hr.PCollection) -> hr.PCollection:
    return events | hr.GroupBy("user", "url").aggregate(hits=hr.count())


def partial_row(url: str | None, hour: int, *names: str) -> Partial:
    sketch = PEOPLE.dump(PEOPLE.add_all(PEOPLE.zero(), names))
    return Partial((url,), hour * HOUR, (hour + 1) * HOUR, (len(names), sketch))


def feed(view: StoredView, *rows: Partial, watermark: int | None = None) -> None:
    """Adds a micro-batch of these rows."""
    reached = view.provenance()
    at, number = reached.reached.get(0, 0), reached.batch + 1
    view.add(MicroBatch("s", number, {0: at}, {0: at + max(len(rows), 1)}, watermark), rows)


def publish(view: StoredView, *rows: Partial) -> None:
    """A batch version of these rows."""
    with view.build(view.cut()) as version:
        version.load(rows)
        version.publish()


@pytest.fixture
def clock() -> list[int]:
    """The time of the store, for the test to move."""
    return [1_000_000_000]


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of an empty store: SQLite, unless a test is of both kinds."""
    if getattr(request, "param", "sqlite") == "sqlite":
        return f"sqlite:///{tmp_path}/views.db"
    return postgresql.empty(request.getfixturevalue("postgresql_server"), "served")


on_both = pytest.mark.parametrize("store_url", ["sqlite", "postgresql"], indirect=True)
"""A test over both kinds of stores."""


@pytest.fixture
def service(store_url: str, tmp_path: Path, clock: list[int]) -> Iterator[Service]:
    store = Store(store_url, clock=lambda: clock[0])
    yield Service.of(App.of({"visitors": visitors, "users": users}), store, Log(tmp_path / "log"))
    store.close()


@pytest.fixture
def view(service: Service) -> StoredView:
    return service.views["visitors"]


@pytest.fixture
def started(service: Service) -> Iterator[Callable[..., httpx.Client]]:
    """Starts servers; gives clients."""
    with ExitStack() as ends:

        def start(**options: Any) -> httpx.Client:
            server = ends.enter_context(Server(service, port=0, **{"limits": LIMITS, **options}))
            return ends.enter_context(httpx.Client(base_url=server.url, timeout=30))

        yield start


@pytest.fixture
def client(started: Callable[..., httpx.Client]) -> httpx.Client:
    return started()


LINES = {"Content-Type": "application/x-ndjson"}


@pytest.fixture(scope="module")
def browser() -> Iterator[BrowserContext]:
    with browsing() as context:
        yield context


@pytest.fixture(scope="module")
def port() -> int:
    """One for all servers of a module, so that the browser need not load the scripts again and again."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])
