"""Runs the autocompletion and word-count examples over generated messages, and checks their answers.

    python examples/chatter.py [LINES]

The messages are the same in every run. Prints tables of both answers and the time of each step. At the end, plain
Python counts everything again: each number that the pipelines wrote must be the same.
"""

import json
import sys
import time
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import numpy as np
from autocomplete import autocomplete, hashtags, prefixes
from rich.console import Console
from rich.table import Table
from wordcount import WordCount, count_words, words

import headrace as hr
from headrace.commands.progressbar import watch
from headrace.engine.spark.session import spark_session

CHATTER, COMPLETIONS, COUNTS = "out/chatter/chatter.txt", "out/chatter/completions", "out/chatter/counts"
START = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTES = 30
# fmt: off
NOUNS = [
    "river", "water", "mill", "wheel", "stone", "corn", "flour", "bread", "miller", "sluice", "weir", "pond", "bridge",
    "boat", "fish", "reed", "rain", "storm", "spring",
]
VERBS = ["turns", "grinds", "flows", "rises", "falls", "stops", "sings", "floods", "freezes", "thaws", "runs", "rests"]
# fmt: on


def make_chatter(path: str, lines: int, seed: int = 1) -> None:
    """Writes lines with timestamps, words and hashtags; a few words are frequent, other ones every minute."""
    random = np.random.default_rng(seed)
    tags = [*NOUNS, *(first + second for first in NOUNS for second in (*NOUNS, *VERBS) if first != second)]
    seconds = random.integers(0, MINUTES * 60, lines)  # in no order
    nouns = (zipf_ranks(random, len(NOUNS), lines) + seconds // 60) % len(NOUNS)
    verbs = (zipf_ranks(random, len(VERBS), lines) + seconds // 60) % len(VERBS)
    tagged = zipf_ranks(random, len(tags), 2 * lines).reshape(2, lines)
    Path(path).parent.mkdir(parents=True, exist_ok=True)
    with open(path, "w") as file:
        for second, noun, verb, tag1, tag2 in zip(*np.stack([seconds, nouns, verbs, *tagged]).tolist(), strict=True):
            at = (START + timedelta(seconds=second)).strftime("%Y-%m-%dT%H:%M:%SZ")
            file.write(f"{at} The {NOUNS[noun]} {VERBS[verb]}. #{tags[tag1]} #{tags[tag2]}\n")


def zipf_ranks(random: np.random.Generator, items: int, n: int) -> np.ndarray:
    """Draws n numbers from 0 to items - 1 by Zipf's law: k is k + 1 times as rare as 0."""
    weights = 1 / np.arange(1, items + 1)
    return random.choice(items, n, p=weights / weights.sum())


def completions_of(source: str, target: str) -> hr.Pipeline:
    """Builds the pipeline that writes completions."""
    p = hr.Pipeline()
    autocomplete(p | hr.ReadText(source)) | hr.WriteJson(target, existing="replace")
    return p


def counts_of(source: str, target: str) -> hr.Pipeline:
    """Builds the pipeline that writes word counts."""
    p = hr.Pipeline()
    count_words(p | hr.ReadText(source)) | "rows" >> hr.MapTuple(WordCount) | hr.WriteJson(target, existing="replace")
    return p


Completions = dict[str, list[tuple[int, str]]]
Counts = dict[tuple[str, str], int]


def read_completions(folder: str) -> Completions:
    """Reads the completions that a pipeline wrote."""
    return {prefix: [(count, tag) for count, tag in tags] for prefix, tags in read_json(folder)}


def read_counts(folder: str) -> Counts:
    """Reads the counts that a pipeline wrote, by minute and word."""
    return {(row["window_start"][11:16], row["word"]): row["times"] for row in read_json(folder)}


def read_json(folder: str) -> Iterator[Any]:
    for part in Path(folder).glob("part-*"):
        yield from map(json.loads, part.read_text().splitlines())


def recount(path: str) -> tuple[Completions, Counts]:
    """Computes both answers in plain Python, one line after the other."""
    tags: Counter[str] = Counter()
    counts: Counter[tuple[str, str]] = Counter()
    with open(path) as file:
        for line in file:
            tags.update(hashtags(line))
            counts.update((line[11:16], word) for word in words(line))
    completions: Completions = {}
    for counted in tags.items():
        for prefix, tag in prefixes(counted):
            completions.setdefault(prefix, []).append(tag)
    return {prefix: sorted(tags, reverse=True)[:3] for prefix, tags in completions.items()}, dict(counts)


def completion_table(completions: Completions, typed: str) -> Table:
    """Makes a table of the completions offered while someone types, letter by letter, where they change."""
    table = Table("typed", "1st", "2nd", "3rd", title=f"Typing #{typed}", title_justify="left")
    offered: list[tuple[int, str]] = []
    for end in range(1, len(typed) + 1):
        before, offered = offered, completions.get(typed[:end], [])
        if offered != before:
            table.add_row(f"#{typed[:end]}", *(f"{tag} [dim]{count:,}[/]" for count, tag in offered))
    return table


def count_table(counts: Counts, minutes: int = 5) -> Table:
    """Makes a table of the first minutes and their most frequent words other than "the"."""
    table = Table("minute", "1st", "2nd", "3rd", "4th", title="Most frequent words by minute", title_justify="left")
    for minute in sorted({minute for minute, _ in counts})[:minutes]:
        of_minute = [(n, word) for (at, word), n in counts.items() if at == minute and word != "the"]
        table.add_row(minute, *(f"{word} [dim]{n:,}[/]" for n, word in sorted(of_minute, reverse=True)[:4]))
    return table


def main(lines: str = "200000") -> None:
    console = Console()

    def done(step: str, since: float) -> float:
        now = time.perf_counter()
        console.print(f"[green]✓[/] {step} [dim]{now - since:.1f} s[/]", highlight=False)
        return now

    at = time.perf_counter()
    make_chatter(CHATTER, int(lines))
    at = done(f"wrote {int(lines):,} lines of chatter to {CHATTER}", at)
    console.print("[dim]  starting Spark ...[/]")
    spark_session()
    at = done("started Spark", at)
    watch(completions_of(CHATTER, COMPLETIONS).run())
    at = done("autocompletion: tags → counts → prefixes → top 3 of each", at)
    watch(counts_of(CHATTER, COUNTS).run())
    at = done("word count per minute", at)

    completions, counts = read_completions(COMPLETIONS), read_counts(COUNTS)
    console.print()
    console.print(completion_table(completions, "waterweir"))
    console.print(count_table(counts))
    at = time.perf_counter()
    if (completions, counts) != recount(CHATTER):
        sys.exit("The answers differ from a recount in plain Python: this is a bug of Headrace, please report it.")
    done(f"{len(completions):,} completions and {len(counts):,} word counts: each equals a recount in plain Python", at)


if __name__ == "__main__":
    main(*sys.argv[1:])
