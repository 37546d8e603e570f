"""The commands of `headrace topic`: create, fill, read and manage topics of the embedded log."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import typer
from rich.console import Console
from rich.table import Table

from headrace.commands.errors import errors_as_messages
from headrace.log.errors import LogError
from headrace.log.groups import Consumer, Group, Offset, Start, start_of
from headrace.log.producers import Producer
from headrace.log.topics import Log, Topic
from headrace.log.values import Record
from headrace.model.errors import HeadraceError
from headrace.model.times import duration, format_duration, format_instant, instant

topic = typer.Typer(help="Topics of the embedded log.", no_args_is_help=True, pretty_exceptions_enable=False)

Directory = Annotated[
    str, typer.Option("--log", envvar="HEADRACE_LOG", help="The directory of the log.", show_default=True)
]
Name = Annotated[str, typer.Argument(help="The topic.", show_default=False)]
HERE = "headrace-log"

_POLL_SECONDS = 0.2
_START = "earliest, latest, an offset such as @42, or a time"


@topic.command()
def create(
    name: Name,
    log: Directory = HERE,
    partitions: Annotated[int, typer.Option(help="The number of partitions.")] = 1,
    values: Annotated[
        str, typer.Option(help='"json", "bytes", or columns such as "user string, ts timestamp".')
    ] = "json",
    keep: Annotated[
        str | None, typer.Option(help='Remove records older than this, e.g. "7 days".', show_default=False)
    ] = None,
    keep_bytes: Annotated[
        int | None, typer.Option(help="Keep about so many bytes in each partition.", show_default=False)
    ] = None,
) -> None:
    """Create a topic."""
    with errors_as_messages(HeadraceError, ValueError):
        age = None if keep is None else duration(keep)
        Log(log).create(name, partitions=partitions, values=values, keep_age=age, keep_bytes=keep_bytes)
    print(f"created {name}: {partitions} partition{'s' * (partitions > 1)} of {values}")


@topic.command("list")
def show_all(log: Directory = HERE) -> None:
    """List the topics."""
    table = Table("topic", "partitions", "records", "values", box=None)
    with errors_as_messages(HeadraceError, ValueError):
        for name in Log(log).topics():
            opened = Log(log).topic(name)
            records = sum(partition.next_offset() - partition.earliest() for partition in opened.partitions)
            table.add_row(name, str(len(opened.partitions)), f"{records:,}", opened.settings.values)
    _print(table)


@topic.command()
def describe(name: Name, log: Directory = HERE) -> None:
    """Show the partitions of a topic."""
    with errors_as_messages(HeadraceError, ValueError):
        opened = Log(log).topic(name)
        settings = opened.settings
        age = "for ever" if settings.keep_age is None else f"for {format_duration(settings.keep_age)}"
        size = "" if settings.keep_bytes is None else f", at most {settings.keep_bytes:,} bytes a partition"
        print(f"{name}: {settings.values}, kept {age}{size}")
        table = Table("partition", "first", "next", "earliest", "latest", "bytes", box=None)
        for number, partition in enumerate(opened.partitions):
            earliest, latest, octets = partition.spans()
            times = (format_instant(earliest), format_instant(latest)) if octets else ("-", "-")
            offsets = partition.earliest(), partition.next_offset()
            table.add_row(str(number), *map(str, offsets), *times, f"{octets:,}")
    _print(table)


@topic.command()
def produce(
    name: Name,
    log: Directory = HERE,
    key: Annotated[str | None, typer.Option(help="The field that has the key.", show_default=False)] = None,
    timestamp: Annotated[str | None, typer.Option(help="The field that has the timestamp.", show_default=False)] = None,
    partition: Annotated[int | None, typer.Option(help="The partition of all records.", show_default=False)] = None,
) -> None:
    """Append the lines of standard input: JSON, or plain lines if the topic's values are bytes."""
    sent = refused = 0
    with errors_as_messages(), Producer(Log(log).topic(name)) as producer:
        for number, line in enumerate(sys.stdin.buffer, 1):
            try:
                value, fields = _parse(producer.topic, line.rstrip(b"\r\n"))
                producer.send(
                    value,
                    key=None if key is None else _text(fields[key]),
                    timestamp=None if timestamp is None else instant(fields[timestamp]),
                    partition=partition,
                )
                sent += 1
            except (ValueError, KeyError, TypeError) as error:
                refused += 1
                what = f"no field {error}" if isinstance(error, KeyError) else error
                print(f"line {number} refused: {what}", file=sys.stderr)
    print(f"{sent:,} records" + (f", {refused:,} lines refused" if refused else ""))
    if refused:
        raise typer.Exit(1)


@topic.command()
def consume(
    name: Name,
    log: Directory = HERE,
    group: Annotated[
        str | None, typer.Option(help="Continue where this consumer group was, and commit.", show_default=False)
    ] = None,
    start: Annotated[str, typer.Option("--from", help=f"{_START}.")] = "earliest",
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Wait for more records.")] = False,
    most: Annotated[int | None, typer.Option("--max", help="Stop after so many records.", show_default=False)] = None,
    meta: Annotated[bool, typer.Option("--meta", help="Show partition, offset, time and key as well.")] = False,
) -> None:
    """Print records, one per line."""
    with errors_as_messages(HeadraceError, ValueError):
        records = (
            _records_of_group(log, name, group, start, follow) if group else _records_of_topic(log, name, start, follow)
        )
        try:
            for number, record in enumerate(records, 1):
                sys.stdout.write(_format(record, meta=meta) + "\n")
                sys.stdout.flush()
                if number == most:
                    return
        except KeyboardInterrupt:
            raise typer.Exit(130) from None


@topic.command()
def groups(name: Name, log: Directory = HERE) -> None:
    """Show the consumer groups of a topic, with their offsets and lags."""
    table = Table("group", "partition", "offset", "lag", "members", box=None)
    with errors_as_messages(HeadraceError, ValueError):
        for group_name in Group.names(Log(log), Log(log).topic(name).name):
            group = Group(Log(log), name, group_name)
            committed, lag, members = group.committed(), group.lag(), len(group.members())
            for partition, behind in lag.items():
                offset = str(committed.get(partition, "-"))
                table.add_row(group_name, str(partition), offset, f"{behind:,}", str(members))
    _print(table)


@topic.command()
def reset(
    name: Name,
    group: Annotated[str, typer.Option(help="The group to move.", show_default=False)],
    to: Annotated[str, typer.Option(help=f"{_START}.", show_default=False)],
    log: Directory = HERE,
    partition: Annotated[int | None, typer.Option(help="Move in this partition only.", show_default=False)] = None,
) -> None:
    """Move a group to the start, the end, an offset or a time."""
    with errors_as_messages(HeadraceError, ValueError):
        for number, offset in Group(Log(log), name, group).reset(_parse_start(to), partition).items():
            print(f"{name}/{number}: {offset}")


@topic.command()
def retain(
    name: Name,
    log: Directory = HERE,
    force: Annotated[bool, typer.Option("--force", help="Remove also what a group has still to read.")] = False,
) -> None:
    """Remove now the records beyond the topic's limits, except those that a group has still to read."""
    with errors_as_messages(HeadraceError, ValueError):
        removed = Log(log).topic(name).retain(force=force)
    print(f"{removed:,} records removed")


def _records_of_group(log: str, name: str, group: str, start: str, follow: bool) -> Iterator[Record]:
    if start not in ("earliest", "latest"):
        raise LogError(
            f"a group starts at earliest or latest, got {start!r}; move it to a time with `headrace topic reset`"
        )
    begin: Start = "latest" if start == "latest" else "earliest"
    with Consumer(Log(log), name, group, start=begin) as consumer:
        yield from _follow(consumer.poll, follow)


def _records_of_topic(log: str, name: str, start: str, follow: bool) -> Iterator[Record]:
    opened = Log(log).topic(name)
    positions = {number: start_of(opened, number, _parse_start(start)) for number in range(len(opened.partitions))}

    def poll() -> list[Record]:
        records: list[Record] = []
        for number, offset in positions.items():
            records += opened.read(number, offset)
            positions[number] = records[-1].offset + 1 if records and records[-1].partition == number else offset
        return sorted(records, key=lambda record: record.timestamp)

    yield from _follow(poll, follow)


def _follow(poll: Callable[[], list[Record]], follow: bool) -> Iterator[Record]:
    while True:
        records = poll()
        yield from records
        if not records:
            if not follow:
                return
            time.sleep(_POLL_SECONDS)


def _parse_start(text: str) -> Start | int:
    if text.startswith("@") and text[1:].isdigit():
        return Offset(text[1:])
    return "earliest" if text == "earliest" else "latest" if text == "latest" else instant(text)


def _parse(topic: Topic, line: bytes) -> tuple[Any, dict[str, Any]]:
    if topic.values.kind == "bytes":
        return line, {}
    value = json.loads(line)
    topic.values.encode([value])  # a bad line must not fail the batch that it would be appended with
    return value, value if isinstance(value, dict) else {}


def _text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def _format(record: Record, *, meta: bool) -> str:
    value = record.value.decode(errors="replace") if isinstance(record.value, bytes) else _json(record.value)
    if not meta:
        return value
    key = "-" if record.key is None else record.key.decode(errors="replace")
    return f"{record.partition}/{record.offset}\t{format_instant(record.timestamp)}\t{key}\t{value}"


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=lambda other: getattr(other, "isoformat", other.__repr__)())


def _print(table: Table) -> None:
    Console(soft_wrap=True).print(table)
