"""Counts of elements per transform, gathered from the workers while a pipeline runs."""

from __future__ import annotations

from collections import Counter
from typing import Any

from pyspark import SparkContext
from pyspark.accumulators import Accumulator, AccumulatorParam


class _Adding(AccumulatorParam[Counter[Any]]):
    def zero(self, value: Counter[Any]) -> Counter[Any]:
        return Counter()

    def addInPlace(self, value1: Counter[Any], value2: Counter[Any]) -> Counter[Any]:
        value1.update(value2)
        return value1


class Counters:
    """Elements in and out of each transform. A task that Spark runs again counts again."""

    def __init__(self, context: SparkContext) -> None:
        self._total: Accumulator[Counter[Any]] = context.accumulator(Counter(), _Adding())

    def add(self, counts: Counter[tuple[str, str]]) -> None:
        """Called in a worker, once a task."""
        self._total.add(counts)

    def metrics(self) -> dict[str, dict[str, int]]:
        """By label: how many elements went in and came out."""
        by_label: dict[str, dict[str, int]] = {}
        for (label, way), count in sorted(self._total.value.items()):
            by_label.setdefault(label, {})[way] = count
        return by_label
