"""Sums, means and variances as SQL defines them: of too few values there is none."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from headrace.model.algebra.arithmetic import MeanFn, VarianceFn


@dataclass(frozen=True, repr=False)
class SumOrNoneFn(MeanFn):
    """Adds values up; of no values, None.

    >>> fn = SumOrNoneFn()
    >>> fn.finish(fn.add_all(fn.zero(), [1, 2])), fn.finish(fn.zero())
    (3, None)
    """

    def finish(self, acc: tuple[Any, int]) -> Any:
        return acc[0] if acc[1] else None


@dataclass(frozen=True, repr=False)
class MeanOrNoneFn(MeanFn):
    """Computes the arithmetic mean; of no values, None.

    >>> fn = MeanOrNoneFn()
    >>> fn.finish(fn.add_all(fn.zero(), [1, 2])), fn.finish(fn.zero())
    (1.5, None)
    """

    def finish(self, acc: tuple[Any, int]) -> Any:
        return super().finish(acc) if acc[1] else None


@dataclass(frozen=True, repr=False)
class VarianceOrNoneFn(VarianceFn):
    """Computes the sample variance; of fewer than two values, None.

    >>> fn = VarianceOrNoneFn()
    >>> fn.finish(fn.add_all(fn.zero(), [1, 3])), fn.finish(fn.add_all(fn.zero(), [1]))
    (2.0, None)
    """

    def finish(self, acc: tuple[int, Any, Any]) -> Any:
        return super().finish(acc) if acc[0] > 1 else None
