"""DStream: a sequence of RDDs, one for each interval of time, and what can be made of it.

Names, parameters and defaults are those of pyspark.streaming.
"""

from __future__ import annotations

import inspect
import operator
from collections.abc import Callable, Iterable
from datetime import datetime
from itertools import chain
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from pyspark import RDD, StorageLevel
from pyspark.core.rdd import portable_hash
from pyspark.resultiterable import ResultIterable

from headrace.dialects.dstreams.api.outputoperations import save_as_text_file, take_and_print
from headrace.dialects.dstreams.api.statespec import StateSpec
from headrace.dialects.dstreams.api.topicoutput import SavedToTopic
from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.graph.nodes import (
    Node,
    SnapshotNode,
    StateNode,
    TransformNode,
    WindowNode,
    WindowStateNode,
)
from headrace.dialects.dstreams.worker.keyedblocks import Combiner, combined_by_key
from headrace.dialects.dstreams.worker.mappedstate import MapState
from headrace.dialects.dstreams.worker.updatestate import UpdateState
from headrace.dialects.dstreams.worker.windowstate import ReduceWindow
from headrace.model.errors import PipelineError

if TYPE_CHECKING:
    from headrace.dialects.dstreams.api.streamingcontext import StreamingContext

T_co = TypeVar("T_co", covariant=True)


class DStream(Generic[T_co]):
    """A stream as a sequence of RDDs, one for each interval of time.

    Sources of a StreamingContext and transformations return DStreams; output operations (`pprint`, `saveAsTextFiles`,
    `foreachRDD`) say what is done with each RDD. Nothing runs before the context is started.
    """

    def __init__(self, node: Node, ssc: StreamingContext) -> None:
        ssc._check_can_change()
        self._node, self._ssc, self._sc = node, ssc, ssc.sparkContext
        self.is_cached = False
        self.is_checkpointed = False

    def context(self) -> StreamingContext:
        """Returns the StreamingContext of this stream."""
        return self._ssc

    @property
    def _slideDuration(self) -> float:
        return self._node.slide / 1000

    # Element by element.

    def map(self, f: Callable[[Any], Any], preservesPartitioning: bool = False) -> DStream[Any]:
        """Applies a function to each element."""
        return self.mapPartitions(lambda iterator: map(f, iterator), preservesPartitioning)

    def flatMap(self, f: Callable[[Any], Iterable[Any]], preservesPartitioning: bool = False) -> DStream[Any]:
        """Applies a function to each element; the elements of its results are those of the stream."""
        return self.mapPartitions(lambda iterator: chain.from_iterable(map(f, iterator)), preservesPartitioning)

    def filter(self, f: Callable[[Any], bool]) -> DStream[Any]:
        """Leaves out elements of which a function is false."""
        return self.mapPartitions(lambda iterator: filter(f, iterator), True)

    def mapPartitions(
        self, f: Callable[[Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream[Any]:
        """Applies a function to the elements of each partition."""
        return self.mapPartitionsWithIndex(lambda _, iterator: f(iterator), preservesPartitioning)

    def mapPartitionsWithIndex(
        self, f: Callable[[int, Iterable[Any]], Iterable[Any]], preservesPartitioning: bool = False
    ) -> DStream[Any]:
        """Applies a function to the number and the elements of each partition."""
        return self.transform(lambda rdd: rdd.mapPartitionsWithIndex(f, preservesPartitioning))

    def mapValues(self, f: Callable[[Any], Any]) -> DStream[Any]:
        """Applies a function to the value of each pair."""
        return self.map(lambda pair: (pair[0], f(pair[1])), preservesPartitioning=True)

    def flatMapValues(self, f: Callable[[Any], Iterable[Any]]) -> DStream[Any]:
        """Applies a function to the value of each pair; each element of its result makes a pair with the key."""
        return self.flatMap(lambda pair: ((pair[0], value) for value in f(pair[1])), preservesPartitioning=True)

    def glom(self) -> DStream[Any]:
        """Makes one list of the elements of each partition."""
        return self.mapPartitions(lambda iterator: iter([list(iterator)]))

    # RDD by RDD.

    def transform(
        self, func: Callable[[RDD[Any]], RDD[Any] | None] | Callable[[datetime, RDD[Any]], RDD[Any] | None]
    ) -> TransformedDStream[Any]:
        """Applies a function to each RDD, or to the time of its batch and the RDD."""
        return TransformedDStream(self, func)

    def transformWith(
        self, func: Callable[..., RDD[Any] | None], other: DStream[Any], keepSerializer: bool = False
    ) -> DStream[Any]:
        """Applies a function to each RDD and that of another stream, and to the time of the batch if it takes three."""
        function = with_time(func, 2)
        return DStream(TransformNode((self._node, other._node), function, self._node.slide), self._ssc)

    def repartition(self, numPartitions: int) -> DStream[Any]:
        """Changes the number of partitions."""
        return self.transform(lambda rdd: rdd.repartition(numPartitions))

    def partitionBy(self, numPartitions: int, partitionFunc: Callable[[Any], int] = portable_hash) -> DStream[Any]:
        """Partitions pairs by a function of their keys."""
        return self.transform(lambda rdd: rdd.partitionBy(numPartitions, partitionFunc))

    def cache(self) -> DStream[Any]:
        """Persists the RDDs in memory."""
        return self.persist(StorageLevel.MEMORY_ONLY)

    def persist(self, storageLevel: StorageLevel) -> DStream[Any]:
        """Persists the RDDs, with a storage level."""
        self._ssc._check_can_change()
        self.is_cached = True
        self._node.level = storageLevel
        return self

    def checkpoint(self, interval: int) -> DStream[Any]:
        """Does nothing but check the interval: state is stored in every batch, by what has changed."""
        self._ssc._check_can_change()
        if round(interval * 1000) % self._node.slide:
            raise StreamingContextError(
                f"DStream.checkpoint: the interval is a multiple of the stream's slide duration, {self._slideDuration} "
                f"s, got {interval} s"
            )
        self.is_checkpointed = True
        return self

    # Groups and reductions of a batch.

    def count(self) -> DStream[Any]:
        """Counts the elements of each RDD."""
        return self.mapPartitions(lambda iterator: iter([sum(1 for _ in iterator)])).reduce(operator.add)

    def countByValue(self) -> DStream[Any]:
        """Counts how often each value is in an RDD."""
        return self.map(lambda value: (value, 1)).reduceByKey(operator.add)

    def reduce(self, func: Callable[[Any, Any], Any]) -> DStream[Any]:
        """Reduces the elements of each RDD to one."""
        return self.map(lambda value: (None, value)).reduceByKey(func, 1).map(lambda pair: pair[1])

    def reduceByKey(self, func: Callable[[Any, Any], Any], numPartitions: int | None = None) -> DStream[Any]:
        """Reduces the values of each key, in each RDD."""
        return self._combined(Combiner(None, func, func), numPartitions)

    def combineByKey(
        self,
        createCombiner: Callable[[Any], Any],
        mergeValue: Callable[[Any, Any], Any],
        mergeCombiners: Callable[[Any, Any], Any],
        numPartitions: int | None = None,
    ) -> DStream[Any]:
        """Combines the values of each key, in each RDD."""
        return self._combined(Combiner(createCombiner, mergeValue, mergeCombiners), numPartitions)

    def _combined(self, combiner: Combiner, partitions: int | None) -> DStream[Any]:
        count = self._partitions(partitions)
        return self.transform(lambda rdd: combined_by_key(rdd, combiner, count))

    def groupByKey(self, numPartitions: int | None = None) -> DStream[Any]:
        """Groups the values of each key, in each RDD."""
        count = self._partitions(numPartitions)
        return self.transform(lambda rdd: rdd.groupByKey(count))

    # Several streams.

    def union(self, other: DStream[Any]) -> DStream[Any]:
        """Puts the elements of two streams together."""
        if self._node.slide != other._node.slide:
            raise ValueError("the two DStream should have same slide duration")
        return self.transformWith(lambda a, b: a.union(b), other, True)

    def cogroup(self, other: DStream[Any], numPartitions: int | None = None) -> DStream[Any]:
        """Groups the values of each key in both streams."""
        count = self._partitions(numPartitions)
        return self.transformWith(lambda a, b: a.cogroup(b, count), other)

    def join(self, other: DStream[Any], numPartitions: int | None = None) -> DStream[Any]:
        """Joins pairs of both streams by key."""
        count = self._partitions(numPartitions)
        return self.transformWith(lambda a, b: a.join(b, count), other)

    def leftOuterJoin(self, other: DStream[Any], numPartitions: int | None = None) -> DStream[Any]:
        """Joins by key; pairs of this stream that have no partner get None."""
        count = self._partitions(numPartitions)
        return self.transformWith(lambda a, b: a.leftOuterJoin(b, count), other)

    def rightOuterJoin(self, other: DStream[Any], numPartitions: int | None = None) -> DStream[Any]:
        """Joins by key; pairs of the other stream that have no partner get None."""
        count = self._partitions(numPartitions)
        return self.transformWith(lambda a, b: a.rightOuterJoin(b, count), other)

    def fullOuterJoin(self, other: DStream[Any], numPartitions: int | None = None) -> DStream[Any]:
        """Joins by key; pairs of either stream that have no partner get None."""
        count = self._partitions(numPartitions)
        return self.transformWith(lambda a, b: a.fullOuterJoin(b, count), other)

    # Windows.

    def window(self, windowDuration: int, slideDuration: int | None = None) -> DStream[Any]:
        """Puts the RDDs of the last `windowDuration` seconds together, every `slideDuration` seconds."""
        width, slide = self._window(windowDuration, slideDuration)
        return DStream(WindowNode(self._node, width, slide), self._ssc)

    def reduceByWindow(
        self,
        reduceFunc: Callable[[Any, Any], Any],
        invReduceFunc: Callable[[Any, Any], Any] | None,
        windowDuration: int,
        slideDuration: int,
    ) -> DStream[Any]:
        """Reduces the elements of a window to one; see reduceByKeyAndWindow."""
        keyed = self.map(lambda value: (1, value))
        reduced = keyed.reduceByKeyAndWindow(reduceFunc, invReduceFunc, windowDuration, slideDuration, 1)
        return reduced.map(lambda pair: pair[1])

    def countByWindow(self, windowDuration: int, slideDuration: int) -> DStream[Any]:
        """Counts the elements of a window."""
        ones = self.map(lambda _: 1)
        return ones.reduceByWindow(operator.add, operator.sub, windowDuration, slideDuration)

    def countByValueAndWindow(
        self, windowDuration: int, slideDuration: int, numPartitions: int | None = None
    ) -> DStream[Any]:
        """Counts how often each value is in a window."""
        keyed = self.map(lambda value: (value, 1))
        return keyed.reduceByKeyAndWindow(  # a value that has left the window leaves the state, too
            operator.add, operator.sub, windowDuration, slideDuration, numPartitions, lambda pair: pair[1] > 0
        )

    def groupByKeyAndWindow(
        self, windowDuration: int, slideDuration: int, numPartitions: int | None = None
    ) -> DStream[Any]:
        """Groups the values of each key in a window."""
        lists = self.mapValues(lambda value: [value])
        grouped = lists.reduceByKeyAndWindow(
            _extended, lambda a, b: a[len(b) :], windowDuration, slideDuration, numPartitions
        )
        return grouped.mapValues(ResultIterable)

    def reduceByKeyAndWindow(
        self,
        func: Callable[[Any, Any], Any],
        invFunc: Callable[[Any, Any], Any] | None,
        windowDuration: int,
        slideDuration: int | None = None,
        numPartitions: int | None = None,
        filterFunc: Callable[[Any], bool] | None = None,
    ) -> DStream[Any]:
        """Reduces the values of each key in a window of the last `windowDuration` seconds, every `slideDuration`.

        Values of a batch are reduced once, and stay in their partition while the window has them. With `invFunc`, a
        window of more than five slides is the one before it, without what left it and with what came. Then keys stay
        until `filterFunc` is false of their pair, even if none of their values is left.
        """
        width, slide = self._window(windowDuration, slideDuration)
        operator_ = ReduceWindow(func, invFunc, filterFunc, width, slide)
        return DStream(WindowStateNode(self._node, operator_, self._partitions(numPartitions)), self._ssc)

    def _window(self, width: float, slide: float | None) -> tuple[int, int]:
        """Checks the durations of a window; returns them in milliseconds."""
        own = self._node.slide
        for name, duration in (("windowDuration", width), ("slideDuration", slide)):
            if duration and int(duration * 1000) % own != 0:
                raise ValueError(
                    f"{name} must be multiple of the parent dstream's slide (batch) duration ({own} ms), got "
                    f"{duration} s"
                )
        if width <= 0:
            raise ValueError(f"windowDuration must be positive, got {width} s")
        return int(width * 1000), int(slide * 1000) if slide else own

    # State.

    def updateStateByKey(
        self,
        updateFunc: Callable[[Any, Any], Any],
        numPartitions: int | None = None,
        initialRDD: RDD[Any] | Iterable[Any] | None = None,
    ) -> DStream[Any]:
        """Updates a state for each key, by a function of its new values and its state; None removes the key.

        In every batch the function is called for every key, also with no new values. The elements of the stream are all
        keys with their states.
        """
        node = StateNode(self._node, UpdateState(updateFunc), self._partitions(numPartitions), self._node.slide)
        node.initial = self._initial(initialRDD)
        return DStream(node, self._ssc)

    def mapWithState(self, spec: StateSpec) -> MapWithStateDStream[Any]:
        """Maps each pair with a function that reads and updates the state of its key; see StateSpec."""
        if not isinstance(spec, StateSpec):
            raise PipelineError(f"mapWithState takes a StateSpec, e.g. StateSpec.function(f), got {spec!r}")
        timeout = None if spec._timeout is None else round(spec._timeout * 1000)
        mapping = MapState(spec._function, spec._timed, timeout)
        node = StateNode(self._node, mapping, self._partitions(spec._partitions), self._node.slide)
        node.initial = self._initial(spec._initial)
        return MapWithStateDStream(node, self._ssc)

    def _initial(self, pairs: RDD[Any] | Iterable[Any] | None) -> RDD[Any] | None:
        return pairs if pairs is None or isinstance(pairs, RDD) else self._sc.parallelize(list(pairs))

    def _partitions(self, count: int | None) -> int:
        return self._sc.defaultParallelism if count is None else count

    # Outputs.

    def foreachRDD(self, func: Callable[[RDD[Any]], object] | Callable[[datetime, RDD[Any]], object]) -> None:
        """Calls a function in the driver with each RDD, or with the time of its batch and the RDD.

        A batch that was interrupted by a crash is run again, with the same time and the same elements; one that was
        done is not.
        """
        self._ssc._add_output(self._node, with_time(func, 1), getattr(func, "__name__", "foreachRDD"))

    def pprint(self, num: int = 10) -> None:
        """Prints the first elements of each RDD."""
        self.foreachRDD(take_and_print(num))

    def saveAsTextFiles(self, prefix: str, suffix: str | None = None) -> None:
        """Writes each RDD to a directory PREFIX-TIME[.SUFFIX], once, whatever happens; TIME is in milliseconds."""
        self.foreachRDD(save_as_text_file(prefix, suffix))

    def saveToTopic(
        self,
        topic: str,
        *,
        log: str | None = None,
        key: str | Callable[[Any], Any] | None = None,
        timestamp: str | Callable[[Any], Any] | None = None,
    ) -> None:
        """Appends each element to a topic as a record, once, whatever happens.

        `topic`, `log`, `key` and `timestamp` are those of hr.WriteTopic; without `timestamp`, records have the time of
        their batch. In Kafka, values are JSON, unless they are bytes. Any pipeline can read them, with a watermark of
        its own: hr.ReadTopic.
        """
        self._ssc._add_output(self._node, SavedToTopic(topic, log, key, timestamp), "saveToTopic")

    def slice(self, begin: datetime | int, end: datetime | int) -> list[RDD[Any]]:
        """Returns the RDDs from one time to another, both included; times are datetimes or seconds since 1970.

        How far back there are RDDs says StreamingContext.remember.
        """
        return self._ssc._slice(self._node, begin, end)


class TransformedDStream(DStream[T_co]):
    """A stream whose RDDs are made by a function of the RDDs of another."""

    def __init__(
        self,
        prev: DStream[Any],
        func: Callable[[RDD[Any]], RDD[Any] | None] | Callable[[datetime, RDD[Any]], RDD[Any] | None],
    ) -> None:
        self.prev, self.func = prev, with_time(func, 1)
        super().__init__(TransformNode((prev._node,), self.func, prev._node.slide), prev._ssc)


class MapWithStateDStream(DStream[T_co]):
    """The stream that mapWithState returns: what its function maps elements to."""

    def stateSnapshots(self) -> DStream[Any]:
        """Returns a stream of all keys with their states, as they are after each batch."""
        assert isinstance(self._node, StateNode)
        return DStream(SnapshotNode(self._node), self._ssc)


def with_time(func: Callable[..., Any], rdds: int) -> Callable[..., Any]:
    """Returns a function of the time and so many RDDs, of one that may take no time."""
    count = _parameters(func)
    if count == rdds:
        return _WithoutTime(func)
    if count not in (rdds + 1, None):
        numbers = {1: "one or two", 2: "two or three"}[rdds]
        raise StreamingContextError(f"func should take {numbers} arguments, got {func!r}, which takes {count}")
    return func


class _WithoutTime:
    """A function that is called without the time of the batch."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function

    def __call__(self, _: datetime, *rdds: RDD[Any]) -> Any:
        return self.function(*rdds)


def _parameters(func: Callable[..., Any]) -> int | None:
    """Returns how many arguments a function takes by place; None if it takes as many as there are."""
    if (code := getattr(func, "__code__", None)) is not None and not inspect.ismethod(func):
        return int(code.co_argcount)  # what Spark asks
    parameters = inspect.signature(func).parameters.values()
    if any(each.kind is each.VAR_POSITIONAL for each in parameters):
        return None
    return sum(each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD) for each in parameters)


def _extended(a: list[Any], b: list[Any]) -> list[Any]:
    a.extend(b)
    return a
