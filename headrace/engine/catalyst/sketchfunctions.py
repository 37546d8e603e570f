"""SQL functions of sketches that Spark does not have: a value's frequency, membership, and bounds of an estimate.

Those of theta sketches (`theta_union`, `theta_intersection`, `theta_difference`, `theta_sketch_estimate`) are Spark's.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any, Final
from weakref import WeakSet

import pyarrow as pa
from pyspark.sql import SparkSession
from pyspark.sql.pandas.functions import arrow_udf

from headrace.model.sketches import BloomFilter, CountMinSketch, ThetaSketch

_SKETCHES: Final = 16  # that are kept decoded: rows that are asked one after the other often have the same
_REGISTERED: Final[WeakSet[SparkSession]] = WeakSet()


def register_for(expressions: Iterable[Any], session: SparkSession) -> None:
    """Registers the functions with a session if an expression, SQL text or Column, calls one of them."""
    calls = any(isinstance(each, str) and _CALL.search(each) for each in expressions)
    if calls and session not in _REGISTERED:
        for name, (function, kind) in _FUNCTIONS.items():
            session.udf.register(name, arrow_udf(function, kind))  # type: ignore[call-overload]
        _REGISTERED.add(session)


def _bloom_contains(filters: pa.Array, values: pa.Array) -> pa.Array:
    return pa.array(_asked(BloomFilter, BloomFilter.__contains__, filters, values), pa.bool_())


def _count_min_frequency(sketches: pa.Array, values: pa.Array) -> pa.Array:
    return pa.array(_asked(CountMinSketch, CountMinSketch.frequency, sketches, values), pa.int64())


def _theta_sketch_bounds(sketches: pa.Array) -> pa.Array:
    bounds = [None if data is None else list(ThetaSketch(data).bounds()) for data in sketches.to_pylist()]
    return pa.array(bounds, pa.list_(pa.float64()))


def _asked(kind: Callable[[bytes], Any], ask: Callable[[Any, Any], Any], data: pa.Array, values: pa.Array) -> list[Any]:
    decoded = lru_cache(_SKETCHES)(kind)
    pairs = zip(data.to_pylist(), values.to_pylist(), strict=True)
    return [None if each is None or value is None else ask(decoded(each), value) for each, value in pairs]


_FUNCTIONS: Final[dict[str, tuple[Callable[..., pa.Array], str]]] = {
    "bloom_contains": (_bloom_contains, "boolean"),
    "count_min_frequency": (_count_min_frequency, "bigint"),
    "theta_sketch_bounds": (_theta_sketch_bounds, "array<double>"),
}
"""The functions by name, with the types of their results. A null sketch or value gives null."""
_CALL: Final = re.compile(rf"\b(?:{'|'.join(_FUNCTIONS)})\b", re.IGNORECASE)
