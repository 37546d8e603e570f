"""Adds up the scores of a game in three kinds of windows of event time, in one batch.

    python examples/user_scores.py [INPUT]

INPUT is a CSV file with the columns score, event_time and arrival; without it, the example writes the table below.
Arrival is the time at which the system got a score; in a batch it does not matter. Prints the windows and their totals.
"""

import sys
from pathlib import Path
from typing import NamedTuple

import headrace as hr


def total(scores: hr.PCollection, window: hr.WindowFn) -> hr.PCollection:
    """Adds up scores in these windows."""
    return scores | hr.WindowInto(window) | hr.GroupBy().aggregate(score=hr.sum("score"))


WINDOWS = {
    "everything": hr.GlobalWindows(),
    "two minutes": hr.FixedWindows("2 minutes"),
    "sessions with a gap of 61 s": hr.Sessions("61 seconds"),
}

SCORES = """\
score,event_time,arrival
5,2026-01-01T12:00:26Z,2026-01-01T12:05:19Z
9,2026-01-01T12:01:26Z,2026-01-01T12:08:19Z
7,2026-01-01T12:02:26Z,2026-01-01T12:05:39Z
8,2026-01-01T12:03:06Z,2026-01-01T12:07:06Z
3,2026-01-01T12:03:39Z,2026-01-01T12:06:13Z
4,2026-01-01T12:04:19Z,2026-01-01T12:06:39Z
3,2026-01-01T12:06:39Z,2026-01-01T12:07:19Z
8,2026-01-01T12:07:26Z,2026-01-01T12:08:39Z
1,2026-01-01T12:07:46Z,2026-01-01T12:09:00Z
"""


class Score(NamedTuple):
    score: int
    event_time: str
    arrival: str


def run(source: str) -> dict[str, list[tuple[hr.Window, int]]]:
    """Returns the windows and their totals, for each kind of windows."""
    with hr.Pipeline() as p:
        scores = p | hr.ReadCsv(source, schema=Score, event_time="event_time")
        totals = {name: total(scores, window) | hr.Collect() for name, window in WINDOWS.items()}
    return {name: sorted((row.window, row.value.score) for row in rows.windowed) for name, rows in totals.items()}


def main(source: str | None = None) -> None:
    for name, totals in run(source or write_input()).items():
        print(name)
        for window, score in totals:
            print(f"  {score:4}  {window}")


def write_input() -> str:
    """Writes the table as a CSV file and returns its path."""
    path = Path("out/user-scores.csv")
    path.parent.mkdir(exist_ok=True)
    path.write_text(SCORES)
    return str(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
