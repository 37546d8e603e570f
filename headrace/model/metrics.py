"""Metrics of your own, recorded in the functions of a pipeline: counters, distributions and gauges.

A metric belongs to the transform whose function records it, and is in `handle.metrics()` under its label, at `/metrics`
and on the page. What counts is what was *committed*: in a batch, tasks that succeeded, each once however often Spark
ran it; in a stream, micro-batches that all sinks have. Metrics are of one run, and begin anew with the next.

>>> import headrace as hr
>>> def parse(line):
...     hr.metrics.distribution("length").update(len(line))
...     if not line.isdigit():
...         hr.metrics.counter("bad").inc()
...         return []
...     return [int(line)]
>>> p = hr.Pipeline()
>>> numbers = p | hr.Create(["12", "7", "x"]) | "parse" >> hr.FlatMap(parse) | hr.Collect()
>>> handle = p.run()
>>> _ = handle.wait()
>>> handle.metrics()["parse"]
{'in': 3, 'out': 2, 'bad': 1, 'length': DistributionResult(count=3, sum=4, min=1, max=2)}
"""

from __future__ import annotations

import math
import numbers
from dataclasses import dataclass
from typing import Final, TypeVar

from headrace.model.badrecords import REASONS
from headrace.model.errors import PipelineError
from headrace.model.metriccells import DistributionResult as DistributionResult
from headrace.model.metriccells import GaugeResult, current_recorder

RESERVED: Final = frozenset({"in", "out", "dead", "late", "refused", "skewed", "idle", *REASONS})
"""Names in `Handle.metrics()` that are Headrace's own."""


@dataclass(frozen=True)
class Counter:
    """A number that grows: `hr.metrics.counter(name)`."""

    name: str

    def inc(self, n: int = 1) -> None:
        """Adds `n`, which is not negative. Outside of a run, as in a test that calls a function, it does nothing.

        >>> import headrace as hr
        >>> hr.metrics.counter("rows").inc(3)
        """
        if type(n) is not int or n < 0:
            n = self._whole(n)
        if (recorder := current_recorder()) is not None:
            recorder.record(self.name, n)

    def _whole(self, n: object) -> int:
        if isinstance(n, numbers.Integral) and int(n) >= 0:  # such as those of NumPy, and True for one
            return int(n)
        raise PipelineError(f"counter {self.name!r} grows by a whole number from 0 on, got {n!r}; or use a gauge")


@dataclass(frozen=True)
class Distribution:
    """Numbers of which there are count, sum, least and greatest: `hr.metrics.distribution(name)`."""

    name: str

    def update(self, value: float) -> None:
        """Adds a number.

        >>> import headrace as hr
        >>> hr.metrics.distribution("bytes").update(1500)
        """
        value = _number("distribution", self.name, value)
        if (recorder := current_recorder()) is not None:
            recorder.record(self.name, DistributionResult(1, value, value, value))


@dataclass(frozen=True)
class Gauge:
    """A number of which the latest counts: `hr.metrics.gauge(name)`."""

    name: str

    def set(self, value: float) -> None:
        """Sets the number. Of several tasks, the one that set it last by the clock of its machine counts.

        >>> import headrace as hr
        >>> hr.metrics.gauge("queue").set(17)
        """
        value = _number("gauge", self.name, value)
        if (recorder := current_recorder()) is not None:
            recorder.record(self.name, GaugeResult(recorder.clock(), value))


_Metric = TypeVar("_Metric", Counter, Distribution, Gauge)
_counters: Final[dict[str, Counter]] = {}
_distributions: Final[dict[str, Distribution]] = {}
_gauges: Final[dict[str, Gauge]] = {}


def counter(name: str) -> Counter:
    """Returns the counter of this name. Get it where you use it, or once beside your function.

    >>> import headrace as hr
    >>> hr.metrics.counter("bad")
    Counter(name='bad')
    """
    return _counters.get(name) or _made(name, Counter, _counters)


def distribution(name: str) -> Distribution:
    """Returns the distribution of this name: count, sum, least and greatest of the numbers it is given.

    >>> import headrace as hr
    >>> hr.metrics.distribution("bytes")
    Distribution(name='bytes')
    """
    return _distributions.get(name) or _made(name, Distribution, _distributions)


def gauge(name: str) -> Gauge:
    """Returns the gauge of this name: the number that it was last set to.

    >>> import headrace as hr
    >>> hr.metrics.gauge("queue")
    Gauge(name='queue')
    """
    return _gauges.get(name) or _made(name, Gauge, _gauges)


def _made(name: str, kind: type[_Metric], known: dict[str, _Metric]) -> _Metric:
    if not isinstance(name, str) or not name.strip():
        raise PipelineError(f"the name of a metric is a text such as 'bad', got {name!r}")
    if name in RESERVED:
        raise PipelineError(f"{name!r} is one of Headrace's own metrics; give yours another name, e.g. 'my {name}'")
    return known.setdefault(name, kind(name))


def _number(kind: str, name: str, value: float) -> float:
    """Returns a number as Python's own, and refuses what is none."""
    number = value
    if type(value) is not int and type(value) is not float:
        real = isinstance(value, numbers.Real) and not isinstance(value, bool)
        number = math.nan if not real else int(value) if isinstance(value, numbers.Integral) else float(value)
    if number != number:
        raise PipelineError(f"{kind} {name!r} takes numbers, got {value!r}; convert it with int() or float()")
    return number
