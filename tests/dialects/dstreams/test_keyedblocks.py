"""Combining and exchanging pairs, without Spark."""

from __future__ import annotations

import operator
from collections import Counter
from typing import Any

import pytest
from pyspark.core.rdd import portable_hash

from headrace.dialects.dstreams.worker import keyedblocks
from headrace.dialects.dstreams.worker.keyedblocks import Combiner, combine, gather, merge_encoded, split
from headrace.model.pickling import dumps

KEYS: list[Any] = ["a", "b", 1, 2.5, True, None, (1, "x"), (None, 2), b"bytes", -7]


def test_partitions_are_those_of_spark(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONHASHSEED", "0")  # as workers have it
    parts = split(dict.fromkeys(KEYS, 0), 5)
    assert all(portable_hash(key) % 5 == number for number, part in enumerate(parts) for key in part)
    assert sum(map(len, parts)) == len(set(KEYS))


@pytest.mark.parametrize("most", [1, 2, 100])
def test_many_keys_are_sent_on_in_parts(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    monkeypatch.setattr(keyedblocks, "_MOST_KEYS", most)
    pairs = [(number % 7, number) for number in range(50)]
    sums = Counter({key: sum(value for k, value in pairs if k == key) for key in range(7)})
    for combiner in (
        Combiner(None, operator.add, operator.add),
        Combiner(None, lambda a, b: b + a, operator.add),
        Combiner(lambda value: value, operator.add, operator.add),
    ):
        found: Counter[int] = Counter()
        for part in combine(pairs, combiner):
            assert len(part) <= most
            found.update(part)
        assert found == sums
    values = [(key, value) for part in gather(pairs) for key, values in part.items() for value in values]
    assert sorted(values) == sorted(pairs)


@pytest.mark.parametrize("large", [0, 1 << 20])
def test_large_blocks_are_merged_with_the_help_of_the_disk(large: int) -> None:
    blocks = [(0, dumps((0, task, {"a": task, task: 1}))) for task in range(4)]
    assert dict(merge_encoded(blocks, operator.add, large)) == {"a": 6, 0: 1, 1: 1, 2: 1, 3: 1}
