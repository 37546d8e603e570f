"""Word count by the minute: lines with timestamps, windows of one minute, how often each word occurs in each.

    python examples/wordcount.py [INPUT] [OUTPUT]

INPUT has lines such as "2026-01-01T12:00:05Z the wheel turns"; without it, a few are made. OUTPUT is a folder, which
is replaced.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import headrace as hr


def count_words(lines: hr.PCollection) -> hr.PCollection:
    """Pairs (word, how often it occurs), each in the window of its minute."""
    return (
        lines
        | "times" >> hr.WithTimestamps(time_of)
        | "minutes" >> hr.WindowInto(hr.FixedWindows("1 minute"))
        | "words" >> hr.FlatMap(words)
        | "count" >> hr.Count.per_element()
    )


def time_of(line: str) -> str:
    return line.split(maxsplit=1)[0]


def words(line: str) -> list[str]:
    """What comes after the timestamp, in lower case and without signs."""
    return [word for text in line.lower().split()[1:] if (word := text.strip(".,;:!?#"))]


class WordCount(NamedTuple):
    minute: datetime
    word: str
    times: int


def row(counted: tuple[str, int], window: hr.Window = hr.DoFn.WindowParam) -> WordCount:
    """A count with its minute, which so far only its window tells."""
    word, times = counted
    return WordCount(minute_of(window), word, times)


def minute_of(window: hr.Window) -> datetime:
    return datetime.fromtimestamp(window.start / 1_000_000, UTC)


def run(source: str, target: str) -> list[tuple[datetime, list[tuple[str, int]]]]:
    """Writes all counts as JSON lines; returns the three most frequent words of each minute."""
    with hr.Pipeline() as p:
        counts = count_words(p | hr.ReadText(source))
        counts | "rows" >> hr.Map(row) | hr.WriteJson(target, existing="replace")
        top = counts | "top 3" >> hr.Top.largest(3, key=lambda counted: counted[::-1]) | hr.Collect()
    return sorted((minute_of(each.window), each.value) for each in top.windowed)


def main(source: str | None = None, target: str = "out/wordcount") -> None:
    for minute, counts in run(source or tiny_input(), target):
        print(f"{minute:%H:%M} ", ", ".join(f"{word} ({times})" for word, times in counts))
    print(f"all counts are in {target}")


def tiny_input() -> str:
    path = Path("out/wordcount-input.txt")
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "2026-01-01T12:00:05Z The water comes to the wheel,\n"
        "2026-01-01T12:00:40Z the wheel turns the stone.\n"
        "2026-01-01T12:01:10Z The stone grinds corn,\n"
        "2026-01-01T12:01:59Z corn and more corn.\n"
        "2026-01-01T12:00:59Z The wheel turns.\n"  # late in the file, but not in time
    )
    return str(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
