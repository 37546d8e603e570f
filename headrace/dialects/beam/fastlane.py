"""The fast lane: transforms that call a plain function run over whole bundles, without Beam's windowed values.

A lane runs the transforms of a stage that `plainsteps.py` recognises. It does with them what Beam's bundle processor
does, but step by step over a bundle, not element by element: a function must not change what it has emitted, as Beam
demands anyway.
"""

from __future__ import annotations

import traceback
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from itertools import compress
from typing import Any, Final

import numpy as np
from apache_beam.pvalue import TaggedOutput
from apache_beam.transforms.window import FixedWindows, GlobalWindows, TimestampedValue, WindowFn
from apache_beam.utils import windowed_value
from apache_beam.utils.windowed_value import WindowedValue

from headrace.dialects.beam.border import NORMAL, ElementBorder, from_pane, from_times, to_times
from headrace.dialects.beam.compat import (
    CounterFactory,
    MetricsContainer,
    NameContext,
    StateSampler,
    current_tracker,
    set_current_tracker,
)
from headrace.engine.worker.bundles import Bundle
from headrace.engine.worker.operators import flattened
from headrace.model.panes import NO_PANE

Taker = Callable[[Bundle], None]
MAIN: Final = "None"
"""How Beam names the main output of a ParDo."""
_WRAPPERS: Final = (TaggedOutput, TimestampedValue, WindowedValue)


class Step:
    """One transform of a lane: gives bundles for each of its outputs to those who read them."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.metrics = MetricsContainer(name)
        self.takers: dict[str, list[Taker]] = {}
        self.scope: Any = None

    def setup(self) -> None:
        """Runs once, before the first bundle."""

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        """Yields bundles with the tags of their outputs."""
        raise NotImplementedError

    def flush(self) -> Iterator[tuple[str, Bundle]]:
        """Yields what it has kept back."""
        return iter(())

    def teardown(self) -> None:
        """Runs once, after the last bundle."""

    def take(self, bundle: Bundle) -> None:
        """Runs a bundle, and passes the results on."""
        self.passed(partial(self.run, bundle))

    def passed(self, run: Callable[[], Iterator[tuple[str, Bundle]]]) -> None:
        """Passes bundles on to the readers of each output; an error names this step, as Beam names it."""
        with self.scope:
            try:
                for tag, bundle in run():
                    for taker in self.takers.get(tag, ()):  # a tag that nobody declared has no readers
                        taker(bundle)
            except Exception as error:
                raise _augmented(error, self.name).with_traceback(error.__traceback__) from None


def _augmented(error: Exception, step: str) -> Exception:
    """Returns the error with the step in its message; the innermost step counts."""
    if getattr(error, "_tagged_with_step", False):
        return error
    note = f" [while running '{step}']"
    try:
        found: Any = type(error)(error.args[0] + note, *error.args[1:])
        found._tagged_with_step = True
    except Exception:  # it has other arguments, or no text
        found = RuntimeError(traceback.format_exception_only(error)[-1].strip() + note)
        found._tagged_with_step = True
    return found


class CallStep(Step):
    """Calls a function for each element; its subclasses say what becomes of the results."""

    def __init__(self, name: str, fn: Callable[[Any], Any], border: ElementBorder, window_fn: WindowFn) -> None:
        super().__init__(name)
        self.fn, self._border, self._window_fn = fn, border, window_fn
        self._plain: set[type] = set()

    def placed(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        """Takes results out of their wrappers: tags, times and windows."""
        kinds = set(map(type, bundle.elements))
        if not kinds <= self._plain:
            if any(issubclass(kind, _WRAPPERS) for kind in kinds):
                yield from self._unwrapped(bundle, kinds)
                return
            self._plain |= kinds
        yield MAIN, bundle

    def _unwrapped(self, bundle: Bundle, kinds: set[type]) -> Iterator[tuple[str, Bundle]]:
        if kinds == {TimestampedValue} and type(self._window_fn) in (GlobalWindows, FixedWindows):
            times = to_times([element.timestamp.micros for element in bundle.elements])
            values = [element.value for element in bundle.elements]
            yield MAIN, assigned(Bundle(values, times), self._window_fn, self._border)
            return
        by_tag: dict[str, list[WindowedValue]] = {}
        for value in self._border.values(bundle):
            result, tag = value.value, MAIN
            if isinstance(result, TaggedOutput):
                if not isinstance(result.tag, str):
                    raise TypeError(f"In {self.name}, tag {result.tag} is not a string")
                tag, result = result.tag, result.value
            by_tag.setdefault(tag, []).append(self._windowed(value, result))
        for tag, values in by_tag.items():
            for each in self._border.objects(values):
                yield tag, each

    def _windowed(self, value: WindowedValue, result: Any) -> WindowedValue:
        if isinstance(result, WindowedValue):
            return result
        if isinstance(result, TimestampedValue):
            context = WindowFn.AssignContext(result.timestamp, result.value)
            return WindowedValue(result.value, result.timestamp, self._window_fn.assign(context))
        return value.with_value(result)


class MapStep(CallStep):
    """Gives one result for each element."""

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        return self.placed(bundle.with_elements(list(map(self.fn, bundle.elements))))


class FilterStep(CallStep):
    """Gives the elements for which the function is true."""

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        results = list(map(self.fn, bundle.elements))
        passed = list(compress(bundle.elements, results))
        if len(passed) == bundle.size:
            yield from self.placed(bundle)
        elif passed:
            index = np.flatnonzero(list(map(bool, results)))
            yield from self.placed(bundle.with_elements(passed) if bundle.bare else bundle.take(index, passed))


class FlatMapStep(CallStep):
    """Gives all that the function returns or yields for each element; None is nothing."""

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        for piece in flattened(bundle, map(self.fn, bundle.elements)):
            yield from self.placed(piece)


class DoFnStep(FlatMapStep):
    """Runs a DoFn of which there is `setup`, `process` and `teardown`."""

    def __init__(self, name: str, dofn: Any, border: ElementBorder, window_fn: WindowFn, *, checked: bool) -> None:
        super().__init__(name, dofn.process, border, window_fn)
        self._dofn, self._checked = dofn, checked

    def setup(self) -> None:
        self._dofn.setup()

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        results = map(self.fn, bundle.elements)
        return self._flattened(bundle, self._first_checked(results) if self._checked else results)

    def _flattened(self, bundle: Bundle, results: Iterator[Any]) -> Iterator[tuple[str, Bundle]]:
        for piece in flattened(bundle, results):
            yield from self.placed(piece)

    def _first_checked(self, results: Iterator[Any]) -> Iterator[Any]:
        """Refuses a text or a dict as the first of all results, as Beam does, which are flattened by mistake."""
        self._checked = False
        for first in results:
            if isinstance(first, str | bytes | dict):
                raise TypeError(
                    f"Returning a {type(first).__name__} from a ParDo or FlatMap is not allowed. "
                    f"Please use list({first!r}) if you really want this behavior."
                )
            yield first
            break
        yield from results

    def teardown(self) -> None:
        self._dofn.teardown()


class ForwardStep(Step):
    """Passes elements on: a Flatten."""

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        for tag in self.takers:
            yield tag, bundle


class WindowStep(Step):
    """Assigns windows of which each element has one."""

    def __init__(self, name: str, window_fn: WindowFn, border: ElementBorder) -> None:
        super().__init__(name)
        self._window_fn, self._border = window_fn, border

    def run(self, bundle: Bundle) -> Iterator[tuple[str, Bundle]]:
        placed = Bundle(bundle.elements, bundle.times, time=bundle.time)
        for tag in self.takers:
            yield tag, assigned(placed, self._window_fn, self._border)


def assigned(bundle: Bundle, window_fn: WindowFn, border: ElementBorder) -> Bundle:
    """Returns a bundle whose elements are in the windows of a WindowFn, and in no pane."""
    if type(window_fn) is GlobalWindows:
        return Bundle(bundle.elements, bundle.times, pane=NO_PANE, time=bundle.time)
    times = bundle.all_times()
    if type(window_fn) is FixedWindows and len(times) and NORMAL.start <= times.min() and times.max() < NORMAL.stop:
        size, offset = window_fn.size.micros, window_fn.offset.micros
        starts = times - (times - offset) % size
        return Bundle(bundle.elements, times, starts, starts + size, NO_PANE)
    contexts = (
        WindowFn.AssignContext(_timestamp(micros), element=element)
        for element, micros in zip(bundle.elements, from_times(times), strict=True)
    )
    bounds = np.array([border.windows.bounds(window_fn.assign(each)[0]) for each in contexts], np.int64).reshape(-1, 2)
    return Bundle(bundle.elements, times, bounds[:, 0].copy(), bounds[:, 1].copy(), NO_PANE)


def _timestamp(micros: int) -> Any:
    return windowed_value.create(None, micros, (), from_pane(NO_PANE)).timestamp


class Lane:
    """The plain transforms of a stage; `emit` gets the bundles of collections that others read."""

    def __init__(self, steps: Mapping[str, Step]) -> None:
        self._steps = steps.values()
        sampler = StateSampler("lane", CounterFactory())
        self._sampler = sampler
        for step in self._steps:
            step.scope = sampler.scoped_state(NameContext(step.name), "process", metrics_container=step.metrics)
        with self:
            for step in self._steps:
                with step.scope:
                    step.setup()

    def __enter__(self) -> None:
        """Has metrics of this thread recorded here."""
        self._before = current_tracker()
        set_current_tracker(self._sampler)

    def __exit__(self, *error: object) -> None:
        set_current_tracker(self._before)

    def flush(self) -> None:
        """Passes on what steps have kept back."""
        with self:
            for step in self._steps:
                step.passed(step.flush)

    def report(self) -> list[bytes]:
        """Returns the metrics since the last report, and forgets them."""
        infos = []
        for step in self._steps:
            infos += [
                info.SerializeToString() for info in step.metrics.to_runner_api_monitoring_infos(step.name).values()
            ]
            step.metrics.reset()
        return infos

    def close(self) -> None:
        """Tears the functions down."""
        with self:
            for step in self._steps:
                with step.scope:
                    step.teardown()
