"""A progress bar for a running batch, or a status line for a stream, which has no end.

It polls the handle in the caller's thread.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.engine.handle import Handle, Status

POLL = 0.1  # seconds


def watch(handle: Handle, console: Console | None = None) -> Status:
    """Waits for the end of a pipeline, and shows its progress if the console is a terminal.

    Raises the error that the pipeline fails with; Ctrl-C stops it.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> total = p | hr.Create([1, 2]) | hr.Sum.globally() | hr.Collect()
    >>> watch(p.run()).state, list(total)
    ('done', [3])
    """
    console = console or Console(stderr=True)
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        BarColumn(bar_width=24),
        TextColumn("{task.fields[tasks]}"),
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # what a script prints goes where the script sends it
        redirect_stderr=console.is_terminal,  # above the bar
        disable=not console.is_terminal,
    ) as bar:
        task = bar.add_task("", total=None, tasks="")
        try:
            while (status := handle.wait(timeout=POLL)).state == "running":
                bar.update(task, description=status.line, completed=status.tasks_done, total=status.tasks or None)
                bar.update(task, tasks=f"{status.tasks_done}/{status.tasks} tasks" if status.tasks else "")
                bar.refresh()
        except KeyboardInterrupt:
            handle.stop()
            raise
    return status
