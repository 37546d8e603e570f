"""Autocompletes hashtags: computes the three most frequent tags for every prefix. A first batch pipeline.

    python examples/autocomplete.py [INPUT] [OUTPUT]

INPUT is a text file or a folder of text files; without it, the example writes a small one. OUTPUT is a folder for the
completions of all prefixes, as JSON lines; it is replaced. Prints the completions of prefixes of one or two letters.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import headrace as hr

Completion = tuple[str, list[tuple[int, str]]]  # a prefix and (count, tag) pairs, the most frequent first


def autocomplete(lines: hr.PCollection) -> hr.PCollection:
    """Applies the transforms of the example to lines of text; gives Completions."""
    return (
        lines
        | "tags" >> hr.FlatMap(hashtags)
        | "count" >> hr.Count.per_element()
        | "prefixes" >> hr.FlatMap(prefixes)
        | "top 3" >> hr.Top.largest_per_key(3)
    )


def hashtags(line: str) -> list[str]:
    """Finds the tags of a line: "#To the #mill!" has "to" and "mill"."""
    return re.findall(r"#(\w+)", line.lower())


def prefixes(counted: tuple[str, int]) -> Iterator[tuple[str, tuple[int, str]]]:
    """Pairs a counted tag with each of its prefixes: ("to", 3) gives ("t", (3, "to")) and ("to", (3, "to"))."""
    tag, count = counted
    for end in range(1, len(tag) + 1):
        yield tag[:end], (count, tag)


def run(source: str, target: str) -> list[Completion]:
    """Writes the completions of all prefixes as JSON lines; returns those of one or two letters."""
    with hr.Pipeline() as p:
        completions = autocomplete(p | hr.ReadText(source))
        completions | hr.WriteJson(target, existing="replace")
        short = completions | "short" >> hr.Filter(lambda completion: len(completion[0]) <= 2) | hr.Collect()
    return sorted(short)


def main(source: str | None = None, target: str = "out/autocomplete") -> None:
    for prefix, tags in run(source or write_input(), target):
        print(f"#{prefix:4}", ", ".join(f"{tag} ({count})" for count, tag in tags))
    print(f"wrote the completions of all prefixes to {target}")


def write_input() -> str:
    """Writes a small input file and returns its path."""
    path = Path("out/autocomplete-input.txt")
    path.parent.mkdir(exist_ok=True)
    path.write_text(
        "Is #this the way #to the mill?\n"
        "#This way or #that way, all water comes #to the wheel.\n"
        "And then it is off #to sea.\n"
    )
    return str(path)


if __name__ == "__main__":
    main(*sys.argv[1:])
