"""The commands `headrace savepoint list | show | copy` and `headrace rescale`: savepoints and checkpoints on disk.

Those of streams that run must be copied by the stream itself: `handle.savepoint(path)`.
"""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.console import Console
from rich.table import Table

from headrace.commands.errors import errors_as_messages
from headrace.model.errors import HeadraceError
from headrace.model.times import SECOND, format_duration, format_instant

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from headrace.engine.state.summaries import GroupingSummary, StateSummary

savepoint = typer.Typer(
    help="Savepoints and checkpoints: what is in them, and copies.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
)

Place = Annotated[str, typer.Argument(help="The directory of a savepoint or checkpoint.", show_default=False)]
New = Annotated[str, typer.Argument(help="The directory of the new savepoint.", show_default=False)]


@savepoint.command("list")
def list_all(
    folder: Annotated[str, typer.Argument(help="A directory that has savepoints or checkpoints in it.")] = ".",
) -> None:
    """List the savepoints and checkpoints in a directory."""
    from headrace.engine.state.savedstreams import saved_in

    table = Table("savepoint", "stream", "batch", "age", "shards", "sources", "groupings", box=None)
    with errors_as_messages(HeadraceError, OSError):
        for name, state in saved_in(_session(), folder):
            manifest = state.manifest
            batch = "-" if state.batch is None else str(state.batch)
            table.add_row(
                name,
                manifest.stream[:8],
                batch,
                _age(state.time),
                str(manifest.shards),
                ", ".join(manifest.sources),
                ", ".join(manifest.groupings) or "-",
            )
    _print(table)


@savepoint.command()
def show(path: Place) -> None:
    """Show where the sources of a savepoint or checkpoint are, and how much state it has."""
    from headrace.engine.state.summaries import summarize

    with errors_as_messages(HeadraceError, OSError):
        found = summarize(_session(), path)
    _show(found)


@savepoint.command()
def copy(path: Place, new: New) -> None:
    """Copy a savepoint, or a checkpoint that no stream is running on, as a stream of its own.

    Both may be on a local disk or on another file system that Spark knows.
    """
    from headrace.engine.checkpoint.checkpoint import restore_copy
    from headrace.engine.spark.files import Folder

    with errors_as_messages(HeadraceError, OSError):
        spark = _session()
        restore_copy(Folder(spark, path), Folder(spark, new))
    print(f"copied {path} to {new}")


def rescale(
    path: Place,
    new: New,
    shards: Annotated[
        int | None, typer.Option(help="How many shards keys are divided into; as before if not given.")
    ] = None,
    partitions: Annotated[
        int | None, typer.Option(help="How many of Spark's partitions process them; as before if not given.")
    ] = None,
) -> None:
    """Write a savepoint anew for another number of shards or partitions.

    A pipeline that is run with the new savepoint goes on where the other was.
    """
    from headrace.engine.spark.files import Folder
    from headrace.engine.state.rewriting import check_counts, rescaled, rewrite
    from headrace.engine.state.storedstate import StoredState

    with errors_as_messages(HeadraceError, OSError):
        check_counts(shards, partitions)
        spark = _session()
        state = StoredState.at(spark, path)
        begun = rewrite(state, Folder(spark, new), rescaled(state.manifest, shards, partitions))
    print(
        f"{new}: {begun.shards} shards on {begun.partitions} partitions, "
        f"where {path} has {state.manifest.shards} on {state.manifest.partitions}"
    )


def _session() -> SparkSession:
    from headrace.engine.spark.session import spark_session

    return spark_session()


def _show(found: StateSummary) -> None:
    manifest = found.manifest
    batch = "before its first micro-batch" if found.batch is None else f"after micro-batch {found.batch}"
    age = "" if found.time is None else f", {_age(found.time)} old ({format_instant(found.time)})"
    keys = f"{manifest.slots:,} slots" if manifest.slots else "no slots (an earlier version)"
    print(f"{found.path}: stream {manifest.stream[:8]}, {batch}{age}")
    print(f"format {manifest.format}, {manifest.shards} shards on {manifest.partitions} partitions, {keys}")
    sources = Table("source", "kind", "position", box=None)
    for source in found.sources:
        offsets = ", ".join(f"{partition}: {offset:,}" for partition, offset in sorted(source.offsets.items()))
        sources.add_row(source.label, source.description, offsets or "-")
    _print(sources)
    print(f"{found.files:,} files read")
    groupings = Table("grouping", "level", "shards", "keys", "rows", "bytes", "watermark", "output", box=None)
    for grouping in found.groupings:
        groupings.add_row(*_row(grouping))
    _print(groupings)


def _row(grouping: GroupingSummary) -> tuple[str, ...]:
    counts = (grouping.keys, grouping.rows, grouping.bytes)
    times = (grouping.watermark, grouping.output)
    return (
        grouping.label,
        str(grouping.level),
        str(grouping.shards),
        *("-" if count is None else f"{count:,}" for count in counts),
        *("-" if each is None else format_instant(each) for each in times),
    )


def _age(moment: int | None) -> str:
    if moment is None:
        return "-"
    seconds = max(int(time.time()) - moment // SECOND, 0)
    return format_duration(seconds * SECOND)


def _print(table: Table) -> None:
    # A pipe has no width: lines there are as long as they are.
    Console(width=None if sys.stdout.isatty() else 10_000).print(table)
