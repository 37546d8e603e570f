"""Approximate aggregations in bounded memory: distinct values, frequencies, quantiles, membership.

Each obeys the laws of `algebra` up to the error that its docstring states. They use Apache DataSketches where it has
the sketch; Spark's own functions of theta, KLL and HLL sketches read and write the same bytes. The exact aggregations
are in `algebra`.
"""

from headrace.model.sketches.bloomfilter import BloomFilter, BloomFn
from headrace.model.sketches.countmin import CountMinFn, CountMinSketch, FrequencyFn
from headrace.model.sketches.heavyhitters import HeavyHittersFn
from headrace.model.sketches.hll import ApproxDistinctFn
from headrace.model.sketches.kll import HistogramFn, QuantileFn, QuantilesFn, RankFn
from headrace.model.sketches.secondmoment import SecondMomentFn
from headrace.model.sketches.theta import ThetaFn, ThetaSketch

__all__ = [
    "ApproxDistinctFn",
    "BloomFilter",
    "BloomFn",
    "CountMinFn",
    "CountMinSketch",
    "FrequencyFn",
    "HeavyHittersFn",
    "HistogramFn",
    "QuantileFn",
    "QuantilesFn",
    "RankFn",
    "SecondMomentFn",
    "ThetaFn",
    "ThetaSketch",
]
