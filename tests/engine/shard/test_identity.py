"""The identity of every kind of work, word for word: whoever changes one makes checkpoints of before refuse.

A change here needs a reason; a checkpoint's format and the golden state say what becomes of state that exists.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

import headrace as hr
from headrace.engine.plan.lowering import lower
from headrace.engine.shard.identity import identity_of
from headrace.model.tasks import Tasks

EARLY = hr.AfterWatermark(early=hr.AfterCount(2), late=hr.AfterCount(1))
FIXED = {"type": "FixedWindows", "size": 10_000_000, "offset": 0}


def events(p: hr.Pipeline) -> Any:
    return p | "events" >> hr.TestStream()


def grouping(p: hr.Pipeline) -> None:
    windows = hr.WindowInto(hr.FixedWindows(10), trigger=EARLY, accumulation="accumulating", allowed_lateness=60)
    _ = events(p) | windows | "work" >> hr.GroupByKey()


def combining(p: hr.Pipeline) -> None:
    windows = hr.WindowInto(hr.FixedWindows(10), timestamp_combiner="earliest")
    _ = events(p) | windows | "work" >> hr.Top.largest_per_key(2, key=len)


def retractions(p: hr.Pipeline) -> None:
    windows = hr.WindowInto(hr.Sessions(10), accumulation="retracting")
    sums = events(p) | windows | "sums" >> hr.CombinePerKey(sum)
    _ = (
        sums
        | "again" >> hr.WindowInto(hr.CalendarWindows("day"), accumulation="retracting")
        | "work" >> hr.GroupByKey()
    )


def aggregation(p: hr.Pipeline) -> None:
    rows = p | "events" >> hr.ReadJson("data", schema="user string, n long")
    _ = rows | "work" >> hr.GroupBy("user").aggregate(hits=hr.count(), total=hr.sum("n"), most=hr.top("n", 3))


class Watch(hr.DoFn):
    seen = hr.ValueState("seen", expires="1 hour")
    total = hr.CombiningState("total", sum)
    due = hr.TimerSpec("due")

    def process(
        self,
        pair: Any,
        seen: Any = hr.DoFn.StateParam(seen),
        total: Any = hr.DoFn.StateParam(total),
        due: Any = hr.DoFn.TimerParam(due),
    ) -> None: ...


def stateful(p: hr.Pipeline) -> None:
    _ = events(p) | hr.WindowInto(hr.SlidingWindows(10, 5)) | "work" >> hr.ParDo(Watch())


def sides(p: hr.Pipeline) -> None:
    newest = (
        p
        | "rates" >> hr.TestStream()
        | hr.WindowInto(hr.GlobalWindows(), trigger=hr.Repeatedly(hr.AfterCount(1)), accumulation="accumulating")
    )
    _ = events(p) | hr.WindowInto(hr.FixedWindows(10)) | "work" >> hr.Map(lambda n, rates: n, hr.AsDict(newest))


def tasks(p: hr.Pipeline) -> None:
    _ = events(p) | "work" >> Tasks(lambda number, count: None, tasks=3)  # type: ignore[arg-type, return-value]


def joins(p: hr.Pipeline) -> None:
    left, right = (p | side >> hr.Rate(1) | f"{side} windows" >> hr.WindowInto(hr.FixedWindows(10)) for side in "lr")
    _ = left | "work" >> hr.Join(right | hr.Select("value", at="timestamp"), on="value", how="left")


def timed_joins(p: hr.Pipeline) -> None:
    left, right = p | "l" >> hr.Rate(1), p | "r" >> hr.Rate(1) | hr.Select("value", at="timestamp")
    _ = left | "work" >> hr.Join(right, on="value", within=(-1, 2))


def as_of_joins(p: hr.Pipeline) -> None:
    left, right = p | "l" >> hr.Rate(1), p | "r" >> hr.Rate(1) | hr.Select("value", at="timestamp")
    _ = left | "work" >> hr.AsOfJoin(right, on="value")


def top_rows(p: hr.Pipeline) -> None:
    rows = p | "events" >> hr.ReadJson("data", schema="user string, n long")
    _ = rows | "work" >> hr.GroupBy("user").top(3, by="n DESC, user", rank="place")


def intervals(p: hr.Pipeline) -> None:
    _ = (p | "l" >> hr.TestStream(), p | "r" >> hr.TestStream()) | "work" >> hr.IntervalJoin(-1, 2)


GROUPING = {"accumulation": "discarding", "timestamps": "end_of_window", "trigger_state": [], "retractable": False}


@pytest.mark.parametrize(
    ("build", "expected"),
    [
        (
            grouping,
            {
                **GROUPING,
                "kind": "grouping",
                "window": FIXED,
                "accumulation": "accumulating",
                "trigger_state": ["AfterCount", "AfterCount", "AfterWatermark"],
                "combine": None,
            },
        ),
        (intervals, {"kind": "interval join", "window": {"type": "GlobalWindows"}, "within": [-1_000_000, 2_000_000]}),
        (joins, {"kind": "join", "window": FIXED, "on": [["value", "value"]], "how": "left"}),
        (
            timed_joins,
            {
                "kind": "join",
                "window": {"type": "GlobalWindows"},
                "on": [["value", "value"]],
                "how": "inner",
                "within": [-1_000_000, 2_000_000],
            },
        ),
        (as_of_joins, {"kind": "as-of join", "on": [["value", "value"]], "how": "inner"}),
        (
            top_rows,
            {
                **GROUPING,
                "kind": "top rows",
                "window": {"type": "GlobalWindows"},
                "combine": {
                    "type": "TopRowsFn",
                    "n": 3,
                    "by": [
                        {"type": "SortOrder", "column": "n", "descending": True, "nulls_first": False},
                        {"type": "SortOrder", "column": "user"},
                    ],
                },
                "keys": ["user"],
                "rank": True,
            },
        ),
        (
            combining,
            {
                **GROUPING,
                "kind": "grouping",
                "window": FIXED,
                "timestamps": "earliest",
                "combine": {"type": "TopFn", "n": 2, "key": "len"},
            },
        ),
        (
            retractions,
            {
                **GROUPING,
                "kind": "grouping",
                "window": {"type": "CalendarWindows", "unit": "day"},
                "accumulation": "retracting",
                "combine": None,
                "retractable": True,
            },
        ),
        (
            aggregation,
            {
                **GROUPING,
                "kind": "aggregation",
                "window": {"type": "GlobalWindows"},
                "combine": {
                    "type": "ColumnsFn",
                    "fns": [{"type": "CountFn"}, {"type": "SumFn"}, {"type": "TopFn", "n": 3}],
                },
                "keys": ["user"],
                "aggregates": ["hits", "total", "most"],
            },
        ),
        (
            stateful,
            {
                "kind": "stateful",
                "window": {"type": "SlidingWindows", "size": 10_000_000, "period": 5_000_000, "offset": 0},
                "specs": [
                    {"type": "ValueState", "name": "seen", "expires": 3_600_000_000},
                    {"type": "CombiningState", "name": "total", "fn": {"type": "SumFn"}},
                    {"type": "TimerSpec", "name": "due"},
                ],
            },
        ),
        (
            sides,
            {
                "kind": "side inputs",
                "window": FIXED,
                "sides": [
                    {
                        **GROUPING,
                        "kind": "grouping",
                        "window": {"type": "GlobalWindows"},
                        "accumulation": "accumulating",
                        "trigger_state": ["AfterCount"],
                        "combine": {"type": "DictFn"},
                        "upstream": ["rates"],
                    }
                ],
            },
        ),
        (tasks, {"kind": "tasks", "tasks": 3}),
    ],
)
def test_the_identity_of(build: Callable[[hr.Pipeline], None], expected: Any) -> None:
    p = hr.Pipeline()
    build(p)
    line = lower(p.graph(), shards=2, partitions=2)
    (work,) = [exchange.work for exchange in line.exchanges if exchange.label in ("work", "work/join")]
    assert json.loads(json.dumps(work.identity())) == expected


def test_a_late_output_changes_no_identity() -> None:
    def totals(p: hr.Pipeline, late: bool) -> None:
        totals = hr.GroupBy("user").aggregate(total=hr.sum("n"))
        rows = p | "events" >> hr.ReadJson("data", schema="user string, n long", event_time="user")
        _ = rows | hr.WindowInto(hr.FixedWindows(10)) | "work" >> (totals.with_late_output() if late else totals)

    works = []
    for late in (False, True):
        p = hr.Pipeline()
        totals(p, late)
        works.append(lower(p.graph(), shards=2, partitions=2).exchanges[0].work)
    assert works[0].identity() == works[1].identity()


@dataclass(frozen=True)
class Declared:
    kept: int = 3
    made: list[int] = field(default_factory=list)
    ignored: int = field(default=1, compare=False)


class Undeclared:
    pass


def test_what_has_no_fields_is_known_by_its_class_and_defaults_do_not_count() -> None:
    assert identity_of(Undeclared()) == {"type": "Undeclared"}
    assert identity_of(Declared(ignored=7)) == {"type": "Declared"}
    assert identity_of(Declared(4, [1])) == {"type": "Declared", "kept": 4, "made": [1]}
    assert identity_of({"a": (Undeclared,)}) == {"a": ["Undeclared"]}
