"""Operators that are planned without being imported."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyspark import cloudpickle
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from headrace.engine.spark.deferred import Deferred

PLANNING = """
import pickle, sys
import pyspark.sql.streaming.transform_with_state_driver_worker
before = set(sys.modules)

class Handle:
    def getValueState(self, *arguments):
        print("value", *arguments, file=sys.stderr)
    def getMapState(self, *arguments):
        print("map", *arguments, file=sys.stderr)

with open(sys.argv[1], "rb") as file:
    processor = pickle.load(file)
processor.init(Handle())
processor.close()
print("planned")
print("imported", *sorted(set(sys.modules) - before), file=sys.stderr)
"""


class Counting(StatefulProcessor):
    def init(self, handle: StatefulProcessorHandle) -> None:
        self.count = handle.getValueState("count", "n long")
        self.seen = handle.getMapState("seen", "key string", "times long")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[Any]:
        return rows


def test_planning_declares_what_the_operator_keeps_and_imports_nothing(tmp_path: Path) -> None:
    counting = Counting()
    pickled = tmp_path / "pickled"
    pickled.write_bytes(cloudpickle.dumps(Deferred(counting)))
    done = subprocess.run([sys.executable, "-c", PLANNING, str(pickled)], capture_output=True, text=True, check=True)
    assert done.stderr.splitlines() == ["value count n long", "map seen key string times long", "imported"]
    assert done.stdout == ""
    assert vars(counting) == {}
