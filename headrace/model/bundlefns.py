"""Transforms of whole bundles: a dialect brings the function, and says itself where elements are in time.

A function of elements cannot choose the window or the pane of what it emits; a function of bundles does.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol, Self

from headrace.model.elementwise import SideInput
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Primitive

WindowBounds = tuple[int, int]


class SideContents(Protocol):
    """The elements of a side input, as a function of bundles reads them."""

    def elements(self, window: WindowBounds | None) -> list[Any]:
        """Returns the elements in a window, or all elements for None."""


class BundleFn(Protocol):
    """Turns bundles into bundles. It is sent to the workers, and opened and closed there, once a task."""

    def open(self, sides: Sequence[SideContents]) -> None:
        """Runs before the first bundle, with the contents of the side inputs."""

    def run(self, bundle: Any) -> Iterable[tuple[str | None, Any]]:
        """Returns bundles with the tags of their outputs."""

    def close(self) -> Iterable[tuple[str | None, Any]]:
        """Runs after the last bundle."""


@dataclass(frozen=True, eq=False)
class AsBundles(SideInput):
    """Passes the contents of a collection to a function of bundles, window by window.

    `mapping` gives the window of the side input that elements of a window of the main input see. Of a collection that
    is a stream, `windowing` says how it is grouped for them, in place of its own; with `complete`, they wait until the
    window that they see is over, else until something is in it; with `latest`, they see its last element alone.
    """

    mapping: Callable[[WindowBounds], WindowBounds] | None = None
    windowing: Windowing | None = None
    complete: bool = False
    latest: bool = False
    shape = "bundles"


class Bundles(Primitive):
    """Runs a function of bundles; `outputs` are its tags, each with the windowing that it declares for its elements.

    >>> import headrace as hr
    >>> from headrace.model.panes import GLOBAL
    >>> class Doubled:
    ...     def open(self, sides):
    ...         (self.more,) = sides
    ...     def run(self, bundle):
    ...         doubled = [2 * element + sum(self.more.elements(None)) for element in bundle.elements]
    ...         yield "doubled", bundle.with_elements(doubled)
    ...     def close(self):
    ...         return ()
    >>> with hr.Pipeline() as p:
    ...     ten = p | "ten" >> hr.Create([10])
    ...     numbers = p | hr.Create([1, 2])
    ...     doubled = numbers | Bundles(Doubled(), {"doubled": GLOBAL}, sides=(AsBundles(ten),)) | hr.Collect()
    >>> sorted(doubled)
    [12, 14]
    """

    def __init__(self, fn: BundleFn, outputs: Mapping[str, Windowing], sides: Sequence[AsBundles] = ()) -> None:
        if not all(callable(getattr(fn, name, None)) for name in ("open", "run", "close")):
            raise PipelineError(f"Bundles takes an object with open, run and close, got {fn!r}")
        self.fn, self.windowings, self.sides = fn, dict(outputs), tuple(sides)
        self.outputs = tuple(outputs)

    def default_label(self) -> str:
        return f"Bundles({type(self.fn).__name__})"

    def functions(self) -> tuple[object, ...]:
        return (self.fn,)

    def side_inputs(self) -> tuple[PCollection, ...]:
        return tuple(side.collection for side in self.sides)

    def with_side_inputs(self, replacements: Mapping[PCollection, PCollection]) -> Self:
        other = copy.copy(self)
        other.sides = tuple(
            replace(side, collection=replacements.get(side.collection, side.collection)) for side in self.sides
        )
        return other

    def windowing_of(self, tag: str | None, inputs: tuple[PCollection, ...]) -> Windowing:
        return GLOBAL if tag is None else self.windowings[tag]  # None: it has no outputs
