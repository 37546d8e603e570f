"""Join before anything runs: its arguments, its columns, and collections that do not join."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pytest

import headrace as hr

ORDERS = pa.table({"id": [1], "customer_id": [7], "day": ["mon"]})
PEOPLE = pa.table({"id": [7], "name": ["amy"], "day": ["mon"]})


def collections(p: hr.Pipeline) -> tuple[Any, Any]:
    return p | "orders" >> hr.Create(ORDERS), p | "people" >> hr.Create(PEOPLE)


@pytest.mark.parametrize(
    ("on", "pairs"),
    [
        ("id", (("id", "id"),)),
        (["id", "day"], (("id", "id"), ("day", "day"))),
        ({"customer_id": "id"}, (("customer_id", "id"),)),
        ([("customer_id", "id"), "day"], (("customer_id", "id"), ("day", "day"))),
    ],
)
def test_columns_to_join_on(on: Any, pairs: Any) -> None:
    _, people = collections(hr.Pipeline())
    assert hr.Join(people, on=on).pairs == pairs


def test_a_joined_column_has_its_left_name() -> None:
    p = hr.Pipeline()
    orders, people = collections(p)
    joined = orders | hr.Join(people, on={"customer_id": "id", "day": "day"}, how="left")
    assert joined.schema is not None and joined.schema.names == ("id", "customer_id", "day", "name")
    assert joined.label == "Join(people on customer_id = id, day, left)"
    _ = joined | "out" >> hr.WriteParquet("out")
    assert p.explain() == "\n".join(
        [
            "write  out: WriteParquet('out')",
            "└─ columns  Join(people on customer_id = id, day, left)",
            "   ├─ read  orders: Create(1 rows of id, customer_id, day)",
            "   └─ read  people: Create(1 rows of id, name, day)",
        ]
    )


def test_a_stream_shows_the_join_and_does_not_read_its_table() -> None:
    p = hr.Pipeline()
    people = p | "people" >> hr.Create(PEOPLE) | "names" >> hr.Select("id", "name")
    _ = p | "numbers" >> hr.Rate(1) | hr.Join(people, on={"value": "id"}) | "out" >> hr.WriteText("out")
    lines = ["read  numbers: Rate(1 a second)", "   columns  Join(names on value = id)", "write  out: WriteText('out')"]
    assert p.explain().splitlines() == lines


def test_two_streams_meet_in_one_level_and_a_table_in_windows_is_streamed() -> None:
    p = hr.Pipeline()
    minutes = hr.WindowInto(hr.FixedWindows(60), allowed_lateness=5)
    numbers = p | "numbers" >> hr.Rate(1) | "minutes" >> minutes
    people = p | "people" >> hr.Create(PEOPLE) | "names" >> hr.Select("id", "name") | "minutes too" >> minutes
    joined = numbers | hr.Join(people, on={"value": "id"}, how="outer")
    assert not joined.bounded and joined.windowing.allowed_lateness == 5_000_000
    _ = joined | hr.Where("name is not null") | "out" >> hr.WriteText("out")
    assert p.explain().splitlines() == [
        "read  numbers: Rate(1 a second)",
        "   columns  minutes",
        "read  people: Create(1 rows of id, name, day)",
        "   columns  names · minutes too",
        "level 1  Join(minutes too on value = id, outer): outer join on value = id, FixedWindows('1 min')",
        "columns  Where(name is not null)",
        "write  out: WriteText('out')",
    ]


def test_a_bounded_collection_is_a_table_unless_it_is_streamed() -> None:
    for stream, lines in ((False, ["   columns  Join(people on value = id)"]), (True, [])):
        p = hr.Pipeline()
        people = p | "people" >> hr.Create(PEOPLE)
        _ = p | "numbers" >> hr.Rate(1) | hr.Join(people, on={"value": "id"}, stream=stream) | hr.Collect()
        assert [line for line in p.explain().splitlines() if line.startswith("   columns")] == lines
        assert ("level 1" in p.explain()) == stream
    test_what_does_not_join((MINUTES, "numbers"), "people", "inner", "apply the same WindowInto to both", stream=True)


def test_by_time_both_are_streamed_and_in_the_global_window() -> None:
    p = hr.Pipeline()
    people = p | "people" >> hr.Create(PEOPLE) | "names" >> hr.Select("id", "name")
    numbers = p | "numbers" >> hr.Rate(1)
    _ = numbers | hr.Join(people, on={"value": "id"}, how="outer", within=("-1 minute", 5)) | hr.Collect()
    label = "Join(names on value = id, -1 min to 5 s, outer)"
    assert f"level 1  {label}: outer join on value = id, -1 min to 5 s" in p.explain().splitlines()
    p = hr.Pipeline()
    minutes = p | "people" >> hr.Create(PEOPLE) | "names" >> hr.Select("id", "name") | hr.WindowInto(MINUTES)
    _ = p | "numbers" >> hr.Rate(1) | "join" >> hr.Join(minutes, on={"value": "id"}, within=(0, 5)) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'join' .* is about times and not windows; apply WindowInto behind"):
        p.explain()


def test_as_of_joins_are_inner_or_left_and_in_the_global_window() -> None:
    p = hr.Pipeline()
    people = p | "people" >> hr.Create(PEOPLE) | "names" >> hr.Select("id", "name")
    numbers = p | "numbers" >> hr.Rate(1)
    with pytest.raises(hr.PipelineError, match="how must be 'inner' or 'left', got 'outer'"):
        numbers | hr.AsOfJoin(people, on={"value": "id"}, how="outer")  # type: ignore[arg-type]
    _ = numbers | hr.AsOfJoin(people, on={"value": "id"}, how="left") | hr.Collect()
    label = "AsOfJoin(names on value = id, left)"
    assert f"level 1  {label}: left as-of join on value = id" in p.explain().splitlines()
    p = hr.Pipeline()
    minutes = p | "numbers" >> hr.Rate(1) | hr.WindowInto(MINUTES)
    people = p | "people" >> hr.Create(PEOPLE) | "names" >> hr.Select("id", "name")
    _ = minutes | "join" >> hr.AsOfJoin(people, on={"value": "id"}) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'join' .* AsOfJoin is about times and not windows; apply WindowInto"):
        p.explain()


def test_a_stream_that_retracts_does_not_join() -> None:
    p = hr.Pipeline()
    windows = hr.WindowInto(hr.FixedWindows(60), accumulation="retracting")
    numbers = p | "numbers" >> hr.Rate(1) | windows
    counts = numbers | hr.GroupBy("value").aggregate(n=hr.count())
    _ = numbers | "join" >> hr.Join(counts, on="value") | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"'join' .* takes panes back .* or use CoGroupByKey"):
        p.explain()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"on": "customer"}, "on the left, there is no column 'customer', did you mean 'customer_id'"),
        ({"on": {"customer_id": "nam"}}, "on the right, there is no column 'nam', did you mean 'name'"),
        ({"on": {"customer_id": "id"}}, "both collections have a column 'day', .* rename or leave out one with Select"),
        ({"on": []}, r"on names at least one column, got \[\]; write on='id'"),
        ({"on": 7}, "on names at least one column, got 7"),
        ({"on": ["id", 7]}, "7 in on is no name of a column and no pair"),
        ({"on": ["id", "id"]}, "on has the column 'id' twice"),
        ({"on": "id", "within": "1 hour"}, "within is two durations, from and to, got '1 hour'; write for instance"),
        ({"on": "id", "within": (2, 1)}, "lower must not be above upper, got 2 s and 1 s; nothing could ever join"),
        ({"on": "id", "how": "full"}, "how must be 'inner', 'left', 'right' or 'outer', got 'full'"),
    ],
)
def test_what_is_refused_when_it_is_applied(options: Any, message: str) -> None:
    orders, people = collections(hr.Pipeline())
    with pytest.raises(hr.PipelineError, match=message):
        orders | hr.Join(people, **options)


def test_columns_that_only_ddl_names_are_checked_before_spark_starts() -> None:
    p = hr.Pipeline()
    people = p | "people" >> hr.Create([], schema="id long, name string")
    orders = p | "orders" >> hr.Create([], schema="customer long") | hr.Where("customer > 0")
    _ = orders | "join" >> hr.Join(people, on={"custmer": "id"}) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=r"there is no column 'custmer', did you mean 'customer'"):
        p.explain()


MINUTES, HOURS, SESSIONS = hr.FixedWindows(60), hr.FixedWindows(3600), hr.Sessions(60)


@pytest.mark.parametrize(
    ("left", "right", "how", "message"),
    [
        ("orders", "objects", "inner", "it needs columns, but 'objects'"),
        ("orders", "numbers", "left", "in the global window a stream never knows which these are"),
        ("numbers", (MINUTES, "numbers"), "inner", r"in FixedWindows\('1 min'\); apply the same WindowInto to both"),
        ("numbers", "people", "outer", "a stream never knows which these are"),
        ((MINUTES, "orders"), "people", "right", r"these are in no window of FixedWindows"),
        ((MINUTES, "orders"), (HOURS, "people"), "inner", "apply the same WindowInto to both"),
        ("orders", (MINUTES, "people"), "inner", "apply the same WindowInto to both"),
        ((SESSIONS, "orders"), (SESSIONS, "people"), "inner", "windows of a key, .* use CoGroupByKey"),
        ((SESSIONS, "numbers"), (SESSIONS, "numbers"), "inner", "windows of a key, .* use CoGroupByKey"),
    ],
)
def test_what_does_not_join(left: Any, right: Any, how: Any, message: str, stream: bool = False) -> None:
    p = hr.Pipeline()
    there = {
        "orders": p | "orders" >> hr.Create(ORDERS) | hr.Select(value="customer_id"),
        "people": p | "people" >> hr.Create(PEOPLE) | hr.Select("id", "name"),
        "numbers": p | "numbers" >> hr.Rate(1),
        "objects": p | "objects" >> hr.Create([1, "a"]),
    }
    a, b = (
        there[each] if isinstance(each, str) else there[each[1]] | side >> hr.WindowInto(each[0])
        for side, each in (("left", left), ("right", right))
    )
    on = {"value": "value" if "numbers" in right else "id"}
    others = b | "others" >> hr.Select("value") if "numbers" in right else b
    _ = a | "join" >> hr.Join(others, on=on, how=how, stream=stream) | hr.Collect()
    with pytest.raises(hr.PipelineError, match=f"'join' .*{message}"):
        p.explain()
