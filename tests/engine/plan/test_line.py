"""Binding a line to a run: the copy knows side inputs and columns, shares what was shared; the plan does not change."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

import headrace as hr
from headrace.engine.plan.line import Line
from headrace.engine.plan.lowering import lower
from headrace.engine.stateful.processor import StatefulWork
from headrace.engine.worker.bundles import ToColumns
from headrace.engine.worker.program import Readers, steps_of
from headrace.engine.worker.sidevalues import ShownCells, SideValue
from headrace.model.elementwise import SideInput
from headrace.model.pipeline import PCollection
from headrace.model.schema import Schema, rows_schema


class Counted(hr.DoFn):
    seen = hr.ValueState("seen")

    def process(self, pair: Any, known: Any, seen: Any = hr.DoFn.StateParam(seen)) -> Any:
        yield pair


def value_of(side: SideInput) -> SideValue:
    return SideValue.of(side, ShownCells())


def columns_of(pc: PCollection) -> Schema:
    return rows_schema(pa.schema([("x", pa.int64())]))


def lowered(p: hr.Pipeline) -> Line:
    return lower(p.graph(), shards=2, partitions=2)


def arguments(readers: Readers) -> list[Any]:
    return [argument for step in steps_of(readers) for argument in getattr(step.op, "call").args]  # noqa: B009


def test_side_inputs_are_values_in_the_copy_and_side_inputs_in_the_plan() -> None:
    p = hr.Pipeline()
    side = p | "side" >> hr.Create([1])
    events = p | "events" >> hr.TestStream()
    _ = events | hr.Map(lambda x, known: x, hr.AsList(side)) | hr.Collect()
    _ = events | "count" >> hr.ParDo(Counted(), hr.AsList(side)) | "counts" >> hr.Collect()
    planned = lowered(p)
    bound = planned.bind(value_of, columns_of)
    for line, kind in ((planned, SideInput), (bound, SideValue)):
        tap = next(tap for tap in line.taps if tap.name == "events")
        (mapped,) = arguments(tap.readings[0].readers)
        (work,) = (exchange.work for exchange in line.exchanges)
        assert isinstance(work, StatefulWork)
        assert isinstance(mapped, kind) and isinstance(work.fn.call.args[0], kind)


def test_readers_that_are_shared_stay_shared() -> None:
    p = hr.Pipeline()
    both = [p | name >> hr.TestStream() for name in ("left", "right")] | hr.Flatten()
    _ = both | "out" >> hr.Collect()
    planned = lowered(p)
    bound = planned.bind(value_of, columns_of)
    for line in (planned, bound):
        left, right = (tap.readings[0].readers.steps[0].readers[None] for tap in line.taps)
        assert left is right
    assert bound.taps[0].readings[0].readers is not planned.taps[0].readings[0].readers


def test_the_values_that_an_exchange_shows_are_those_that_the_function_behind_it_gets() -> None:
    p = hr.Pipeline()
    rates = p | "rates" >> hr.TestStream() | hr.WindowInto(hr.FixedWindows(10))
    known = p | "known" >> hr.Create([1])
    events = p | "events" >> hr.TestStream() | "windows" >> hr.WindowInto(hr.FixedWindows(10))
    _ = events | hr.Map(lambda x, rate, known: x, hr.AsList(rates), hr.AsList(known)) | hr.Collect()
    (exchange,) = lowered(p).bind(value_of, columns_of).exchanges
    shown, broadcast = arguments(exchange.readers[None])
    work: Any = exchange.work
    assert work.sides == (shown,) and work.sides[0] is shown
    assert isinstance(broadcast, SideValue) and broadcast.label == "known"


def test_columns_that_only_spark_knows_are_in_the_copy() -> None:
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadJson("data", schema="x long")
    _ = rows | hr.Where("x > 5") | "write" >> hr.WriteJson("out")
    planned = lowered(p)
    bound = planned.bind(value_of, columns_of)
    (before,), (after,) = planned.outlets, bound.outlets
    assert isinstance(before.output, ToColumns) and before.output.element_schema is None
    assert after.output.schema().names == ["x", "__time"]
    output: Any = bound.outputs[0]
    assert output.batches is after.output
