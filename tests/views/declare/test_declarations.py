"""Topics, views and apps: what is refused when they are declared, and what one can tell from them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import headrace as hr
from headrace.views.declare.app import App
from headrace.views.errors import ViewError

VISITS = hr.Topic("visits", schema="user string, url string, ms int, ts timestamp", event_time="ts", key="url")


def counts(events: Any) -> Any:
    return events | hr.GroupBy("url").aggregate(n=hr.count(), ms=hr.sum("ms"))


class Visit(NamedTuple):
    user: str
    url: str
    ms: int


def typed(events: Any, *sides: Any) -> Any:
    return events | hr.Map(lambda event, *sides: Visit("u", "a", 1), *sides).with_output_types(Visit)


def two_levels(events: Any) -> Any:
    return events | hr.GroupBy("url", "user").aggregate(n=hr.count()) | hr.GroupBy("url").aggregate(most=hr.max("n"))


def written(events: Any) -> Any:
    events | hr.Map(str) | hr.WriteText("out")
    return counts(events)


class Numbered(hr.DoFn):
    """Numbers the events of each key."""

    seen = hr.ValueState("seen")

    def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(seen)) -> Any:
        yield pair


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"name": "../visits"}, r"letters, digits and _, at most 48, and begin with a letter; got '\.\./visits'"),
        ({"schema": "user text"}, "a schema is columns such as 'user string, ts timestamp'.*'text'"),
        ({"schema": "json"}, "a schema is columns"),
        ({"schema": "user string, User string, ts timestamp"}, "differ by more than case"),
        ({"event_time": "when"}, "event_time='when' is not a column; there are user, url, ts"),
        ({"event_time": "url"}, "event_time='url' must be a timestamp, it is a string"),
        ({"key": "id"}, "key='id' is not a column"),
        ({"partitions": 0}, "at least one partition, got partitions=0"),
    ],
)
def test_topics_that_are_refused(change: dict[str, Any], reason: str) -> None:
    right = {"name": "visits", "schema": "user string, url string, ts timestamp", "event_time": "ts", "key": "url"}
    with pytest.raises(ViewError, match=reason):
        hr.Topic(**(right | change))


@pytest.mark.parametrize(
    ("function", "reason"),
    [
        (lambda events: events, "it ends in .*WindowInto.*end it in hr.GroupBy"),
        (lambda events: events | hr.Map(str), "it ends in 'Map.*', which cannot be merged"),
        (lambda events: counts(events) | hr.Where("n > 3"), "it ends in 'Where"),
        (lambda events: None, "its function returns None, not a collection"),
        (lambda events: events | hr.GroupBy("page").aggregate(n=hr.count()), "no column 'page'; there are user, url"),
        (lambda events: events | hr.GroupBy("url").aggregate(n=hr.sum("bytes")), "there is no column 'bytes'"),
        (lambda events: events | hr.GroupBy("usr").aggregate(n=hr.count()), "no column 'usr', did you mean 'user'?"),
        (lambda events: events | hr.GroupBy("url").aggregate(n=hr.sum("user")), "sum needs numbers, and 'user' is a s"),
        (
            lambda events: events | hr.GroupBy("url").aggregate(n=hr.approx_distinct("ts")),
            "approx_distinct counts whole",
        ),
        (lambda events: counts(events | hr.Select("user")), "there is no column 'url'; there are user"),
        (lambda events: counts(events | hr.WindowInto(hr.FixedWindows(5))), "changes its windows to FixedWindows"),
        (
            lambda events: counts(events | hr.WindowInto(hr.FixedWindows("1 hour"))),
            r"changes its windows to FixedWindows\('1 h'\); give them to hr.view",
        ),
        (lambda events: two_levels(events), r"'GroupBy\(url, user\)' .*groups events before the last grouping"),
        (lambda events: counts(typed(events | hr.Distinct())), "groups events before the last grouping"),
        (lambda events: counts(typed(events | hr.KeyBy(str) | hr.CombinePerKey(max))), "groups events before the last"),
        (lambda events: counts(typed(events | hr.KeyBy(str) | hr.GroupByKey())), "groups events before the last"),
        (lambda events: counts(typed(events | hr.KeyBy(str) | hr.ParDo(Numbered()))), "keeps state"),
        (lambda events: counts(typed(events, hr.AsList(events))), "looks at .*, which changes as events come"),
        (lambda events: counts((events, typed(events.pipeline | hr.Create([1]))) | hr.Flatten()), "'Create' .*beside"),
        (lambda events: counts(typed(events.pipeline | hr.Create([1]))), "brings elements beside the topic's events"),
        (lambda events: counts(events | hr.Select("url", ms="sum(ms) OVER (PARTITION BY url)")), "looks at other rows"),
        (lambda events: counts(events | hr.Where("rand() < 0.1")), "uses rand, which differs"),
        (lambda events: counts(events | hr.Where("ts > current_date - 7")), "uses current_date"),
        (lambda events: written(events), "'WriteText' .*would write in batch and in speed"),
        (lambda events: events | hr.GroupBy(3).aggregate(n=hr.count()), "GroupBy takes names of columns"),  # type: ignore[arg-type]
    ],
)
def test_views_that_are_refused(function: Callable[..., Any], reason: str) -> None:
    function.__name__ = "bad"
    with pytest.raises(ViewError, match=rf"view 'bad' \(.*test_declarations.py:\d+\): .*{reason}"):
        hr.view(VISITS, window=hr.FixedWindows("1 hour"))(function)


@pytest.mark.parametrize(
    ("window", "reason"),
    [
        (hr.Sessions("1 min"), "merges windows, and batch and speed would merge them differently"),
        (hr.CountWindows(3), "depends on the key or on the order of arrival"),
        ("1 hour", "window must be a WindowFn"),
    ],
)
def test_windows_that_are_refused(window: Any, reason: str) -> None:
    with pytest.raises(ViewError, match=reason):
        hr.view(VISITS, window=window)(counts)


def test_lateness_and_topic_are_checked() -> None:
    with pytest.raises(ViewError, match="must not be negative, got -1 s"):
        hr.view(VISITS, allowed_lateness=-1)
    with pytest.raises(ViewError, match=r"hr\.view takes the topic first, got 'visits'"):
        hr.view("visits")  # type: ignore[arg-type]


def test_what_works_on_each_event_alone_is_accepted() -> None:
    def many(events: Any) -> Any:
        names = events.pipeline | hr.Create([("u", "ann")])
        first = typed(events | hr.Where("url != 'now()' AND overall > 3 AND uuid IS NULL"), hr.AsDict(names))
        second = typed(events | hr.Reshuffle() | hr.Filter(bool) | hr.FlatMap(lambda event: [event]))
        return counts((first, second) | hr.Flatten() | hr.Select("url", ms="ms * 2"))

    assert hr.view(VISITS, window=hr.FixedWindows("1 hour"))(many).aggregate.keys == ("url",)


def test_the_layout_of_a_view_follows_from_its_topic() -> None:
    layout = hr.view(VISITS, window=hr.FixedWindows("1 hour"))(counts).layout()
    assert (layout.name, layout.keys, [each.name for each in layout.types]) == ("counts", ("url",), ["string"])
    assert (layout.aggregations, layout.kinds) == (("n", "ms"), ("bigint", "bigint"))
    assert layout.window == "FixedWindows('1 h')"


def days(events: Any) -> Any:
    chosen = events | hr.Where("ms > 0") | hr.Select("url", day="date(ts)", who="user", s="ms / 1000")
    return chosen | hr.GroupBy("url", "day", "who").aggregate(s=hr.sum("s"))


def test_keys_that_a_view_computes_have_the_types_that_are_declared() -> None:
    with pytest.raises(
        ViewError, match=r"the type of the computed key 'day' .*; declare it: @hr.view\(..., types={'day': 'string'}\)"
    ):
        hr.view(VISITS)(days).layout()
    layout = hr.view(VISITS, types={"day": "date", "s": "double"})(days).layout()
    assert ([each.name for each in layout.types], layout.kinds) == (["string", "date", "string"], ("double",))
    with pytest.raises(ViewError, match="the key 'day' is a double; keys are string, bigint"):
        hr.view(VISITS, types={"day": "double"})(days).layout()


def test_both_branches_of_events_have_their_columns() -> None:
    def twice(events: Any) -> Any:
        return (events, events | hr.Where("ms > 0")) | hr.Flatten() | hr.GroupBy("url").aggregate(n=hr.count())

    assert [each.name for each in hr.view(VISITS)(twice).layout().types] == ["string"]


def test_a_view_is_a_part_of_any_pipeline() -> None:
    view = hr.view(VISITS, window=hr.FixedWindows("1 hour"), allowed_lateness="2 days")(counts)
    pipeline = hr.Pipeline()
    result = view(pipeline | hr.Create([("u", "foo.com", 3)]))
    assert result.windowing.window == hr.FixedWindows("1 hour")
    assert result.windowing.allowed_lateness == 2 * 86_400 * 1_000_000


APP = """
import headrace as hr

visits = hr.Topic("visits", schema="user string, url string, ts timestamp", event_time="ts", key="url")
alias = visits

@hr.view(visits, window=hr.FixedWindows("1 hour"), allowed_lateness="2 days")
def visitors(events):
    return events | hr.GroupBy("url").aggregate(hits=hr.count(), people=hr.approx_distinct("user"))

@hr.view(hr.Topic("orders", schema="user string"))
def buyers(events):
    return events | hr.GroupBy().aggregate(n=hr.count())
"""


def test_an_app_is_a_file(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(APP)
    app = App.load(tmp_path / "app.py")
    assert sorted(app.topics) == ["orders", "visits"]
    assert list(app.views) == ["visitors", "buyers"]
    assert app.views["visitors"].topic is app.topics["visits"]


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (("def buyers", "def visitors"), None),
        (('@hr.view(hr.Topic("orders"', '@hr.view(hr.Topic("visits"'), "two topics with the name 'visits'"),
        (("def buyers", "def Visitors"), "views 'visitors' and 'Visitors'; names must differ by more than case"),
        (("buyers(events):", "buyers(events):\n    return events\n"), r"view 'buyers' \(.*app.py:11\): it ends in"),
    ],
)
def test_apps_that_are_refused(tmp_path: Path, change: tuple[str, str], reason: str | None) -> None:
    (tmp_path / "app.py").write_text(APP.replace(*change))
    if reason is None:  # as Python has it, the second function replaces the first
        assert list(App.load(tmp_path / "app.py").views) == ["visitors"]
        return
    with pytest.raises(ViewError, match=reason):
        App.load(tmp_path / "app.py")


def test_files_that_are_no_apps(tmp_path: Path) -> None:
    (tmp_path / "empty.py").write_text("x = 1")
    with pytest.raises(ViewError, match=r"declares no view; write a function with @hr\.view"):
        App.load(tmp_path / "empty.py")
    with pytest.raises(ViewError, match="there is no file"):
        App.load(tmp_path / "missing.py")


def test_two_views_of_one_name_are_refused() -> None:
    one, two = hr.view(VISITS)(counts), hr.view(VISITS)(counts)
    with pytest.raises(ViewError, match="declares two views with the name 'counts'"):
        App.of({"one": one, "two": two})
