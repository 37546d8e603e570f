"""The stream on a cluster that suffers faults: two levels of groupings, from Kafka to tables, a topic and files.

    python tests/chaos/clusterjob.py FOLDER SOURCE SINK DATABASE

begins the stream of a folder, or goes on with it, on the master of SPARK_MASTER, and ends with the topic.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any, Final, NamedTuple

import headrace as hr
from headrace.engine.spark.session import spark_session

Output = dict[str, Counter[str]]

EVENTS: Final = 600
PER_BATCH: Final = 100
_SETTINGS: Final = {
    "spark.log.level": "ERROR",
    # An executor that is silent is given up after seconds, so that a test need not wait for the default, two minutes.
    "spark.executor.heartbeatInterval": "1s",
    "spark.network.timeout": "8s",
    "spark.network.timeoutInterval": "1s",
    "spark.storage.blockManagerHeartbeatTimeoutMs": "8s",
    "spark.shuffle.io.maxRetries": "1",
    "spark.shuffle.io.retryWait": "1s",
    # A task that failed is tried on another executor: one with a full disk would fail it as often as it is tried.
    "spark.excludeOnFailure.enabled": "true",
    "spark.excludeOnFailure.task.maxTaskAttemptsPerExecutor": "1",
    "spark.excludeOnFailure.timeout": "20s",
    "spark.task.maxFailures": "8",
}


class Event(NamedTuple):
    user: str
    n: int
    second: float


def event(n: int) -> Event:
    return Event(f"u{n * n % 11}", n, n / 10)


def messages() -> list[tuple[bytes, bytes, int]]:
    """The records of the source: key, value, and time in milliseconds."""
    return [(each.user.encode(), json.dumps(each._asdict()).encode(), 1000) for each in map(event, range(EVENTS))]


def slow(each: Event) -> Event:
    """Takes its time, so that there are tasks to be hit."""
    sum(range(50_000))
    return each


def run(folder: Path, source: str, sink: str, database: str) -> None:
    import clusterjob as job  # by its own name, which executors can import

    p = hr.Pipeline(spark=spark_session(config=_SETTINGS))
    trigger = hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1))
    windows = hr.WindowInto(hr.FixedWindows(20), trigger=trigger, accumulation="retracting", allowed_lateness="1 day")
    read = p | hr.ReadTopic(source, schema=job.Event, event_time="second", end="latest")
    events = read | hr.Map(job.slow).with_output_types(job.Event)
    events | "copy" >> hr.WriteTopic(sink, key="user")
    events | "show" >> hr.Map(lambda each: f"{each.user} {each.n}") | "raw" >> hr.WriteText(str(folder / "raw"))
    sums = events | hr.Map(lambda each: (each.user, each.n)) | windows | "sums" >> hr.CombinePerKey(sum)
    kept = hr.WriteTable(database, "sums", columns=["user", "total"], key=["user", "window_start"], mode="upsert")
    sums | "keep sums" >> kept
    totals = sums | hr.Map(lambda pair: ("all", pair[1])) | "totals" >> hr.CombinePerKey(sum)
    retracted = hr.WriteTable(
        database, "totals", columns=["name", "total"], key=["name", "window_start"], mode="retract"
    )
    totals | "keep totals" >> retracted
    p.run(stream=True, checkpoint=str(folder / "checkpoint"), max_records_per_batch=PER_BATCH).wait()


def expected() -> Output:
    """What the sinks must have, computed event by event."""
    events = [event(n) for n in range(EVENTS)]
    sums: Counter[tuple[str, int]] = Counter()
    totals: Counter[int] = Counter()
    for user, n, second in events:
        sums[user, int(second // 20) * 20] += n
        totals[int(second // 20) * 20] += n
    return {
        "copy": Counter(f"{each.user} {each.n}" for each in events),
        "raw": Counter(f"{each.user} {each.n}" for each in events),
        "sums": Counter(f"{user} {start} {total}" for (user, start), total in sums.items()),
        "totals": Counter(f"all {start} {total}" for start, total in totals.items()),
    }


def output(folder: Path, copied: list[Any], database: Any) -> Output:
    """What the sinks have, as multisets: `copied` are the messages of the sink, `database` is a connection."""

    def rows(table: str, name: str) -> Counter[str]:
        query = f'SELECT "{name}", extract(epoch FROM window_start)::int, total FROM {table}'
        return Counter(" ".join(map(str, row)) for row in database.exec_driver_sql(query))

    values = [json.loads(message.value()) for message in copied]
    lines = [line for part in folder.glob("raw/*/part-*") for line in part.read_text().splitlines()]
    return {
        "copy": Counter(f"{each['user']} {each['n']}" for each in values),
        "raw": Counter(lines),
        "sums": rows("sums", "user"),
        "totals": rows("totals", "name"),
    }


if __name__ == "__main__":
    run(Path(sys.argv[1]), *sys.argv[2:])
