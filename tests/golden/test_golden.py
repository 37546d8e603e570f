"""State that an earlier version wrote: this one goes on from it and answers what that one would have."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.golden.make import ANSWERS, unpack
from tests.golden.states import STATES
from tests.scale import only_full

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.slow("each program begins Spark queries anew")
@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name in ("files", "views") else only_full("files and views go on, too"))
        for name in STATES
    ],
)
def test_state_of_an_earlier_version_goes_on(name: str, spark: SparkSession, tmp_path: Path) -> None:
    expected: Any = json.loads(ANSWERS.read_text())[name]
    answer = STATES[name].second(unpack(name, tmp_path), spark)
    assert json.loads(json.dumps(answer)) == expected
