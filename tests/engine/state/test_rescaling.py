"""Streams that go on from a savepoint with other numbers of shards and partitions: the output is that of one stream."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.states import OfFiles, OfTopics, process, written
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Program = type[OfFiles] | type[OfTopics]


def start(program: Program, root: Path, spark: SparkSession, **options: Any) -> Any:
    options |= {"stream": True, "trigger": "100 milliseconds"} if program is OfFiles else {}
    return program.pipeline(root, spark).run(**options)


def outputs(root: Path) -> dict[str, Counter[str]]:
    """What each sink got in all; each stream has written to a directory of its own."""
    found: dict[str, Counter[str]] = {}
    for folder in root.glob("of-*"):
        for sink, batches in written(folder).items():
            found.setdefault(sink, Counter()).update(json.dumps(each) for batch in batches for each in batch)
    return found


def play(program: Program, root: Path, spark: SparkSession, sizes: list[tuple[int, int]]) -> dict[str, Counter[str]]:
    """Runs a stream over three parts of input, each with its own number of shards and partitions."""
    begins: dict[str, Any] = {}
    for part, (shards, partitions) in enumerate(sizes):
        program.arrive(root, part)
        checkpoint = root / f"checkpoint {part}"
        handle = start(program, root, spark, checkpoint=str(checkpoint), shards=shards, partitions=partitions, **begins)
        process(handle)
        if part < len(sizes) - 1:
            handle.savepoint(str(root / f"savepoint {part}"))
            begins = {"savepoint": str(root / f"savepoint {part}")}
        handle.stop(drain=part == len(sizes) - 1)
        shutil.move(root / "out", root / f"of-{part}" / "out")
    return outputs(root)


@pytest.mark.slow("streams of many shards begin anew")
@pytest.mark.parametrize(
    ("program", "sizes"),
    [
        (OfTopics, [(4, 2), (9, 3), (2, 1)]),
        pytest.param(OfTopics, [(4, 2), (64, 4), (2, 2)], marks=only_full("fewer shards prove the same")),
        pytest.param(OfFiles, [(4, 2), (16, 4), (2, 1)], marks=only_full("topics prove the same of all but files")),
    ],
)
@pytest.mark.timeout(900)
def test_a_stream_goes_on_with_other_numbers_of_shards(
    program: Program, sizes: list[tuple[int, int]], spark: SparkSession, tmp_path: Path
) -> None:
    for name in ("one", "several"):
        (tmp_path / name).mkdir(mode=0o700)
    expected = play(program, tmp_path / "one", spark, [sizes[0]] * 3)
    assert play(program, tmp_path / "several", spark, sizes) == expected
    assert all(expected.values())
