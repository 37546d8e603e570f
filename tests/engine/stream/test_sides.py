"""Side inputs that are streams themselves, on real Spark: refreshed, window by window, and several at once."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

import headrace as hr
from headrace.model.times import SECOND

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EACH = hr.Repeatedly(hr.AfterCount(1))


def at(value: Any, second: int) -> hr.TimestampedValue:
    return hr.TimestampedValue(value, second)


@pytest.mark.slow("several streams")
def test_side_inputs_of_a_stream(spark: SparkSession) -> None:
    """One source speaks for prices and rates, so that each step of the script is one micro-batch of both."""
    script = (
        hr.TestStream()
        .add([at(("price", "EUR", 10), 1)])  # waits: no rate is known
        .add([at(("rate", "EUR", 2), 2)])
        .add([at(("price", "EUR", 20), 3), at(("rate", "USD", 5), 3)])
        .add([at(("rate", "EUR", 3), 4)])
        .add([at(("price", "EUR", 30), 5), at(("price", "USD", 7), 11)])
        .advance_watermark(10)
        .add([at(("price", "EUR", 40), 8)])  # too late for its window
        .finish()
    )
    p = hr.Pipeline(spark=spark)
    events = p | script
    prices = events | "prices" >> hr.Filter(lambda e: e[0] == "price") | "price" >> hr.Map(lambda e: e[1:])
    rates = events | "rates" >> hr.Filter(lambda e: e[0] == "rate") | "rate" >> hr.Map(lambda e: e[1:])

    def refreshed(label: str, mode: Any) -> Any:
        return rates | label >> hr.WindowInto(hr.GlobalWindows(), trigger=EACH, accumulation=mode)

    everything, newest = refreshed("everything", "accumulating"), refreshed("newest", "discarding")
    # Refreshed: all rates so far, and those of the latest pane only.
    so_far = prices | "so far" >> hr.MapTuple(lambda unit, n, rates: n * rates[unit], hr.AsDict(everything))
    latest = prices | "latest" >> hr.Map(lambda price, rates: (price[1], sorted(rates)), hr.AsList(newest))
    # A grouping's panes: the number of rates so far, with a side input that is no stream.
    count = everything | "count" >> hr.CombineGlobally(len)
    names = p | "names" >> hr.Create([("EUR", "Euro"), ("USD", "Dollar")])
    counted = prices | "counted" >> hr.Map(
        lambda price, n, names: (names[price[0]], price[1], n), hr.AsSingleton(count), hr.AsDict(names)
    )
    # Per window: elements wait for the end of theirs; a window without rates has the default.
    in_tens = prices | "main windows" >> hr.WindowInto(hr.FixedWindows(5))
    rates_in_tens = rates | "side windows" >> hr.WindowInto(hr.FixedWindows(10))
    largest = rates_in_tens | "only rates" >> hr.Map(lambda rate: rate[1]) | hr.CombineGlobally(max)
    per_window = in_tens | "per window" >> hr.Map(
        lambda price, all_of_them, most: (price[1], len(all_of_them), most),
        hr.AsList(rates_in_tens),
        hr.AsSingleton(largest, default=0),
    )
    # What comes of it is grouped again: nothing that waited is late there.
    totals = (
        per_window
        | "n" >> hr.Map(lambda seen: ("all", seen[0]))
        | "total" >> hr.CombinePerKey(sum)
        | "collect totals" >> hr.Collect()
    )
    collected = [pc | f"collect {pc.label}" >> hr.Collect() for pc in (so_far, latest, counted, per_window)]
    handle = p.run()
    handle.wait()
    seen_so_far, seen_latest, seen_counted, seen_windows = collected
    assert sorted(seen_so_far) == [20, 35, 40, 90, 120]
    eur, usd = [("EUR", 3)], [("USD", 5)]
    assert sorted(seen_latest) == [(7, eur), (10, [("EUR", 2)]), (20, usd), (30, eur), (40, eur)]
    assert sorted(seen_counted) == [
        ("Dollar", 7, 3),
        ("Euro", 10, 1),
        ("Euro", 20, 2),
        ("Euro", 30, 3),
        ("Euro", 40, 3),
    ]
    assert sorted(seen_windows) == [(7, 0, 0), (10, 3, 5), (20, 3, 5), (30, 3, 5)]
    assert [(e.window.start // SECOND, e.value, e.pane.timing) for e in totals.windowed] == [
        (0, ("all", 30), "on_time"),
        (5, ("all", 30), "on_time"),
        (10, ("all", 7), "on_time"),
    ]
    metrics = handle.metrics()
    assert metrics["per window"]["late"] == 1 and metrics["total"]["late"] == 0


def test_a_function_that_fails_on_its_side_input_is_named(spark: SparkSession) -> None:
    p = hr.Pipeline(spark=spark)
    events = p | hr.TestStream().add([1, 2])
    both = events | hr.WindowInto(hr.GlobalWindows(), trigger=EACH)
    _ = events | "one" >> hr.Map(lambda x, one: x, hr.AsSingleton(both)) | hr.Collect()
    with pytest.raises(hr.TransformError, match=r"'one' failed .*AsSingleton\(.*needs exactly one element, it has 2"):
        p.run().wait()
