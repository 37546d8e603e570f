"""The session of continuous SQL that is killed: views come, go and pause while rows flow, also into another stream.

    python tests/chaos/sqljob.py FOLDER

begins the session of a folder, or goes on with it, and leaves its tables there. Whatever it does, it does once however
often it is started: it declares what is there at first, later statements say IF EXISTS, and the batches of rows are
numbered.
"""

from __future__ import annotations

import sqlite3
import sys
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Final

from job import Output

import headrace as hr
from headrace.engine.spark.session import spark_session
from headrace.log import Log

LANDMARKS: Final = (
    "home/passes/visits.levels-2/spark/offsets/[!.]*",
    "home/catalog.json",
    "home/passes/visits.levels-2/spark/commits/[!.]*",
    "home/log/topics/visits/[01]/*.index",
    "home/views.db",
    "home/passes/visits.levels-2/spark/state/*/*/*.changelog",
    "home/passes/visits.levels-2/headrace-*.json",
    "home/passes/visits.of-totals.levels-2/spark/offsets/[!.]*",
    "home/log/topics/twice/0/*.index",
)
"""Files whose names are the same in every run."""

STEPS: Final = 12
PRODUCER: Final = 7

VIEWS: Final = {
    "often": "SELECT n, count(*) AS users FROM (SELECT user, count(*) AS n FROM visits GROUP BY user) GROUP BY n",
    "totals": "SELECT user, count(*) AS n, sum(amount) AS total FROM visits GROUP BY user",
    "tens": "SELECT user, window_start, count(*) AS n FROM TUMBLE(TABLE visits, DESCRIPTOR(ts), INTERVAL '10' SECONDS) "
    "GROUP BY user, window_start EMIT AFTER WATERMARK",
    "gone": "SELECT max(amount) AS most FROM visits",
    "copies": "SELECT user, amount FROM visits WHERE amount % 2 = 0",
}
TRANSFORM: Final = "SELECT user, 2 * amount AS amount FROM visits WHERE amount % 3 = 0"
TWICE: Final = "SELECT user, sum(amount) AS total FROM twice GROUP BY user"
LATER: Final = "SELECT user, max(amount) AS most FROM visits GROUP BY user"


def run(folder: Path) -> None:
    spark = spark_session("local[2]", {"spark.log.level": "OFF", "spark.sql.shuffle.partitions": "2"})
    with hr.SqlSession(str(folder / "home"), spark=spark) as session:
        changed = "later" in session.catalog.views
        views = {name: query for name, query in {**VIEWS, "sums": TWICE}.items() if name != "gone" or not changed}
        session.declare(
            "CREATE STREAM visits (user text, amount bigint, ts timestamp, WATERMARK FOR ts AS ts) "
            "WITH (partitions = 2);"
            "CREATE STREAM twice (user text, amount bigint);"
            + "".join(f"CREATE VIEW {name} AS {query};" for name, query in views.items())
            + f"CREATE TRANSFORM doubled INTO twice AS {TRANSFORM}"
        )
        for step in range(STEPS):
            if step in (STEPS // 4, STEPS - 2):  # what comes meanwhile is caught up with
                session.execute("PAUSE VIEW totals" if step < STEPS // 2 else "RESUME VIEW totals")
            if step == STEPS // 2:
                session.execute(f"CREATE VIEW IF NOT EXISTS later AS {LATER}; DROP VIEW IF EXISTS gone")
            arrive(Log(folder / "home" / "log"), step)
            session.catch_up()
        session.catch_up()  # with what the transform has appended


def arrive(log: Log, step: int) -> None:
    """Appends the rows of a step, unless they are there."""
    topic = log.topic("visits")
    for partition in (0, 1):
        rows: list[object] = [
            {"user": user, "amount": 10 * step + partition + n, "ts": 3 * step + n}
            for n, user in enumerate("abc"[: 1 + (step + partition) % 3])
        ]
        batch = topic.batch(rows, timestamps=[0] * len(rows))
        topic.partition(partition).append(batch, producer=PRODUCER, sequence=step)


def output(folder: Path) -> Output:
    """What the tables have, as multisets."""
    with closing(sqlite3.connect(folder / "home" / "views.db")) as database:
        names = [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
        tables = sorted(name for name in names if "headrace" not in name)
        found = {name: Counter(map(repr, database.execute(f"SELECT * FROM {name}"))) for name in tables}
    twice = Log(folder / "home" / "log").topic("twice").read(0)
    return {**found, "tables": Counter(tables), "twice": Counter(repr(record.value) for record in twice)}


if __name__ == "__main__":
    run(Path(sys.argv[1]))
