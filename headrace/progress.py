"""A progress bar for a running pipeline, or a line for a stream.

It polls the handle, in the caller's thread, and starts none of its own.
"""

from __future__ import annotations

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

from headrace.engine.run import Handle, Status
from headrace.engine.streamstatus import StreamStatus

POLL = 0.1  # seconds
_TASKS = (BarColumn(bar_width=24), MofNCompleteColumn(), TextColumn("tasks"))  # of a stream there is no end to show


def watch(handle: Handle, console: Console | None = None) -> Status:
    """Waits for the pipeline's end and shows meanwhile how far it is: nothing, if the console is no terminal.

    What the pipeline fails with is raised; Ctrl-C stops it.

    >>> import headrace as hr
    >>> p = hr.Pipeline()
    >>> total = p | hr.Create([1, 2]) | hr.Sum.globally() | hr.Collect()
    >>> watch(p.run()).state, list(total)
    ('done', [3])
    """
    console = console or Console(stderr=True)
    tasks = () if isinstance(handle.status(), StreamStatus) else _TASKS
    with Progress(
        SpinnerColumn(),
        TextColumn("{task.description}", markup=False),
        *tasks,
        TimeElapsedColumn(),
        console=console,
        auto_refresh=False,
        transient=True,
        redirect_stdout=False,  # what a script prints goes where the script sends it
        redirect_stderr=False,
        disable=not console.is_terminal,
    ) as bar:
        shown = bar.add_task("", total=None)
        try:
            while (status := handle.wait(timeout=POLL)).state == "running":
                bar.update(shown, description=status.line, completed=status.tasks_done, total=status.tasks or None)
                bar.refresh()
        except KeyboardInterrupt:
            handle.stop()
            raise
    return status
