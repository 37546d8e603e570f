"""Counts words per minute: event times from the data, and windows of one minute, in a batch.

    python examples/wordcount.py [INPUT] [OUTPUT]

INPUT is a text file with lines such as "2026-01-01T12:00:05Z the wheel turns"; without it, the example writes a small
one. OUTPUT is a folder for all counts, as JSON lines; it is replaced. Prints the most frequent words of each minute.
"""

import sys
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

import headrace as hr


def count_words(lines: hr.PCollection) -> hr.PCollection:
    """Counts the words of lines: gives pairs (word, count) in windows of one minute."""
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
    """Splits the text after the timestamp into words, in lower case and without punctuation."""
    return [word for text in line.lower().split()[1:] if (word := text.strip(".,;:!?#"))]


class WordCount(NamedTuple):
    """A row of the output; its window is written beside it."""

    word: str
    times: int


def minute_of(window: hr.Window) -> datetime:
    return datetime.fromtimestamp(window.start / 1_000_000, UTC)


def run(source: str, target: str) -> list[tuple[datetime, list[tuple[str, int]]]]:
    """Writes all counts as JSON lines; returns the three most frequent words of each minute."""
    with hr.Pipeline() as p:
        counts = count_words(p | hr.ReadText(source))
        counts | "rows" >> hr.MapTuple(WordCount) | hr.WriteJson(target, existing="replace")
        top = counts | "top 3" >> hr.Top.largest(3, key=lambda counted: counted[::-1]) | hr.Collect()
    return sorted((minute_of(element.window), element.value) for element in top.windowed)


def main(source: str | None = None, target: str = "out/wordcount") -> None:
    for minute, counts in run(source or write_input(), target):
        print(f"{minute:%H:%M} ", ", ".join(f"{word} ({times})" for word, times in counts))
    print(f"wrote all counts to {target}")


def write_input() -> str:
    """Writes a small input file and returns its path."""
    path = Path("out/wordcount-input.txt")
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "2026-01-01T12:00:05Z The water comes to the wheel,\n"
        "2026-01-01T12:00:40Z the wheel turns the stone.\n"
        "2026-01-01T12:01:10Z The stone grinds corn,\n"
        "2026-01-01T12:01:59Z corn and more corn.\n"
        "2026-01-01T12:00:59Z The wheel turns.\n"  # last in the file, but not last in event time
    )
    return str(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
