"""What a server serves: the stored views and the topics of an app, what can be asked of a system that runs it, and
the topologies of a cluster.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from headrace.log import Log
from headrace.server.ingestion import Ingestion
from headrace.views.adhoc.sqlrequest import Engine
from headrace.views.archive.archivetable import Archive
from headrace.views.declare.app import App
from headrace.views.feeds import Feed, feed_of
from headrace.views.stores import Store
from headrace.views.stores.store import StoredView


class Operations(Protocol):
    """What a running system offers beside its views and topics. All of it is ready to be written as JSON."""

    def status(self) -> dict[str, Any]:
        """How far everything is: topics, views with their stages, and batch jobs."""

    def compute(self, view: str, *, incremental: bool) -> dict[str, Any]:
        """Begins a batch version; returns the job. Refused with a ViewError while another of the view is under way."""

    def dead_letters(self, limit: int) -> list[dict[str, Any]]:
        """The records that no view could take, newest first."""


class Topologies(Protocol):
    """A cluster of topologies, wherever it runs. All it tells is ready to be written as JSON."""

    def published(self) -> dict[str, Any] | None:
        """The `time` at which it was looked at last, and the status of its `topologies`; None if no cluster runs."""

    def errors(self, name: str, limit: int) -> list[dict[str, Any]]:
        """The newest errors that components of a topology reported, oldest first."""

    def dead_letters(self, name: str, limit: int) -> list[dict[str, Any]]:
        """The newest tuples of a topology that were given up, oldest first."""

    def ask(self, command: str, **arguments: Any) -> Any:
        """Has the cluster do something, and waits until it is done. Refused with a TopologyError."""


@dataclass(frozen=True)
class Service:
    """Stored views and topics by their names; no others can be named in a request. A store without a running system
    has no `operations`. Ad-hoc SQL reads what is archived of topics, too, and may be answered by a `spark`.
    `topologies` are beside all that.

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
        """The views and topics of an app; made, where they are not there. `log` is as for `feed_of`.

        `master` has the master data of each topic in a directory of its name.
        """
        topics = {name: _opened(feed_of(log, each)) for name, each in app.topics.items()}
        archives = {
            name: Archive(app.topics[name], master / name, strict=each.feed.strict)
            for name, each in topics.items()
            if master is not None
        }
        views = {name: store.view(each.layout()) for name, each in app.views.items()}
        return Service(views, topics, operations, archives, spark)


def _opened(feed: Feed) -> Ingestion:
    feed.create()
    return Ingestion(feed)
