"""What a stream's program reads from ranges of a topic."""

from __future__ import annotations

import pathlib

import pyarrow as pa
import pytest

import headrace as hr
from headrace import millwheel as mw
from headrace.engine.connectors.fromrecords import FromJson, Records, value_columns
from headrace.engine.stream.fromranges import FromRanges
from headrace.engine.stream.programs import Watermarks
from headrace.engine.worker.hidden import NOW
from headrace.log import Log


@pytest.mark.parametrize("watermarks", ["from times", "written"])
def test_what_writers_say_is_no_element_whatever_the_policy(watermarks: Watermarks, tmp_path: pathlib.Path) -> None:
    Log(tmp_path).create("records")
    injector = mw.Injector("records", log=tmp_path, name="me")
    for number in range(3):
        injector.send(number, timestamp=number)
        injector.advance(number)
        injector.flush()
    policy = hr.ReadTopic("records", log=str(tmp_path)).watermark
    records = Records(str(tmp_path), "records", value_columns("json"))
    head = FromRanges("records", [FromJson("records")], watermarks, policy, label="records", records=records)
    ranges = pa.record_batch({"partition": [0], "first": [0], "until": [6], NOW: [7]})
    elements = [element for _, bundle in head.bundles(iter([ranges])) for element in bundle.elements]
    assert elements == [0, 1, 2]
