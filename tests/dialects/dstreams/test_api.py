"""The surface of pyspark.streaming: names, parameters, defaults; and what the life cycle of a context refuses."""

from __future__ import annotations

import inspect
import operator
from pathlib import Path
from typing import Any, ClassVar

import pyspark.streaming
import pyspark.streaming.dstream
import pytest
from pyspark.sql import SparkSession

from headrace import dstreams
from headrace.dialects.dstreams.api.dstream import with_time
from headrace.dstreams import DStream, ManualClock, StateSpec, StreamingContext, StreamingContextError
from headrace.model.errors import PipelineError

PAIRS = [
    (pyspark.streaming.StreamingContext, dstreams.StreamingContext),
    (pyspark.streaming.DStream, dstreams.DStream),
    (pyspark.streaming.dstream.TransformedDStream, dstreams.TransformedDStream),
    (pyspark.streaming.StreamingListener, dstreams.StreamingListener),
]
JVM = {("DStream", "__init__"), ("StreamingListener", "Java")}
"""Members that take or are objects of the JVM."""


def members(kind: type) -> dict[str, Any]:
    own = {name: value for each in reversed(kind.__mro__[:-1]) for name, value in vars(each).items()}
    names = {name: value for name, value in own.items() if not name.startswith("_") or name == "__init__"}
    return {name: value for name, value in names.items() if (kind.__name__, name) not in JVM}


@pytest.mark.parametrize(("spark_kind", "own_kind"), PAIRS, ids=[kind.__name__ for kind, _ in PAIRS])
def test_all_members_of_spark_are_there_with_their_parameters(spark_kind: type, own_kind: type) -> None:
    theirs, ours = members(spark_kind), members(own_kind)
    assert set(theirs) <= set(ours)
    for name, member in theirs.items():
        assert type(ours[name]) is type(member), name  # property, class method or function
        if isinstance(member, property):
            continue
        wanted, found = (
            [(each.name, each.kind, each.default) for each in signature(value).parameters.values()]
            for value in (member, ours[name])
        )
        assert found[: len(wanted)] == wanted, name
        for each in found[len(wanted) :]:  # ours may have more, which nobody has to give
            assert each[1] is inspect.Parameter.KEYWORD_ONLY and each[2] is not inspect.Parameter.empty, name


def signature(member: Any) -> inspect.Signature:
    return inspect.signature(member.__func__ if isinstance(member, classmethod) else member)


def test_functions_may_take_the_time_or_not() -> None:
    assert with_time(lambda rdd: rdd, 1)("time", "rdd") == "rdd"
    assert with_time(lambda time, rdd: (time, rdd), 1)("time", "rdd") == ("time", "rdd")
    assert with_time(print, 1) is print
    with pytest.raises(StreamingContextError, match="one or two arguments"):
        with_time(lambda a, b, c: a, 1)


def test_specs_are_checked() -> None:
    wrong: Any
    for wrong in (3, lambda a: a):
        with pytest.raises(PipelineError, match=r"\(key, value, state\)"):
            StateSpec.function(wrong)
    spec = StateSpec.function(lambda key, value, state: None)
    with pytest.raises(PipelineError, match="at least one, got 0"):
        spec.numPartitions(0)
    with pytest.raises(PipelineError, match="positive, got -1"):
        spec.timeout(-1)
    state = dstreams.State(True, 3, timing_out=True)
    with pytest.raises(ValueError, match="timing out"):
        state.update(4)
    state = dstreams.State()
    with pytest.raises(LookupError, match="no state"):
        state.get()
    state.update(1)
    state.remove()
    with pytest.raises(ValueError, match="removed"):
        state.update(2)


@pytest.mark.slow("a stream from start to stop")
def test_life_cycle(spark: SparkSession, tmp_path: Path) -> None:
    sc = spark.sparkContext
    for duration in (None, 0, -1):
        with pytest.raises(StreamingContextError, match="batchDuration"):
            StreamingContext(sc, duration)
    clock = ManualClock(5000)
    ssc = StreamingContext(sc, 2, clock=clock)
    assert StreamingContext.getActive() is None and ssc.sparkContext is sc
    with pytest.raises(StreamingContextError, match="not been started"):
        ssc.awaitTermination(0)
    with pytest.raises(StreamingContextError, match="no output operations"):
        ssc.start()
    stream: DStream[Any] = ssc.queueStream([[1], [2, 2]], default=[3])
    assert stream.context() is ssc
    for width, slide in ((3, None), (2, 3)):
        with pytest.raises(ValueError, match=r"multiple of the parent dstream's slide \(batch\) duration \(2000 ms\)"):
            stream.window(width, slide)
    with pytest.raises(ValueError, match="at least one"):
        ssc.union()
    with pytest.raises(ValueError, match="same slide duration"):
        ssc.union(stream, stream.window(4, 4))
    assert ssc.union(stream) is stream
    with pytest.raises(TypeError, match="callable"):
        StreamingContext.getActiveOrCreate(None, 3)  # type: ignore[arg-type]
    with pytest.raises(StreamingContextError, match="mounted disk"):
        ssc.checkpoint("hdfs://name/dir")
    with pytest.raises(StreamingContextError, match="multiple"):
        stream.checkpoint(3)
    counts = stream.map(lambda x: (x, 1)).updateStateByKey(lambda values, state: sum(values) + (state or 0))
    found: list[Any] = []
    counts.foreachRDD(lambda time, rdd: found.append((time.timestamp(), sorted(rdd.collect()))))
    with pytest.raises(StreamingContextError, match=r"StreamingContext\.checkpoint\(directory\)"):
        ssc.start()
    ssc.checkpoint(str(tmp_path / "first"))
    ssc.start()
    ssc.start()  # a warning
    assert StreamingContext.getActive() is ssc
    assert StreamingContext.getActiveOrCreate(None, lambda: pytest.fail("not called")) is ssc
    with pytest.raises(StreamingContextError, match="after starting"):
        stream.map(len)
    with pytest.raises(StreamingContextError, match="runs"):
        ssc.checkpoint(str(tmp_path / "other"))
    other = StreamingContext(sc, 1)
    other.queueStream([]).pprint()
    with pytest.raises(StreamingContextError, match="Only one"):
        other.start()
    assert ssc.awaitTerminationOrTimeout(0) is False
    clock.advance(7)  # the intervals end at 6, 8, 10 and 12
    ssc.stop(stopSparkContext=False, stopGraceFully=True)
    assert found == [
        (6, [(1, 1)]),
        (8, [(1, 1), (2, 2)]),
        (10, [(1, 1), (2, 2), (3, 1)]),
        (12, [(1, 1), (2, 2), (3, 2)]),
    ]
    assert ssc.awaitTerminationOrTimeout(0) is True
    ssc.stop(stopSparkContext=False)
    assert StreamingContext.getActive() is None
    with pytest.raises(StreamingContextError, match="stopped"):
        ssc.start()
    with pytest.raises(StreamingContextError, match="after stopping"):
        stream.reduce(operator.add)


@pytest.mark.parametrize("gracefully", [False, True])
def test_a_function_of_a_batch_may_stop_the_program(spark: SparkSession, tmp_path: Path, gracefully: bool) -> None:
    clock, found = ManualClock(0), list[Any]()
    checkpoint = str(tmp_path / "program")

    def setup() -> StreamingContext:
        ssc = StreamingContext(spark.sparkContext, 1, clock=clock)
        stream: DStream[Any] = ssc.queueStream([[number] for number in range(1, 6)])
        stream.foreachRDD(Stopping(gracefully))
        stream.foreachRDD(Taking())
        ssc.checkpoint(checkpoint)
        return ssc

    Stopping.found = found
    ssc = StreamingContext.getOrCreate(checkpoint, setup, clock=clock)
    ssc.start()
    clock.advance(5)
    ssc.awaitTermination(60)
    assert StreamingContext.getActive() is None
    # All outputs of the batch are done. Only gracefully are those of others that were due.
    assert found == ([1, 2, 3, 4, 5] if gracefully else [1, 2])
    ssc.stop(stopSparkContext=False)
    again = StreamingContext.getOrCreate(checkpoint, setup, clock=clock)
    again.start()
    clock.advance(1)
    again.stop(stopSparkContext=False, stopGraceFully=True)
    again.awaitTermination(0)
    assert found == [1, 2, 3, 4, 5]


class Taking:
    """Takes the elements of batches."""

    found: ClassVar[list[Any]] = []

    def __call__(self, rdd: Any) -> None:
        Stopping.found.extend(rdd.collect())


class Stopping(Taking):
    """Stops the program twice when it sees a 2."""

    def __init__(self, gracefully: bool) -> None:
        self.gracefully = gracefully

    def __call__(self, rdd: Any) -> None:
        if rdd.collect() == [2] and (ssc := StreamingContext.getActive()) is not None:
            for _ in range(2):
                ssc.stop(stopSparkContext=False, stopGraceFully=self.gracefully)
