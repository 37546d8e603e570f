"""MillWheel's programming model on the same engine: computations over keyed records, with state, timers, watermarks.

Its rooms, in the order in which they may import: `api` declares, `graph` builds pipelines, `mill` runs them.
"""

from headrace.dialects.millwheel.api.computation import Computation
from headrace.dialects.millwheel.api.injector import Heuristic, Injector, Perfect
from headrace.dialects.millwheel.api.keyextractor import Key, key
from headrace.dialects.millwheel.api.persistent import Persistent
from headrace.dialects.millwheel.api.recordsandtimers import ComputationError, Record, Timer
from headrace.dialects.millwheel.graph.computationgraph import build, create_streams
from headrace.dialects.millwheel.mill.computationstatus import ComputationStatus
from headrace.dialects.millwheel.mill.mill import Mill
from headrace.model.times import Instant

__all__ = [
    "Computation",
    "ComputationError",
    "ComputationStatus",
    "Heuristic",
    "Injector",
    "Instant",
    "Key",
    "Mill",
    "Perfect",
    "Persistent",
    "Record",
    "Timer",
    "build",
    "create_streams",
    "key",
]
