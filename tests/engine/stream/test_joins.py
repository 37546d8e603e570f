"""CoGroupByKey in a stream: late elements join what there is, and what was joined is taken back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import headrace as hr
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def at(side: str, value: Any, second: int) -> hr.TimestampedValue:
    return hr.TimestampedValue((side, "amy", value), second)


def test_late_elements_join_what_there_is(spark: SparkSession) -> None:
    script = (
        hr.TestStream()
        .add([at("mail", "m1", 1), at("call", 7, 2), at("call", 9, 12)])
        .advance_watermark(10)
        .add([at("call", 8, 3)])  # late
        .advance_watermark(40)
        .add([at("mail", "m2", 4), at("mail", "m3", 13)])  # too late
        .finish()
    )
    p = hr.Pipeline(spark=spark)
    events = p | script

    def of(side: str, mode: Any) -> Any:
        picked = events | f"{side} {mode}" >> hr.Filter(lambda each: each[0] == side)
        pairs = picked | f"pair {side} {mode}" >> hr.Map(lambda each: each[1:])
        return pairs | f"window {side} {mode}" >> hr.WindowInto(
            hr.FixedWindows(10),
            trigger=hr.AfterWatermark(late=hr.AfterCount(1)),
            accumulation=mode,
            allowed_lateness=20,
        )

    modes = ("discarding", "accumulating", "retracting")
    joined = {
        mode: {"mails": of("mail", mode), "calls": of("call", mode)}
        | mode >> hr.CoGroupByKey()
        | f"plain {mode}" >> hr.MapTuple(lambda key, found: (list(found["mails"]), sorted(found["calls"])))
        for mode in modes
    }
    collected = {mode: pc | f"collect {mode}" >> hr.Collect() for mode, pc in joined.items()}
    # A second grouping of what was taken back stays right, too.
    calls = joined["retracting"] | "calls" >> hr.Map(lambda found: ("calls", len(found[1])))
    numbers = calls | "number" >> hr.CombinePerKey(sum) | "collect number" >> hr.Collect()
    handle = p.run()
    handle.wait()

    def panes(mode: str) -> list[Any]:
        shown = [
            (e.window.start // SECOND, "-" if e.retraction else "+", *e.value, e.pane.timing)
            for e in collected[mode].windowed
        ]
        return [each[1:] for each in shown if each[0] == 0]

    assert panes("discarding") == [("+", ["m1"], [7], "on_time"), ("+", [], [8], "late")]
    assert panes("accumulating") == [("+", ["m1"], [7], "on_time"), ("+", ["m1"], [7, 8], "late")]
    assert panes("retracting") == [
        ("+", ["m1"], [7], "on_time"),
        ("-", ["m1"], [7], "on_time"),
        ("+", ["m1"], [7, 8], "late"),
    ]
    first = [(e.value[1], e.retraction) for e in numbers.windowed if e.window.start == 0]
    assert first == [(1, False), (1, True), (2, False)]
    metrics = handle.metrics()
    assert [metrics[f"{mode}/GroupByKey"]["late"] for mode in modes] == [2, 2, 2]
