"""The service of a server: views and topics of an app, operations of a running system, topologies of a cluster.

Or the pipelines of a script, or the streams and views of continuous SQL.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NotRequired, Protocol, TypedDict

from headrace.log import Log
from headrace.server.ingestion import Ingestion
from headrace.views.adhoc.sqlrequest import Engine, JsonLimits
from headrace.views.archive.archivetable import Archive
from headrace.views.declare.app import App
from headrace.views.feeds import Feed, feed_of
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView
from headrace.views.systemstatus import DeadLetterJson, JobStatus, SystemStatus


class Operations(Protocol):
    """The operations of a running system. All that they return can be written as JSON."""

    def status(self) -> SystemStatus:
        """Returns the status of topics, of views with their stages, and of batch jobs."""

    def compute(self, view: str, *, incremental: bool) -> JobStatus:
        """Begins a batch version and returns the job. A ViewError refuses it while another of the view runs."""

    def dead_letters(self, limit: int) -> list[DeadLetterJson]:
        """Returns the records that are no events of a view, newest first."""


class Topologies(Protocol):
    """A cluster of topologies, wherever it runs. All that it returns can be written as JSON."""

    def published(self) -> dict[str, Any] | None:
        """Returns the last status: its `time`, and the status of each of the `topologies`; None if no cluster runs."""

    def errors(self, name: str, limit: int) -> list[dict[str, Any]]:
        """Returns the newest errors that components of a topology reported, oldest first."""

    def dead_letters(self, name: str, limit: int) -> list[dict[str, Any]]:
        """Returns the newest tuples of a topology that were given up, oldest first."""

    def ask(self, command: str, **arguments: Any) -> Any:
        """Sends a command to the cluster and waits until it is done. A HeadraceError refuses it."""


class StatementOutcome(TypedDict):
    """The outcome of a statement: a message, or the columns and rows of its result; or the error that refused it."""

    message: NotRequired[str]
    columns: NotRequired[list[str]]
    rows: NotRequired[list[list[Any]]]
    error: NotRequired[str]
    line: NotRequired[int | None]
    column: NotRequired[int | None]


@dataclass(frozen=True)
class StatementAnswer:
    """The answer to a statement as JSON: a message or, with `columns`, the text of a list of rows."""

    message: str = ""
    columns: list[str] | None = None
    rows: bytes = b"[]"
    truncated: bool = False


class RowChange(Protocol):
    """A change of a row: one that came has no `old`, one that went no `new`."""

    @property
    def old(self) -> dict[str, Any] | None:
        """The row before."""

    @property
    def new(self) -> dict[str, Any] | None:
        """The row now."""


class ViewChanges(Protocol):
    """A subscription to the changes of a view."""

    @property
    def position(self) -> int:
        """The number of the last change that was read."""

    def read(self) -> list[Any]:
        """Returns the changes since the last call, each a `RowChange`. A HeadraceError says why there are no more."""

    def stop(self) -> None:
        """Ends the subscription."""


class Statements(Protocol):
    """The statements of continuous SQL, its streams and its views, wherever they are computed."""

    def catalog(self) -> dict[str, list[dict[str, Any]]]:
        """Returns `streams` and `views`, each with its `name`, its `columns` and their types, and its `text`."""

    def quick(self, text: str) -> dict[str, Any] | None:
        """Answers a SELECT in less time than a thread takes to start, with `columns`, few `rows` and `truncated`.

        None if it cannot. It is called on the event loop.
        """

    def execute(self, text: str, limits: JsonLimits, *, wait: bool = False) -> list[StatementAnswer]:
        """Executes statements. A Refusal says which of them is none, or cannot be done, and where in the text.

        With `wait`, a SELECT waits until views have all rows that are in their streams.
        """

    def subscribe(self, view: str, *, snapshot: bool, most: int) -> ViewChanges:
        """Follows the changes of a view, after its rows with `snapshot`, of which there are at most so many."""

    def close(self) -> None:
        """Ends its processes and connections."""


@dataclass(frozen=True)
class Service:
    """Stored views and topics by name, and what else a server offers. A request can name no other views and topics.

    A store without a running system has no `operations`. Ad-hoc SQL also reads the archives of topics, and `spark` may
    run it. With `pipelines`, the operations are those of a script that runs pipelines, or of `statements`.

    >>> import headrace as hr, tempfile
    >>> clicks = hr.Topic("clicks", schema="user string")
    >>> @hr.view(clicks)
    ... def per_user(events):
    ...     return events | hr.GroupBy("user").aggregate(n=hr.count())
    >>> folder = tempfile.mkdtemp()
    >>> service = Service.of(App.of({"per_user": per_user}), Store(f"sqlite:///{folder}/views.db"), Log(folder))
    >>> list(service.views), list(service.topics)
    (['per_user'], ['clicks'])
    """

    views: Mapping[str, StoredView]
    topics: Mapping[str, Ingestion]
    operations: Operations | None = None
    archives: Mapping[str, Archive] = field(default_factory=dict)
    spark: Engine | None = None
    topologies: Topologies | None = None
    pipelines: bool = False
    statements: Statements | None = None

    @staticmethod
    def of(
        app: App,
        store: Store,
        log: str | Path | Log,
        operations: Operations | None = None,
        *,
        master: Path | None = None,
        spark: Engine | None = None,
    ) -> Service:
        """Makes the service of an app, and its views and topics where there are none. `log` is as for `feed_of`.

        `master` is the directory of the master data: each topic has a directory of its name in it.
        """
        topics = {name: _open(feed_of(log, topic)) for name, topic in app.topics.items()}
        archives = {
            name: Archive(app.topics[name], master / name, strict=ingestion.feed.strict)
            for name, ingestion in topics.items()
            if master is not None
        }
        views = {name: store.view(view.layout()) for name, view in app.views.items()}
        return Service(views, topics, operations, archives, spark)


def _open(feed: Feed) -> Ingestion:
    feed.create()
    return Ingestion(feed)
