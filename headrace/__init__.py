"""Headrace: the Dataflow model on Spark, in Python. Write a computation once; run it over history and live data."""

# Each name is imported as itself (`Map as Map`): that makes it public to type checkers, and `__all__` is computed.
# ruff: noqa: I001  (imports are in groups by purpose)

import pkgutil
import types
import typing

# Pipelines: graphs of transforms over collections; running one returns a handle.
from headrace.model.pipeline import PCollection as PCollection, Pipeline as Pipeline, PTransform as PTransform
from headrace.engine.handle import Handle as Handle, StreamStatus as StreamStatus

# Sources.
from headrace.model.uris import Read as Read
from headrace.model.sources import (
    Create as Create,
    Rate as Rate,
    ReadAvro as ReadAvro,
    ReadCsv as ReadCsv,
    ReadFiles as ReadFiles,
    ReadJson as ReadJson,
    ReadParquet as ReadParquet,
    ReadText as ReadText,
    from_spark as from_spark,
)
from headrace.model.sockets import ReadSocket as ReadSocket
from headrace.model.lakes import ReadDelta as ReadDelta, ReadIceberg as ReadIceberg
from headrace.model.tablesources import ReadJdbc as ReadJdbc, ReadTable as ReadTable
from headrace.model.topics import ReadTopic as ReadTopic
from headrace.model.teststream import TestStream as TestStream

# Sinks, and the manifest of what a sink of files wrote.
from headrace.model.uris import Write as Write
from headrace.model.sinks import (
    Collect as Collect,
    ForEach as ForEach,
    ForEachBatch as ForEachBatch,
    WindowedValue as WindowedValue,
    WriteAvro as WriteAvro,
    WriteCsv as WriteCsv,
    WriteJson as WriteJson,
    WriteParquet as WriteParquet,
    WriteText as WriteText,
)
from headrace.model.tables import WriteTable as WriteTable
from headrace.model.lakes import WriteDelta as WriteDelta, WriteIceberg as WriteIceberg
from headrace.model.topics import WriteTopic as WriteTopic
from headrace.edges.outputs import read_manifest as read_manifest, written as written

# Access to Kafka's brokers, and to the schemas of its topics.
from headrace.model.kafkasecurity import KafkaSecurity as KafkaSecurity
from headrace.model.schemaregistry import SchemaRegistry as SchemaRegistry

# Element by element: functions, their side inputs and their outputs.
from headrace.model.elementwise import (
    AsDict as AsDict,
    AsIter as AsIter,
    AsList as AsList,
    AsSingleton as AsSingleton,
    DeadLetter as DeadLetter,
    Filter as Filter,
    FlatMap as FlatMap,
    KeyBy as KeyBy,
    Map as Map,
    MapTuple as MapTuple,
    ParDo as ParDo,
    Partition as Partition,
    WithTimestamps as WithTimestamps,
)
from headrace.model.dofn import DoFn as DoFn, TaggedOutput as TaggedOutput, TimestampedValue as TimestampedValue

# State and timers of a DoFn.
from headrace.model.state import (
    CombiningState as CombiningState,
    ListState as ListState,
    MapState as MapState,
    SetState as SetState,
    TimerSpec as TimerSpec,
    ValueState as ValueState,
    on_timer as on_timer,
)

# State of streams on disk, in checkpoints and savepoints.
from headrace.engine.savedstate import read_state as read_state, rewrite_state as rewrite_state

# Groups and joins, by key and window.
from headrace.model.keyed import (
    CoGroupByKey as CoGroupByKey,
    CombineGlobally as CombineGlobally,
    CombinePerKey as CombinePerKey,
    Flatten as Flatten,
    GroupByKey as GroupByKey,
    Keys as Keys,
    Reshuffle as Reshuffle,
    Values as Values,
    WindowInto as WindowInto,
)
from headrace.model.joins import IntervalJoin as IntervalJoin
from headrace.model.columnjoins import AsOfJoin as AsOfJoin
from headrace.model.columnjoins import Join as Join

# Aggregations of elements.
from headrace.model.algebra import CombineFn as CombineFn
from headrace.model.combiners import (
    ApproxUnique as ApproxUnique,
    Count as Count,
    Distinct as Distinct,
    HeavyHitters as HeavyHitters,
    Max as Max,
    Mean as Mean,
    Min as Min,
    Quantiles as Quantiles,
    Sample as Sample,
    Sum as Sum,
    ToList as ToList,
    Top as Top,
)

# Columns: transforms of rows by SQL expressions.
from headrace.model.columns import (
    EVENT_TIME as EVENT_TIME,
    WINDOW_END as WINDOW_END,
    WINDOW_START as WINDOW_START,
    GroupBy as GroupBy,
    Select as Select,
    Where as Where,
)
from headrace.model.schema import Row as Row

# Aggregations of columns; `hr.agg` is their documented home.
from headrace.model import agg as agg
from headrace.model.agg import (
    approx_distinct as approx_distinct,
    bloom as bloom,
    collect as collect,
    count as count,
    count_distinct as count_distinct,
    count_min as count_min,
    first as first,
    frequency as frequency,
    heavy_hitters as heavy_hitters,
    histogram as histogram,
    last as last,
    max as max,
    max_by as max_by,
    mean as mean,
    min as min,
    min_by as min_by,
    quantiles as quantiles,
    rank as rank,
    sample as sample,
    second_moment as second_moment,
    sum as sum,
    theta as theta,
    top as top,
    variance as variance,
)
from headrace.model.sketches import (
    BloomFilter as BloomFilter,
    CountMinSketch as CountMinSketch,
    ThetaSketch as ThetaSketch,
)

# Windows: where in event time an element belongs.
from headrace.model.windows import (
    CalendarWindows as CalendarWindows,
    CountWindows as CountWindows,
    FixedWindows as FixedWindows,
    GlobalWindows as GlobalWindows,
    Sessions as Sessions,
    SlidingWindows as SlidingWindows,
    UnalignedWindows as UnalignedWindows,
    Window as Window,
    WindowFn as WindowFn,
)

# Triggers: when a window emits a pane.
from headrace.model.triggers import (
    AfterAll as AfterAll,
    AfterAny as AfterAny,
    AfterCount as AfterCount,
    AfterEach as AfterEach,
    AfterPercentile as AfterPercentile,
    AfterProcessingTime as AfterProcessingTime,
    AfterWatermark as AfterWatermark,
    Always as Always,
    DefaultTrigger as DefaultTrigger,
    Never as Never,
    OrFinally as OrFinally,
    Repeatedly as Repeatedly,
    Trigger as Trigger,
)
from headrace.model.panes import PaneInfo as PaneInfo

# Metrics of your own: counters, distributions and gauges in functions.
from headrace.model import metrics as metrics

# Event time and watermarks.
from headrace.model.times import Instant as Instant
from headrace.model.watermarks import (
    BoundedDisorder as BoundedDisorder,
    Monotonic as Monotonic,
    Percentile as Percentile,
    Punctuated as Punctuated,
    WatermarkPolicy as WatermarkPolicy,
    WrittenWatermark as WrittenWatermark,
)

# Collections that change, and loops over them that are kept up to date.
from headrace.model.incremental.changingcollections import (
    Change as Change,
    Collection as Collection,
    iterate as iterate,
)
from headrace.dialects.naiad.pipelinecollections import changes as changes, collection as collection

# Queries in SQL.
from headrace.dialects.sql.sqlfunctions import sql_function as sql_function
from headrace.dialects.sql.sqltransform import Sql as Sql

# Views: named answers over a topic, served over HTTP.
from headrace.views.declare.declarations import Topic as Topic, view as view

# Errors.
from headrace.model.errors import (
    HeadraceError as HeadraceError,
    PipelineError as PipelineError,
    TransformError as TransformError,
)

__version__ = "0.1.0"

# Names that many pipelines do not need are imported when they are first used: this takes long.
if typing.TYPE_CHECKING:
    from headrace import dstreams as dstreams
    from headrace.dialects import millwheel as millwheel
    from headrace.dialects import naiad as naiad
    from headrace.dialects import storm as storm
    from headrace.dialects.sql.sqlsession import SqlSession as SqlSession
    from headrace.log.topics import Log as Log

_LAZY = {
    "Log": "headrace.log.topics:Log",
    "SqlSession": "headrace.dialects.sql.sqlsession:SqlSession",
    "dstreams": "headrace.dstreams",
    "millwheel": "headrace.dialects.millwheel",
    "naiad": "headrace.dialects.naiad",
    "storm": "headrace.dialects.storm",
}


def _public_names() -> list[str]:
    """Returns the names that are imported above; of modules only those that are part of the API."""
    names = [name for name, value in globals().items() if not isinstance(value, types.ModuleType)]
    return sorted(["agg", "metrics", *_LAZY, *(name for name in names if not name.startswith("_"))])


# Type checkers know the names from the imports above. They read `__all__` only as a literal list, and with a
# `__getattr__` they would accept any name.
if not typing.TYPE_CHECKING:
    __all__ = _public_names()

    def __getattr__(name: str) -> typing.Any:
        """Imports a lazy name."""
        if name in _LAZY:
            return pkgutil.resolve_name(_LAZY[name])
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
