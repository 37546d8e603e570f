"""How often each action happened in each hour, from JSON files into a table of a database.

    python examples/hourly_actions.py [DATABASE]

DATABASE is a URL, such as postgresql://user:password@host/database; without it, it is a file of SQLite. The files are
made. They are read as a stream, one a micro-batch, with a pane for each; every pane replaces its row in the table.
Files that come late only change numbers: the table always has what is known so far.
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
    """Events of six hours, in files that are in no order."""
    chance = random.Random(7)
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(files):
        times = [
            datetime(2026, 1, 1, 8, tzinfo=UTC) + timedelta(seconds=chance.randrange(6 * 3600)) for _ in range(events)
        ]
        lines = [json.dumps({"action": chance.choice(ACTIONS), "at": time.isoformat()}) for time in times]
        (folder / f"{number}.json").write_text("\n".join(lines))


def read_table(database: str) -> list[tuple[str, dict[str, int]]]:
    """The table by the hour."""
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
    print(f"{total} events in {TABLE} of {sa.make_url(database)}")  # which shows no password


if __name__ == "__main__":
    main(*sys.argv[1:])
