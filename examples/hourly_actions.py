"""Counts actions per hour, from JSON files into a database table: a stream with early and late panes, and upserts.

    python examples/hourly_actions.py [DATABASE]

DATABASE is a URL, such as postgresql://user:password@host/database; without it, the example writes a SQLite file. It
also writes its input files and reads them as a stream, one per micro-batch. Each micro-batch emits a pane for each hour
that it changed, and the pane replaces the hour's row: late files only correct numbers, and the table is always up to
date. Prints the table.
"""

import json
import random
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import sqlalchemy as sa

import headrace as hr

ACTIONS = ("open", "close", "ship")
TABLE = "hourly_actions"


def pipeline(source: str, database: str) -> hr.Pipeline:
    """Builds the pipeline from files to the table."""
    p = hr.Pipeline()
    hourly = (
        p
        | hr.ReadJson(source, schema="action string, at timestamp", event_time="at")
        | hr.WindowInto(
            hr.FixedWindows("1 hour"),
            trigger=hr.AfterWatermark(early=hr.AfterCount(1), late=hr.AfterCount(1)),
            accumulation="accumulating",
            allowed_lateness="1 day",
        )
        | hr.GroupBy("action").aggregate(n=hr.count())
    )
    hourly | hr.WriteTable(database, TABLE, key=["action", "window_start"], mode="upsert")
    return p


def make_events(folder: Path, *, files: int = 4, events: int = 500) -> None:
    """Writes files with events of six hours, in no order."""
    generator = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        times = [
            datetime(2026, 1, 1, 8, tzinfo=UTC) + timedelta(seconds=generator.randrange(6 * 3600))
            for _ in range(events)
        ]
        lines = [json.dumps({"action": generator.choice(ACTIONS), "at": time.isoformat()}) for time in times]
        (folder / f"{number}.json").write_text("\n".join(lines))


def read_table(database: str) -> list[tuple[str, dict[str, int]]]:
    """Reads the table: hours with their counts by action."""
    engine = sa.create_engine(database.replace("postgresql:", "postgresql+psycopg:"))
    with engine.connect() as connection:
        rows = connection.execute(sa.text(f"SELECT window_start, action, n FROM {TABLE} ORDER BY window_start")).all()
    hours: dict[str, dict[str, int]] = {}
    for start, action, n in rows:
        hours.setdefault(str(start)[:13], {})[action] = n
    return list(hours.items())


def main(database: str | None = None) -> None:
    folder = Path("out/hourly-actions")
    make_events(folder)
    if database is None:
        Path(folder, "actions.db").unlink(missing_ok=True)
        database = f"sqlite:///{folder}/actions.db"
    pipeline(f"{folder}/*.json", database).run(stream=True, max_files_per_batch=1).wait()
    print(f"{'hour':15}", *(f"{action:>6}" for action in ACTIONS))
    for hour, counts in read_table(database):
        print(f"{hour:15}", *(f"{counts.get(action, 0):6}" for action in ACTIONS))
    total = sum(n for _, counts in read_table(database) for n in counts.values())
    print(f"{total} events in the table {TABLE} of {sa.make_url(database)}")  # a URL prints without its password


if __name__ == "__main__":
    main(*sys.argv[1:])
