"""Spark's DStreams on the same engine: programs written for pyspark.streaming, exactly once.

Its rooms, in the order in which they may import: `worker` computes in Python workers, `graph` makes RDDs of batches,
`execution` runs batches, `api` is what programs use.
"""

from headrace.dialects.dstreams.api.dstream import DStream, MapWithStateDStream, TransformedDStream
from headrace.dialects.dstreams.api.listener import StreamingListener
from headrace.dialects.dstreams.api.statespec import StateSpec
from headrace.dialects.dstreams.api.streamingcontext import StreamingContext
from headrace.dialects.dstreams.errors import StreamingContextError
from headrace.dialects.dstreams.execution.batchclock import ManualClock
from headrace.dialects.dstreams.worker.keystate import State

__all__ = [
    "DStream",
    "ManualClock",
    "MapWithStateDStream",
    "State",
    "StateSpec",
    "StreamingContext",
    "StreamingContextError",
    "StreamingListener",
    "TransformedDStream",
]
