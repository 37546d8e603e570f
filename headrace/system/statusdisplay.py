"""How far a system is, on a terminal: tables of topics and views, and a line for what happens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text


def tables(status: Mapping[str, Any]) -> RenderableType:
    """The status of a system as tables."""
    views = Table("view", "state", "version", "rows/s", "lag", "batch", "watermark", "fresh", box=None)
    for name, each in status["views"].items():
        where = each["provenance"]
        views.add_row(
            Text(name),
            each["state"],
            "none" if where["version"] is None else str(where["version"]),
            _number(each.get("records_per_second")),
            _number(each.get("lag")),
            _seconds(each.get("batch_seconds")),
            where["watermark"] or "-",
            _seconds(where["freshness"]),
        )
    topics = Table("topic", "records", "rows/s", "archived", "read by", box=None)
    for name, each in status.get("topics", {}).items():
        lags = ", ".join(f"{who} ({group['lag']:,} behind)" for who, group in each["groups"].items())
        records = sum(part["end"] - part["start"] for part in each["partitions"])
        archived = sum(each["archived"].values())
        topics.add_row(Text(name), _number(records), _number(each["records_per_second"]), _number(archived), Text(lags))
    parts: list[RenderableType] = [views, topics] if topics.rows else [views]
    parts += [Text(_letters(status["dead_letters"]))] if status["dead_letters"] else []
    parts += [
        Text(f"{kind} {name}: {each['error']}", style="red")
        for kind in ("topic", "view")
        for name, each in status.get(f"{kind}s", {}).items()
        if each.get("error")
    ]
    parts += [Text(job_line(each)) for each in status["jobs"] if each["state"] in ("waiting", "running")]
    return Group(*parts)


def versions(name: str, view: Mapping[str, Any]) -> Table:
    """The batch versions of a view."""
    table = Table("version", "rows", "made", "boundary", box=None)
    for each in view["versions"]:
        boundary = ", ".join(f"{partition}/{offset}" for partition, offset in each["boundary"].items())
        mark = " (answers)" if each["current"] else ""
        table.add_row(f"{name} {each['version']}{mark}", f"{each['rows']:,}", each["made"], boundary)
    return table


def job_line(job: Mapping[str, Any]) -> str:
    """A job in one line.

    >>> job_line({"view": "visitors", "state": "running", "step": "loading", "done": 20, "of": 80, "seconds": 3.21,
    ...           "incremental": False, "version": None, "error": None})
    'visitors: a batch version, loading 20 of 80, 3.2 s'
    """
    kind = "an incremental batch version" if job["incremental"] else "a batch version"
    if job["state"] == "failed":
        return f"{job['view']}: {kind} failed after {job['seconds']:.1f} s: {job['error']}"
    if job["state"] == "done":
        return f"{job['view']}: version {job['version']} answers, after {job['seconds']:.1f} s"
    far = "" if job["done"] is None else f" {job['done']:,}" + ("" if job["of"] is None else f" of {job['of']:,}")
    return f"{job['view']}: {kind}, {job['step']}{far}, {job['seconds']:.1f} s"


class Shown:
    """Shows a running system: a table that is drawn again and again on a terminal, and a line for each job that ends
    and each layer that fails."""

    def __init__(self, console: Console) -> None:
        self._console, self._told = console, dict[Any, Any]()
        self._live = Live(console=console, auto_refresh=False, transient=True) if console.is_terminal else None

    def __call__(self, status: Mapping[str, Any]) -> None:
        for job in status["jobs"]:
            if job["state"] in ("done", "failed"):
                self._once(("job", job["id"]), job["state"], job_line(job))
        for name, view in status["views"].items():
            self._once(("view", name), view["error"], f"view {name}: {view['error'] or 'runs again'}")
        if self._live is not None:
            self._live.update(tables(status), refresh=True)

    def _once(self, what: tuple[Any, ...], now: Any, line: str) -> None:
        if self._told.get(what) != now:
            self._console.print(line, markup=False, highlight=False)
        self._told[what] = now

    def __enter__(self) -> Shown:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *error: object) -> None:
        if self._live is not None:
            self._live.stop()


def _letters(counts: Mapping[str, int]) -> str:
    return "dead letters: " + ", ".join(f"{count:,} of {view}" for view, count in counts.items())


def _number(number: float | None) -> str:
    return "-" if number is None else f"{number:,.0f}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.1f} s"
