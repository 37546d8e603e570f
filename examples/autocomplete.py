"""Hashtag autocompletion: for every prefix one may have typed so far, the three tags used most often.

    python examples/autocomplete.py [INPUT] [OUTPUT]

INPUT is a text file or a folder of them; without it, a tiny one is made. OUTPUT is a folder, which is replaced.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

import headrace as hr

Completion = tuple[str, list[tuple[int, str]]]  # a prefix and (count, tag) pairs, the most frequent first


def autocomplete(lines: hr.PCollection) -> hr.PCollection:
    return (
        lines
        | "tags" >> hr.FlatMap(hashtags)
        | "count" >> hr.Count.per_element()
        | "prefixes" >> hr.FlatMap(prefixes)
        | "top 3" >> hr.Top.largest_per_key(3)
    )


def hashtags(line: str) -> list[str]:
    """The tags of a line: "#To the #mill!" has "to" and "mill"."""
    return re.findall(r"#(\w+)", line.lower())


def prefixes(counted: tuple[str, int]) -> Iterator[tuple[str, tuple[int, str]]]:
    """("to", 3) gives ("t", (3, "to")) and ("to", (3, "to"))."""
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
    for prefix, found in run(source or tiny_input(), target):
        print(f"#{prefix:4}", ", ".join(f"{tag} ({count})" for count, tag in found))
    print(f"all prefixes are in {target}")


def tiny_input() -> str:
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
