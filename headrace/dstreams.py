"""The public names of DStreams: `from headrace.dstreams import StreamingContext`."""

from headrace.dialects.dstreams import DStream as DStream
from headrace.dialects.dstreams import ManualClock as ManualClock
from headrace.dialects.dstreams import MapWithStateDStream as MapWithStateDStream
from headrace.dialects.dstreams import State as State
from headrace.dialects.dstreams import StateSpec as StateSpec
from headrace.dialects.dstreams import StreamingContext as StreamingContext
from headrace.dialects.dstreams import StreamingContextError as StreamingContextError
from headrace.dialects.dstreams import StreamingListener as StreamingListener
from headrace.dialects.dstreams import TransformedDStream as TransformedDStream
