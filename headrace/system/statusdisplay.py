"""Displays the status of a system on a terminal: tables of topics and views, and a line for each event."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from headrace.views.jsonencoding import VersionJson
from headrace.views.systemstatus import JobStatus, SystemStatus


def status_tables(status: SystemStatus) -> RenderableType:
    """Renders the status of a system as tables."""
    views = Table("view", "state", "version", "rows/s", "lag", "batch", "watermark", "fresh", box=None)
    for name, view in status["views"].items():
        origin = view["provenance"]
        views.add_row(
            Text(name),
            view["state"],
            "none" if origin["version"] is None else str(origin["version"]),
            _number(view.get("records_per_second")),
            _number(view.get("lag")),
            _seconds(view.get("batch_seconds")),
            origin["watermark"] or "-",
            _seconds(origin["freshness"]),
        )
    topics = Table("topic", "records", "rows/s", "archived", "read by", box=None)
    for name, topic in status.get("topics", {}).items():
        lags = ", ".join(f"{reader} ({group['lag']:,} behind)" for reader, group in topic["groups"].items())
        records = sum(part["end"] - part["start"] for part in topic["partitions"])
        archived = sum(topic["archived"].values())
        rate = _number(topic["records_per_second"])
        topics.add_row(Text(name), _number(records), rate, _number(archived), Text(lags))
    parts: list[RenderableType] = [views, topics] if topics.rows else [views]
    parts += [Text(_dead_letters(letters))] if (letters := status.get("dead_letters")) else []
    errors = {f"topic {name}": topic.get("error") for name, topic in status.get("topics", {}).items()}
    errors |= {f"view {name}": view.get("error") for name, view in status["views"].items()}
    parts += [Text(f"{name}: {error}", style="red") for name, error in errors.items() if error]
    parts += [Text(job_line(job)) for job in status["jobs"] if job["state"] in ("waiting", "running")]
    return Group(*parts)


def version_table(name: str, versions: Iterable[VersionJson]) -> Table:
    """Renders the batch versions of a view as a table."""
    table = Table("version", "rows", "made", "boundary", box=None)
    for version in versions:
        boundary = ", ".join(f"{partition}/{offset}" for partition, offset in version["boundary"].items())
        mark = " (current)" if version["current"] else ""
        table.add_row(f"{name} {version['version']}{mark}", f"{version['rows']:,}", version["made"], boundary)
    return table


def job_line(job: JobStatus) -> str:
    """Describes a job in one line.

    >>> from headrace.system.jobs import Job
    >>> job_line(Job(1, "visitors", False, 0, "running", "loading", 20, 80).to_json(now=3_200_000))
    'visitors: batch version (full, 3.2 s): loading 20 of 80'
    >>> job_line(Job(1, "visitors", True, 0, "done", version=3, ended=7_200_000).to_json(now=9_000_000))
    'visitors: version 3 is current (incremental, 7.2 s)'
    """
    how = f"({'incremental' if job['incremental'] else 'full'}, {job['seconds']:.1f} s)"
    if job["state"] == "failed":
        return f"{job['view']}: batch version {how} failed: {job['error']}"
    if job["state"] == "done":
        return f"{job['view']}: version {job['version']} is current {how}"
    done = "" if job["done"] is None else f" {job['done']:,}" + ("" if job["of"] is None else f" of {job['of']:,}")
    return f"{job['view']}: batch version {how}: {job['step']}{done}"


class StatusDisplay:
    """Displays a running system: tables that are redrawn on a terminal, and a line for each job that ends and each
    layer that fails."""

    def __init__(self, console: Console) -> None:
        self._console, self._printed = console, dict[tuple[str, object], object]()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __call__(self, status: SystemStatus) -> None:
        for job in status["jobs"]:
            if job["state"] in ("done", "failed"):
                self._print_once(("job", job["id"]), job["state"], job_line(job))
        for name, view in status["views"].items():
            error = view.get("error")
            self._print_once(("view", name), error, f"view {name}: {error or 'runs again'}")
        if self._live is not None:
            self._live.update(status_tables(status), refresh=True)

    def _print_once(self, subject: tuple[str, object], state: object, line: str) -> None:
        if self._printed.get(subject) != state:
            self._console.print(line, markup=False, highlight=False)
        self._printed[subject] = state

    def __enter__(self) -> StatusDisplay:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


def _dead_letters(counts: Mapping[str, int]) -> str:
    return "dead letters: " + ", ".join(f"{count:,} of {view}" for view, count in counts.items())


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
