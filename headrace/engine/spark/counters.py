"""Counters that workers add to while a pipeline runs: elements per transform, bad records, reports of shards.

With them come the metrics that users' functions record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import Any

from pyspark import SparkContext, TaskContext
from pyspark.accumulators import Accumulator, AccumulatorParam

from headrace.model.badrecords import FAILED_EXPRESSION, REASONS, BadRecords
from headrace.model.elementwise import DeadLetter
from headrace.model.metriccells import Cells, merge_cells


class _Adding(AccumulatorParam[Counter[Any]]):
    def zero(self, value: Counter[Any]) -> Counter[Any]:
        return Counter()

    def addInPlace(self, value1: Counter[Any], value2: Counter[Any]) -> Counter[Any]:
        value1.update(value2)
        return value1


class _Replacing(AccumulatorParam[dict[str, Any]]):
    def zero(self, value: dict[str, Any]) -> dict[str, Any]:
        return {}

    def addInPlace(self, value1: dict[str, Any], value2: dict[str, Any]) -> dict[str, Any]:
        return {**value1, **value2}


class _Updating(AccumulatorParam[dict[Any, Cells]]):
    def zero(self, value: dict[Any, Cells]) -> dict[Any, Cells]:
        return {}

    def addInPlace(self, value1: dict[Any, Cells], value2: dict[Any, Cells]) -> dict[Any, Cells]:
        value1.update(value2)
        return value1


class Counters:
    """Elements in and out of each transform. A task that Spark runs again counts again, but its metrics do not.

    Metrics of users come by program and partition, each in place of what an earlier run of the same task recorded;
    Spark passes on nothing of a task that fails.
    """

    def __init__(self, context: SparkContext) -> None:
        self._total: Accumulator[Counter[Any]] = context.accumulator(Counter(), _Adding())
        self._shards: Accumulator[dict[str, Any]] = context.accumulator({}, _Replacing())
        self._records: Accumulator[Counter[Any]] = context.accumulator(Counter(), _Adding())
        self._bad: Accumulator[dict[str, DeadLetter]] = context.accumulator({}, _Replacing())
        self._recorded: Accumulator[dict[Any, Cells]] = context.accumulator({}, _Updating())
        self.written: Accumulator[int] = context.accumulator(0)  # rows that went to files

    def add(self, counts: Counter[tuple[str, str]]) -> None:
        """Adds counts; called in a worker, once a task."""
        self._total.add(counts)

    def report_shards(self, reports: dict[str, Any]) -> None:
        """Takes reports of shards in a worker, by name, each in place of the shard's last one."""
        self._shards.add(reports)

    def add_records(self, counts: Counter[str]) -> None:
        """Adds how many records sources that check them have read, by label."""
        self._records.add(counts)

    @property
    def records(self) -> Counter[str]:
        """The records that such sources have read, by label; those of a job are complete when the job is done."""
        return Counter(self._records.value)

    def report_bad(self, last: dict[str, DeadLetter]) -> None:
        """Takes the last bad record of a source, by its label, where it is read."""
        self._bad.add(last)

    def report_metrics(self, place: int | str, cells: Cells) -> None:
        """Takes the metrics that a task of a program recorded, by its number; in the driver, by label, a sink's."""
        task = TaskContext.get()
        recorded = {(place, None if task is None else task.partitionId()): cells}
        if task is None:
            self._recorded.value.update(recorded)
        else:
            self._recorded.add(recorded)

    def take_over(self, other: Counters, labels: Collection[str]) -> None:
        """Adds what other counters counted of the transforms with these labels; called in the driver."""
        counted = {key: count for key, count in other._total.value.items() if key[0] in labels}
        self._total.add(Counter(counted))
        self._bad.add({label: last for label, last in other._bad.value.items() if label in labels})

    def recorded(self) -> Cells:
        """Returns the metrics of all tasks that are done since they were last forgotten, each task's once."""
        cells: Cells = {}
        for _, each in list(self._recorded.value.items()):  # in the order of arrival; another thread may add
            merge_cells(cells, each)
        return cells

    def forget_recorded(self) -> None:
        """Forgets the metrics of tasks so far."""
        self._recorded.value = {}

    @property
    def shard_reports(self) -> dict[str, Any]:
        """The last report of each shard, by name; those of a job are complete when the job is done."""
        return self._shards.value

    def bad_records(self) -> dict[str, BadRecords]:
        """The bad records of sources that had some, by label."""
        counts: dict[str, dict[str, int]] = {}
        for (label, way), count in sorted(self._total.value.items()):
            if way in REASONS or way == FAILED_EXPRESSION:
                counts.setdefault(label, {})[way] = count
        last, records = self._bad.value, self._records.value
        return {label: BadRecords(each, last.get(label), records[label]) for label, each in counts.items()}

    def metrics(self) -> dict[str, dict[str, int]]:
        """By label: how many elements went in and came out; of sources, how many records were bad, by reason."""
        by_label: dict[str, dict[str, int]] = {}
        for (label, way), count in sorted(self._total.value.items()):
            by_label.setdefault(label, {})[way] = count
        return by_label
