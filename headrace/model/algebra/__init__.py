"""Exact aggregations as algebra: `zero, add, merge, finish`, and `subtract` where it exists.

However the values are split, adding the parts separately and merging them in any order gives the same answer; all
parallel and incremental execution relies on that. The approximate aggregations are in `sketches`.
"""

from headrace.model.algebra.arithmetic import CountFn, MeanFn, SumFn, VarianceFn
from headrace.model.algebra.callables import CallableFn, TupleFn, combine_fn
from headrace.model.algebra.either import EitherFn
from headrace.model.algebra.gathering import CollectFn, CountDistinctFn, SampleFn
from headrace.model.algebra.nullable import MeanOrNoneFn, SumOrNoneFn, VarianceOrNoneFn
from headrace.model.algebra.protocol import CombineFn, tie_break
from headrace.model.algebra.ranking import FirstFn, LastFn, MaxByFn, MaxFn, MinByFn, MinFn, TopFn

__all__ = [
    "CallableFn",
    "CollectFn",
    "CombineFn",
    "CountDistinctFn",
    "CountFn",
    "EitherFn",
    "FirstFn",
    "LastFn",
    "MaxByFn",
    "MaxFn",
    "MeanFn",
    "MeanOrNoneFn",
    "MinByFn",
    "MinFn",
    "SampleFn",
    "SumFn",
    "SumOrNoneFn",
    "TopFn",
    "TupleFn",
    "VarianceFn",
    "VarianceOrNoneFn",
    "combine_fn",
    "tie_break",
]
