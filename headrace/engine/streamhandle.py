"""The handle of a running stream."""

from __future__ import annotations

from dataclasses import dataclass, field

from pyspark import InheritableThread
from pyspark.sql.streaming.query import StreamingQuery

from headrace.engine.failures import plain
from headrace.engine.run import Handle, Status
from headrace.engine.stream import Stream
from headrace.model.times import MIN_TIME, format_instant


@dataclass(frozen=True)
class ExchangeStatus:
    """How far a grouping is: the watermark of its input, and how many windows it holds."""

    watermark: int = MIN_TIME
    held: int = 0

    def __str__(self) -> str:
        return f"watermark {format_instant(self.watermark)}, {self.held} windows held"


@dataclass
class StreamStatus(Status):
    """How far a stream is: the micro-batches it has done, and its groupings by label."""

    batches: int = 0
    exchanges: dict[str, ExchangeStatus] = field(default_factory=dict)


class StreamHandle(Handle):
    """A running stream. `stop()` stops it between or in batches; run again with its checkpoint, it goes on."""

    def __init__(self, stream: Stream) -> None:
        self._stream = stream
        self._status = Status()
        self._error: BaseException | None = None
        self._stopping = False
        self._query: StreamingQuery = stream.start()
        self._thread = InheritableThread(target=self._run, daemon=True)
        self._thread.start()

    @property
    def query(self) -> StreamingQuery:
        """Spark's own handle, for its progress and metrics."""
        return self._query

    def stop(self) -> None:
        """Stops the stream where it is; a batch it is in the middle of is done again when it is run again."""
        self._stopping = True
        self._query.stop()
        self._thread.join()

    def status(self) -> StreamStatus:
        """How far the stream is."""
        delivery = self._stream.delivery
        status = StreamStatus(self._status.state, f"batch {delivery.batches}", batches=delivery.batches)
        for exchange in self._stream.line.exchanges:
            told = [delivery.shards[name] for name in exchange.names() if name in delivery.shards]
            watermark = min((each["input"] for each in told), default=MIN_TIME)
            status.exchanges[exchange.label] = ExchangeStatus(watermark, sum(each["held"] for each in told))
        return status

    def metrics(self) -> dict[str, dict[str, int]]:
        """Elements in and out of each transform, by label; of groupings, how many came too late or were refused.

        Those two are of the whole life of the checkpoint, the others of this run. Of sources, how many elements were
        too far ahead of time, and how many partitions are idle now.
        """
        metrics = self._stream.counters.metrics()
        shards = self._stream.delivery.shards
        for exchange in self._stream.line.exchanges:
            told = [shards[name] for name in exchange.names() if name in shards]
            counts = metrics.setdefault(exchange.label, {})
            counts |= {what: sum(each[what] for each in told) for what in ("late", "refused")}
            for name in {name for each in told for name, _ in each["idle"]}:
                idle = {partition for each in told for source, partition in each["idle"] if source == name}
                metrics.setdefault(name, {})["idle"] = len(idle)
        return metrics

    def _run(self) -> None:
        try:
            if self._stream.ends:
                self._query.processAllAvailable()
                self._stream.end()
                self._query.processAllAvailable()
                self._query.stop()
                self._status.state = "stopped" if self._stopping else "done"
            else:
                self._query.awaitTermination()
                self._status.state = "stopped"
        except BaseException as error:
            if self._stopping:
                self._status.state = "stopped"
            else:
                self._error = plain(error)
                self._status.state = "failed"
        finally:
            self._stream.close()


def start(stream: Stream) -> StreamHandle:
    """Starts a stream."""
    try:
        return StreamHandle(stream)
    except BaseException:
        stream.close()
        raise
