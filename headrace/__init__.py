"""Headrace: the Dataflow model on Spark, in Python. Write a computation once; run it over history and live data."""

from typing import TYPE_CHECKING, Any

from headrace.edges.outputs import written
from headrace.model.algebra import CombineFn
from headrace.model.columns import (
    EVENT_TIME,
    WINDOW_END,
    WINDOW_START,
    GroupBy,
    Select,
    Where,
    approx_distinct,
    collect,
    count,
    count_distinct,
    first,
    heavy_hitters,
    last,
    max,
    mean,
    min,
    quantiles,
    sum,
    top,
    variance,
)
from headrace.model.combiners import (
    ApproxUnique,
    Count,
    Distinct,
    HeavyHitters,
    Max,
    Mean,
    Min,
    Quantiles,
    Sample,
    Sum,
    ToList,
    Top,
)
from headrace.model.dofn import DoFn, TaggedOutput, TimestampedValue
from headrace.model.elementwise import (
    AsDict,
    AsIter,
    AsList,
    AsSingleton,
    DeadLetter,
    Filter,
    FlatMap,
    KeyBy,
    Map,
    MapTuple,
    ParDo,
    Partition,
    WithTimestamps,
)
from headrace.model.errors import HeadraceError, PipelineError, TransformError
from headrace.model.joins import IntervalJoin
from headrace.model.keyed import (
    CoGroupByKey,
    CombineGlobally,
    CombinePerKey,
    Flatten,
    GroupByKey,
    Keys,
    Reshuffle,
    Values,
    WindowInto,
)
from headrace.model.panes import PaneInfo
from headrace.model.pipeline import PCollection, Pipeline, PTransform
from headrace.model.sinks import Collect, ForEach, ForEachBatch, WriteJson, WriteParquet, WriteText
from headrace.model.sockets import ReadSocket
from headrace.model.sources import Create, Rate, ReadCsv, ReadJson, ReadParquet, ReadText
from headrace.model.state import (
    CombiningState,
    ListState,
    MapState,
    SetState,
    TimerSpec,
    ValueState,
    on_timer,
)
from headrace.model.tables import WriteTable
from headrace.model.teststream import TestStream
from headrace.model.topics import ReadTopic, WriteTopic
from headrace.model.triggers import (
    AfterAll,
    AfterAny,
    AfterCount,
    AfterEach,
    AfterPercentile,
    AfterProcessingTime,
    AfterWatermark,
    Always,
    DefaultTrigger,
    Never,
    OrFinally,
    Repeatedly,
)
from headrace.model.uris import Read, Write
from headrace.model.watermarks import BoundedDisorder, Monotonic, Percentile, Punctuated, WatermarkPolicy
from headrace.model.windows import (
    CalendarWindows,
    CountWindows,
    FixedWindows,
    GlobalWindows,
    Sessions,
    SlidingWindows,
    UnalignedWindows,
    Window,
    WindowFn,
)
from headrace.views.declarations import Topic, view

__version__ = "0.1.0"

if TYPE_CHECKING:
    from headrace.dialects import storm


def __getattr__(name: str) -> Any:
    if name == "storm":  # a dialect is imported by those who speak it
        from headrace.dialects import storm

        return storm
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "EVENT_TIME",
    "WINDOW_END",
    "WINDOW_START",
    "AfterAll",
    "AfterAny",
    "AfterCount",
    "AfterEach",
    "AfterPercentile",
    "AfterProcessingTime",
    "AfterWatermark",
    "Always",
    "ApproxUnique",
    "AsDict",
    "AsIter",
    "AsList",
    "AsSingleton",
    "BoundedDisorder",
    "CalendarWindows",
    "CoGroupByKey",
    "Collect",
    "CombineFn",
    "CombineGlobally",
    "CombinePerKey",
    "CombiningState",
    "Count",
    "CountWindows",
    "Create",
    "DeadLetter",
    "DefaultTrigger",
    "Distinct",
    "DoFn",
    "Filter",
    "FixedWindows",
    "FlatMap",
    "Flatten",
    "ForEach",
    "ForEachBatch",
    "GlobalWindows",
    "GroupBy",
    "GroupByKey",
    "HeadraceError",
    "HeavyHitters",
    "IntervalJoin",
    "KeyBy",
    "Keys",
    "ListState",
    "Map",
    "MapState",
    "MapTuple",
    "Max",
    "Mean",
    "Min",
    "Monotonic",
    "Never",
    "OrFinally",
    "PCollection",
    "PTransform",
    "PaneInfo",
    "ParDo",
    "Partition",
    "Percentile",
    "Pipeline",
    "PipelineError",
    "Punctuated",
    "Quantiles",
    "Rate",
    "Read",
    "ReadCsv",
    "ReadJson",
    "ReadParquet",
    "ReadSocket",
    "ReadText",
    "ReadTopic",
    "Repeatedly",
    "Reshuffle",
    "Sample",
    "Select",
    "Sessions",
    "SetState",
    "SlidingWindows",
    "Sum",
    "TaggedOutput",
    "TestStream",
    "TimerSpec",
    "TimestampedValue",
    "ToList",
    "Top",
    "Topic",
    "TransformError",
    "UnalignedWindows",
    "ValueState",
    "Values",
    "WatermarkPolicy",
    "Where",
    "Window",
    "WindowFn",
    "WindowInto",
    "WithTimestamps",
    "Write",
    "WriteJson",
    "WriteParquet",
    "WriteTable",
    "WriteText",
    "WriteTopic",
    "approx_distinct",
    "collect",
    "count",
    "count_distinct",
    "first",
    "heavy_hitters",
    "last",
    "max",
    "mean",
    "min",
    "on_timer",
    "quantiles",
    "storm",
    "sum",
    "top",
    "variance",
    "view",
    "written",
]
