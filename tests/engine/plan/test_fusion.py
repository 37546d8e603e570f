"""Plans as trees: what is fused, where the shuffles are, what is read twice, what Catalyst runs. No Spark job runs."""

from textwrap import dedent
from typing import Any

import headrace as hr
from headrace.engine.explain import explain
from headrace.engine.plan import PASSES, plan
from headrace.engine.plan.stages import Python


def tree(p: hr.Pipeline) -> str:
    return explain(p.graph())


def is_tree(p: hr.Pipeline, expected: str) -> None:
    assert tree(p) == dedent(expected).strip("\n")


def test_the_passes_are_a_tuple_one_can_read() -> None:
    assert [step.__name__ for step in PASSES] == [
        "with_topic_types",
        "validate",
        "check_columns",
        "fuse",
        "count_readers",
    ]


def test_neighbouring_functions_are_one_stage_and_a_combiner_starts_before_its_shuffle() -> None:
    p = hr.Pipeline()
    words = p | "read" >> hr.ReadText("in.txt") | "split" >> hr.FlatMap(str.split)
    words | "count" >> hr.Count.per_element() | "show" >> hr.MapTuple(print) | "out" >> hr.WriteText("out")
    is_tree(
        p,
        """
        write  out: WriteText('out')
        └─ python  count/count · show
           └─ shuffle  count/count by key
              └─ python  split · count/pair
                 └─ read  read: ReadText('in.txt')
        """,
    )


def test_windows_are_part_of_the_order_of_a_shuffle() -> None:
    p = hr.Pipeline()
    pairs = p | hr.Create([("a", 1)]) | "minutes" >> hr.WindowInto(hr.FixedWindows(60))
    pairs | "group" >> hr.GroupByKey() | "all" >> hr.Collect()
    is_tree(
        p,
        """
        write  all: Collect
        └─ python  group
           └─ shuffle  group by key, start, end
              └─ python  pack
                 └─ columns  minutes
                    └─ read  Create(1 elements)
        """,
    )


def test_columns_stay_in_catalyst() -> None:
    p = hr.Pipeline()
    rows = p | "rows" >> hr.ReadParquet("in", event_time="ts") | "hours" >> hr.WindowInto(hr.FixedWindows("1 h"))
    rows | "big" >> hr.Where("n > 3") | "sum" >> hr.GroupBy("k").aggregate(n=hr.count()) | hr.WriteParquet("out")
    assert not any(isinstance(stage, Python) for stage in plan(p.graph()).stages)
    is_tree(
        p,
        """
        write  WriteParquet('out')
        └─ columns  sum
           └─ columns  big
              └─ columns  hours
                 └─ read  rows: ReadParquet('in')
        """,
    )


def test_what_is_read_twice_is_one_stage_with_two_outputs() -> None:
    p = hr.Pipeline()
    doubled = p | "in" >> hr.Create([1]) | "double" >> hr.Map(lambda x: 2 * x)
    doubled | "a" >> hr.Collect()
    doubled | "more" >> hr.Map(lambda x: x + 1) | "b" >> hr.Collect()
    is_tree(
        p,
        """
        write  a: Collect
        └─ python  double · more
           └─ read  in: Create(1 elements)
        write  b: Collect
        └─ python  double · more  (as above)
        """,
    )
    (stage,) = [stage for stage in plan(p.graph()).stages if isinstance(stage, Python)]
    assert stage.readers == 2 and len(stage.program.outputs) == 2


def test_a_side_input_of_its_own_collection_breaks_the_fusion() -> None:
    p = hr.Pipeline()
    numbers = p | "in" >> hr.Create([1, 2]) | "as is" >> hr.Map(lambda x: x)
    least = numbers | "least" >> hr.Map(abs)
    numbers | "minus" >> hr.Map(lambda x, all_of: x - min(all_of), hr.AsList(least)) | "out" >> hr.Collect()
    is_tree(
        p,
        """
        write  out: Collect
        └─ python  minus
           ├─ python  as is · least
           │  └─ read  in: Create(2 elements)
           └─ side input: python  as is · least  (as above)
        """,
    )


def test_flatten_and_reshuffle() -> None:
    p = hr.Pipeline()
    a = p | "a" >> hr.Create([1]) | "f" >> hr.Map(lambda x: x)
    b = p | "b" >> hr.Create([2])
    (a, b) | "both" >> hr.Flatten() | "spread" >> hr.Reshuffle() | "g" >> hr.Map(lambda x: x) | "out" >> hr.Collect()
    is_tree(
        p,
        """
        write  out: Collect
        └─ python  g
           └─ shuffle  spread
              └─ python  pack
                 └─ flatten  both
                    ├─ python  f
                    │  └─ read  a: Create(1 elements)
                    └─ python  pack
                       └─ read  b: Create(1 elements)
        """,
    )


def test_a_stateful_function_has_its_own_shuffle_in_the_order_of_time() -> None:
    class Numbering(hr.DoFn):
        seen = hr.ValueState("seen")

        def process(self, pair: Any, seen: Any = hr.DoFn.StateParam(seen)) -> Any:
            yield pair

    p = hr.Pipeline()
    p | "in" >> hr.Create([("a", 1)]) | "number" >> hr.ParDo(Numbering()) | "out" >> hr.Collect()
    is_tree(
        p,
        """
        write  out: Collect
        └─ python  number
           └─ shuffle  number by key, time, order
              └─ python  pack
                 └─ read  in: Create(1 elements)
        """,
    )
