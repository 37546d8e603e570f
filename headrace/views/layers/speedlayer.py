"""The speed layer: runs the view's pipeline as a stream of its topic, and adds each micro-batch to the store once.

The stream's checkpoint has the offsets of each micro-batch: Spark logs them before the micro-batch runs, and one that
runs again, after a crash, has the same.
"""

from __future__ import annotations

from typing import Any, cast

from pyspark.sql import SparkSession

from headrace.engine.checkpoint.checkpoint import stream_of
from headrace.engine.connectors.streamtopics import began_at
from headrace.engine.spark.files import Folder
from headrace.engine.spark.offsetlog import OffsetLog
from headrace.engine.spark.session import spark_session
from headrace.engine.stream.handle import StreamHandle
from headrace.model.pipeline import PCollection, Pipeline
from headrace.model.sinks import ForEachBatch, WindowedValue
from headrace.model.topics import ReadTopic
from headrace.model.triggers import Always
from headrace.model.watermarks import Monotonic, WatermarkPolicy
from headrace.views.declare.declarations import View
from headrace.views.declare.partialaggregates import partial_of
from headrace.views.feeds import Feed
from headrace.views.offsets import MicroBatch, Offsets
from headrace.views.stores.deadletters import DeadLetters
from headrace.views.stores.store import StoredView


class SpeedLayer:
    """Keeps a stored view up to date with the feed of its topic, from the offsets that the view has reached.

    `checkpoint` is the directory of the stream; with the same one it continues after a stop or a crash, and the view's
    function may have changed. `watermark` decides when events are late: those later than the view allows are in no
    answer before the next batch version. Records that are no events go to `dead_letters`.
    """

    def __init__(
        self,
        view: View,
        stored: StoredView,
        feed: Feed,
        *,
        checkpoint: str,
        watermark: WatermarkPolicy = Monotonic(),
        spark: SparkSession | None = None,
        dead_letters: DeadLetters | None = None,
    ) -> None:
        self.view, self.stored, self.feed, self.checkpoint, self.watermark = view, stored, feed, checkpoint, watermark
        self.label = f"topic {view.topic.name}"
        self._spark, self._dead_letters = spark or spark_session(), dead_letters
        self.pipeline = Pipeline(spark=self._spark)
        self._handle: StreamHandle | None = None
        self._folder = Folder(self._spark, checkpoint)
        self._stream: str | None = None  # its id, which micro-batches need and find in the checkpoint once

    def start(self, **options: Any) -> StreamHandle:
        """Starts the stream; `options` are those of `Pipeline.run`, e.g. trigger="1 second"."""
        pipeline = Pipeline(spark=self._spark)
        self._stream = None
        read = self.feed.read(self.stored.progress().reached, self.watermark)
        deltas = self.view.partials(self._events(pipeline, read), trigger=Always())
        deltas | f"store {self.view.name}" >> ForEachBatch(self._add)
        handle = pipeline.run(checkpoint=self.checkpoint, **options)
        self._handle = cast(StreamHandle, handle)  # a topic has no end, so the run is a stream
        self.pipeline = pipeline  # once it is complete: other threads read it
        return self._handle

    def _events(self, pipeline: Pipeline, read: ReadTopic) -> PCollection:
        if self._dead_letters is None or not read.checks:
            return pipeline | self.label >> read  # type: ignore[no-any-return]
        records = pipeline | self.label >> read.with_exception_handling()
        records.dead_letters | "dead letters" >> ForEachBatch(self._add_dead_letters)
        return records.main  # type: ignore[no-any-return]

    def _add_dead_letters(self, elements: list[WindowedValue], number: int) -> None:
        assert self._dead_letters is not None
        self._dead_letters.add(self.view.name, [element.value for element in elements])

    def _add(self, elements: list[WindowedValue], number: int) -> None:
        self.stored.add(self._micro_batch(number), [partial_of(self.stored.layout, element) for element in elements])

    def _micro_batch(self, number: int) -> MicroBatch:
        """Returns the micro-batch with a number."""
        if self._stream is None:
            self._stream = stream_of(self._folder)
        log = OffsetLog(self._folder.folder("spark"))
        until, since = self._end(log, number), None
        if number > 0 and self.stored.progress().stream == self._stream:
            since = self._end(log, number - 1)
        if since is None:  # the first with something for the view: it continues from where the stream began
            since = began_at(self._folder.folder("control"), self.label)
        return MicroBatch(self._stream, number, since, since if until is None else until, self._watermark())

    def _watermark(self) -> int | None:
        """Returns the watermark of the topic; None in a micro-batch that runs before `start` has returned."""
        handle = self._handle
        return None if handle is None else handle.watermark_of(self.label)

    def _end(self, log: OffsetLog, number: int) -> Offsets | None:
        """Returns the end of a micro-batch in the topic, which is the first source; None if the topic is empty."""
        end = log.ends_of(number)[0]
        return None if end is None else self.feed.offsets_in_log(end)
