"""Work by key that a dialect brings: pairs of one key meet in one shard, which has state and clocks; for streams."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Self

from headrace.model.bundlefns import AsBundles
from headrace.model.errors import PipelineError
from headrace.model.panes import GLOBAL, Windowing
from headrace.model.pipeline import PCollection, Primitive


class Sharded(Primitive):
    """Sends pairs to shards by their keys, and does `work` there; `outputs` are its tags, each with its windowing.

    The work makes the processors of the shards, which get rows and clocks, and have their state as blocks (the
    protocols `Work` and `Processor` of `headrace.engine.shard.work`). It is sent to the workers. With side inputs, it
    has a method `seeing`, which returns the work with their contents. `unbounded` says that its outputs have no end,
    although its input may have one.

    >>> import headrace as hr
    >>> from headrace.engine.shard.work import Grouping
    >>> from headrace.model.panes import GLOBAL
    >>> p = hr.Pipeline()
    >>> pairs = p | hr.TestStream().add([("a", 1), ("a", 2)]).finish()
    >>> groups = pairs | Sharded(Grouping(GLOBAL), {None: GLOBAL}) | hr.Collect()
    >>> status = p.run(stream=True).wait()
    >>> list(groups)
    [('a', [1, 2])]
    """

    def __init__(
        self,
        work: Any,
        outputs: Mapping[str | None, Windowing],
        sides: Sequence[AsBundles] = (),
        *,
        unbounded: bool = False,
    ) -> None:
        needed = ("processor", "bundles", "identity", "describe", *(("seeing",) if sides else ()))
        if not all(callable(getattr(work, name, None)) for name in needed):
            raise PipelineError(
                f"Sharded takes work that makes processors of shards, with {', '.join(needed)}, got {work!r}"
            )
        self.work, self.windowings, self.sides, self.unbounded = work, dict(outputs), tuple(sides), unbounded
        self.outputs = tuple(outputs)

    def default_label(self) -> str:
        return f"Sharded({type(self.work).__name__})"

    def functions(self) -> tuple[object, ...]:
        return (self.work,)

    def side_inputs(self) -> tuple[PCollection, ...]:
        return tuple(side.collection for side in self.sides)

    def with_side_inputs(self, replacements: Mapping[PCollection, PCollection]) -> Self:
        other = copy.copy(self)
        other.sides = tuple(
            replace(side, collection=replacements.get(side.collection, side.collection)) for side in self.sides
        )
        return other

    def bounded_from(self, inputs: tuple[PCollection, ...]) -> bool:
        return not self.unbounded and super().bounded_from(inputs)

    def windowing_of(self, tag: str | None, inputs: tuple[PCollection, ...]) -> Windowing:
        return self.windowings.get(tag, GLOBAL)  # it may have no outputs
